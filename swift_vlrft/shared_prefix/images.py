"""Which images belong to which row of a micro-batch, and whether two rows have the same ones.

    pixel_values [3072 x 8, 1176]   image_grid_thw [[1, 64, 48]] * 8   eight rows, an image each

Processors concatenate the patches of all images of a batch; an image's share is the product of its
grid, and every ``merge ** 2`` patches become one token of the language model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

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
        patches = int(self.grid_thw.prod(-1).sum())
        if patches != self.pixel_values.shape[0]:
            raise CannotPack(
                f"image_grid_thw counts {patches} patches, "
                f"pixel_values has {self.pixel_values.shape[0]}"
            )

    @cached_property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """The patches of each image, as views."""
        return tuple(self.pixel_values.split(self.grid_thw.prod(-1).tolist()))

    @property
    def tokens(self) -> list[int]:
        """Language-model tokens of each image."""
        return [len(part) // self.merge**2 for part in self.parts]

    def of_rows(self, image_tokens: Sequence[int]) -> list[range]:
        """The images of each row, from the number of image tokens in it."""
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

    def pixels(self, images: Sequence[int]) -> torch.Tensor:
        """The patches of these images, in this order."""
        return torch.cat([self.parts[i] for i in images])

    def same(self, one: range, other: range) -> bool:
        """Whether two runs of images are equal to the last bit."""
        return len(one) == len(other) and all(
            torch.equal(self.grid_thw[i], self.grid_thw[j])
            and torch.equal(self.parts[i], self.parts[j])
            for i, j in zip(one, other, strict=True)
        )

    def digest(self, image: int) -> bytes:
        """A digest of this image's content, the same in every micro-batch."""
        pixels = self.parts[image].detach().cpu().contiguous()
        content = hashlib.blake2b(pixels.view(torch.uint8).numpy().data, digest_size=20)
        content.update(repr((self.grid_thw[image].tolist(), pixels.dtype)).encode())
        return content.digest()
