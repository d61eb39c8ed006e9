"""Find which images belong to which row of a micro-batch, and whether two rows share them.

    pixel_values [3072 x 8, 1176]   image_grid_thw [[1, 64, 48]] * 8   eight rows, an image each

Processors concatenate the patches of all images of a batch; an image's share is the product of its
grid, and every ``merge ** 2`` patches become one token of the language model.

    pixel_values [13 x 8, 3, 448, 448]              eight rows, thirteen tiles each (InternVL)

Tiles have no grid; each becomes ``tile_tokens`` tokens and counts as an image of its own here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch


class CannotPack(ValueError):
    """An error that says why a micro-batch has to be computed as separate rows."""


@dataclass(frozen=True)
class Images:
    """The images of a micro-batch, as the processor returns them."""

    pixel_values: torch.Tensor
    grid_thw: torch.Tensor | None
    token_id: int
    merge: int = 1
    tile_tokens: int = 0

    def __post_init__(self) -> None:
        patches = sum(self._shares)
        if patches != self.pixel_values.shape[0]:
            raise CannotPack(
                f"image_grid_thw counts {patches} patches, "
                f"pixel_values has {self.pixel_values.shape[0]}"
            )

    @cached_property
    def _shares(self) -> list[int]:
        if self.grid_thw is None:
            return [1] * len(self.pixel_values)
        shares: list[int] = self.grid_thw.prod(-1).tolist()
        return shares

    @cached_property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """Return the patches of each image, or the tiles, as views."""
        return tuple(self.pixel_values.split(self._shares))

    @property
    def tokens(self) -> list[int]:
        """Return the language-model tokens of each image."""
        if self.grid_thw is None:
            return [self.tile_tokens] * len(self.parts)
        return [share // self.merge**2 for share in self._shares]

    def of_rows(self, image_tokens: Sequence[int]) -> list[range]:
        """Return the images of each row, from the number of its image tokens."""
        tokens, rows, i = self.tokens, [], 0
        for row, expected in enumerate(image_tokens):
            first, got = i, 0
            while got < expected and i < len(tokens):
                got, i = got + tokens[i], i + 1
            if got != expected:
                raise CannotPack(f"row {row} holds {expected} image tokens, its images make {got}")
            rows.append(range(first, i))
        if i != len(tokens):
            raise CannotPack(f"{len(tokens)} images, the rows hold tokens of {i}")
        return rows

    def inputs(self, images: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return the model's inputs for these images, in this order."""
        pixels = {"pixel_values": torch.cat([self.parts[i] for i in images])}
        if self.grid_thw is None:
            return pixels
        return pixels | {"image_grid_thw": self.grid_thw[list(images)]}

    def same(self, these: range, other: range) -> bool:
        """Say whether two runs of images are equal to the last bit."""
        return len(these) == len(other) and all(
            self._shape(i) == self._shape(j) and torch.equal(self.parts[i], self.parts[j])
            for i, j in zip(these, other, strict=True)
        )

    def digest(self, image: int) -> bytes:
        """Return a digest of this image's content, the same in every micro-batch."""
        pixels = self.parts[image].detach().cpu().contiguous()
        content = hashlib.blake2b(pixels.view(torch.uint8).numpy().data, digest_size=20)
        content.update(repr((self._shape(image), pixels.dtype)).encode())
        return content.digest()

    def _shape(self, image: int) -> list[int]:
        source = self.parts[image].shape if self.grid_thw is None else self.grid_thw[image].tolist()
        return list(source)
