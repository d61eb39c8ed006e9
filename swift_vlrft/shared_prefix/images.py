"""Which image belongs to which row of a micro-batch, and whether two rows show the same ones.

    pixel_values [3072 x 8, 1176]   image_grid_thw [[1, 64, 48]] * 8   eight rows, an image each

Processors concatenate the patches of all images of a batch; an image's share is the product of its
grid, and every ``merge ** 2`` patches become one token of the language model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch


class CannotPack(ValueError):
    """Why this micro-batch has to be computed as separate rows."""


@dataclass(frozen=True)
class Images:
    """The images of a micro-batch as the processor returns them."""

    pixel_values: torch.Tensor
    grid_thw: torch.Tensor
    token_id: int
    merge: int

    def __post_init__(self) -> None:
        patches = [t * h * w for t, h, w in self.grid_thw.tolist()]
        if sum(patches) != self.pixel_values.shape[0]:
            raise CannotPack(
                f"image_grid_thw counts {sum(patches)} patches, "
                f"pixel_values has {self.pixel_values.shape[0]}"
            )
        starts = [0]
        for n in patches:
            starts.append(starts[-1] + n)
        object.__setattr__(self, "_starts", starts)

    @property
    def tokens(self) -> list[int]:
        """Language-model tokens of each image."""
        starts: list[int] = self._starts  # type: ignore[attr-defined]
        return [(b - a) // self.merge**2 for a, b in zip(starts, starts[1:], strict=False)]

    def of_rows(self, image_tokens: Sequence[int]) -> list[range]:
        """The images of each row, from the number of image tokens in it."""
        tokens, rows, i = self.tokens, [], 0
        for row, wanted in enumerate(image_tokens):
            first, got = i, 0
            while got < wanted and i < len(tokens):
                got, i = got + tokens[i], i + 1
            if got != wanted:
                raise CannotPack(f"row {row} holds {wanted} image tokens, its images make {got}")
            rows.append(range(first, i))
        if i != len(tokens):
            raise CannotPack(f"{len(tokens)} images, the rows hold tokens of {i}")
        return rows

    def pixels(self, images: Sequence[int]) -> torch.Tensor:
        """The patches of these images, in this order."""
        starts: list[int] = self._starts  # type: ignore[attr-defined]
        return torch.cat([self.pixel_values[starts[i] : starts[i + 1]] for i in images])

    def same(self, one: range, other: range) -> bool:
        """Whether two runs of images are equal to the last bit."""
        starts: list[int] = self._starts  # type: ignore[attr-defined]
        if len(one) != len(other) or not torch.equal(
            self.grid_thw[one.start : one.stop], self.grid_thw[other.start : other.stop]
        ):
            return False
        return bool(
            torch.equal(
                self.pixel_values[starts[one.start] : starts[one.stop]],
                self.pixel_values[starts[other.start] : starts[other.stop]],
            )
        )

    def digest(self, image: int) -> bytes:
        """A name for this image's content, the same in every micro-batch."""
        starts: list[int] = self._starts  # type: ignore[attr-defined]
        pixels = self.pixel_values[starts[image] : starts[image + 1]].detach().cpu().contiguous()
        content = hashlib.blake2b(pixels.view(torch.uint8).numpy().data, digest_size=20)
        content.update(repr((self.grid_thw[image].tolist(), pixels.dtype)).encode())
        return content.digest()
