"""Keep the image features of a frozen encoder for a generation batch.

    cache = FeatureCache(limit=512 << 20)
    with cache.fill(model.visual, digests, tokens):  # the encoder runs: its output is kept
        model(...)
    cache.get(model.visual, digests)                     # and serves the passes that follow

GRPO computes the same images for the old policy's log-probabilities, the reference's and each
update, in as many micro-batches as a group is split over. A frozen encoder gives the same features
each time. An image is known by the digest of its pixels. What no longer fits is not kept: the
passes go through the micro-batches in the same order, and throwing out the oldest would miss every
time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class ImageFeatures:
    """Image features, as ``get_image_features`` returns them and the language model reads them."""

    pooler_output: tuple[torch.Tensor, ...] | torch.Tensor  # [tokens, hidden] for each image
    deepstack_features: list[tuple[torch.Tensor, ...]] | None = None
    """The same for each of the layers that Qwen3-VL adds features to."""


def encoders(model: Any) -> list[Any]:
    """Return the modules that compute image features; the last module returns them."""
    names = ("visual", "vision_tower", "multi_modal_projector")
    return [part for name in names if (part := getattr(model.model, name, None)) is not None]


class FeatureCache:
    """A cache of features by image content, of at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: dict[tuple[int, bytes], list[torch.Tensor]] = {}

    def clear(self) -> None:
        self._kept.clear()
        self.bytes = 0

    def get(self, encoder: Any, digests: Sequence[bytes]) -> ImageFeatures | None:
        """Return the features of these images; None unless all are there."""
        try:
            images = [self._kept[id(encoder), digest] for digest in digests]
        except KeyError:
            return None
        levels = list(zip(*images, strict=True))
        return ImageFeatures(levels[0], levels[1:] or None)

    @contextmanager
    def fill(self, encoder: Any, digests: Sequence[bytes], tokens: Sequence[int]) -> Iterator[None]:
        """Keep the features that the encoder returns within this block.

        ``digests`` and ``tokens`` are those of its images, in its order.
        """

        def keep(_module: Any, _arguments: Any, output: Any) -> None:
            levels = (
                getattr(output, "pooler_output", output),
                *(getattr(output, "deepstack_features", None) or []),
            )
            images = (level.flatten(0, -2).split(list(tokens)) for level in levels)
            for digest, *parts in zip(digests, *images, strict=True):
                size = sum(part.nbytes for part in parts)
                if (id(encoder), digest) in self._kept or self.bytes + size > self.limit:
                    continue
                # Copies: a slice would hold on to the features of the whole batch.
                self._kept[id(encoder), digest] = [part.detach().clone() for part in parts]
                self.bytes += size

        handle = encoder.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()
