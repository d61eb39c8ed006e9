"""Pack rows with the same beginning into a sequence in which every prompt occurs once.

    rows    P P P a a .      two completions of prompt P, one of Q; "." is padding
            P P P b . .
            Q Q c c c c
    packed  P P P a a b Q Q c c c c

No token of the packed sequence is padding. Positions (M-RoPE's three rows of them) are copied from
the separate rows. A common beginning of the completions counts as prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from swift_vlrft.shared_prefix.images import CannotPack, Images


@dataclass(frozen=True)
class Group:
    """The positions of a prompt and its completions in the packed sequence."""

    start: int
    shared: int  # Tokens of the prompt and of the completions' common beginning
    lengths: tuple[int, ...]  # Tokens of each completion after that

    @property
    def stop(self) -> int:
        return self.start + self.shared + sum(self.lengths)


@dataclass(frozen=True)
class Packed:
    """The packed input that replaces the rows, with the map back to the rows' tokens."""

    input_ids: torch.Tensor  # [1, packed tokens]
    position_ids: torch.Tensor  # [3, 1, packed tokens], without M-RoPE [1, packed tokens]
    groups: tuple[Group, ...]
    predictors: torch.Tensor
    """[completion tokens]: the packed position whose logits predict each, in row order."""
    targets: torch.Tensor  # [completion tokens]: their ids
    images: Images
    distinct_images: tuple[int, ...]  # The images that the packed sequence holds, in its order
    rows: int
    row_tokens: int
    """Tokens of the separate rows, padding included: what is computed without packing."""

    @property
    def tokens(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def distinct_tokens(self) -> list[int]:
        """Return the language-model tokens of each distinct image."""
        return [self.images.tokens[i] for i in self.distinct_images]

    @cached_property
    def digests(self) -> list[bytes]:
        """Return the digests of the distinct images."""
        return [self.images.digest(i) for i in self.distinct_images]

    @property
    def repeats(self) -> bool:
        """Say whether any prompt occurs in several rows."""
        return len(self.groups) < self.rows


def pack(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor,
    completion_mask: torch.Tensor,
    images: Images,
) -> Packed:
    """Lay out a micro-batch with every distinct prompt once.

    ``input_ids`` and ``attention_mask`` are [rows, columns], ``position_ids`` the same or, for
    M-RoPE, [3, rows, columns]. ``completion_mask`` covers the last columns: True where a token's
    log-probability is needed. CannotPack says why a micro-batch cannot be packed.
    """
    if position_ids.ndim == 2 and attention_mask is not None:
        # Plain RoPE knows distances only, and padding on the left may have been counted.
        first = attention_mask.long().argmax(-1, keepdim=True)
        position_ids = position_ids - position_ids.gather(1, first)
    ids = input_ids.cpu().numpy()
    predicted = np.zeros(ids.shape, dtype=bool)
    predicted[:, ids.shape[1] - completion_mask.shape[1] :] = completion_mask.cpu().numpy()
    rows = _rows(ids, attention_mask, predicted, images.token_id)
    images_of = images.of_rows([int((row.ids == images.token_id).sum()) for row in rows])

    groups: list[Group] = []
    distinct: list[int] = []
    order: list[np.ndarray] = []  # flat index into the rows for each packed token
    place = np.full(ids.size, -1)  # position of each token of the rows in the packed sequence
    start = 0
    for members in _group(rows, images, images_of):
        shared = _common([rows[m].ids for m in members])
        order.append(rows[members[0]].flat[:shared])
        stop, lengths = start + shared, []
        for row in (rows[m] for m in members):
            place[row.flat[:shared]] = np.arange(start, start + shared)
            if count := len(row.flat) - shared:
                order.append(row.flat[shared:])
                place[order[-1]] = np.arange(stop, stop + count)
                lengths.append(count)
                stop += count
        groups.append(Group(start, shared, tuple(lengths)))
        distinct.extend(images_of[members[0]])
        start = stop

    device = input_ids.device
    chosen = torch.from_numpy(np.concatenate(order)).to(device)
    targets = np.nonzero(predicted.reshape(-1))[0]
    return Packed(
        input_ids=input_ids.reshape(-1)[chosen][None],
        position_ids=position_ids.flatten(-2)[..., None, chosen],
        groups=tuple(groups),
        predictors=torch.from_numpy(place[targets - 1]).to(device),
        targets=torch.from_numpy(ids.reshape(-1)[targets]).to(device),
        images=images,
        distinct_images=tuple(distinct),
        rows=len(rows),
        row_tokens=ids.size,
    )


@dataclass(frozen=True)
class _Row:
    """The tokens of a row without padding, their indices, and how many of them are its prompt."""

    ids: np.ndarray
    flat: np.ndarray
    prompt: int


def _rows(
    ids: np.ndarray, attention_mask: torch.Tensor | None, predicted: np.ndarray, image_token: int
) -> list[_Row]:
    real = np.ones(ids.shape, dtype=bool)
    if attention_mask is not None:
        if attention_mask.ndim != 2:
            raise CannotPack(f"the attention mask has {attention_mask.ndim} dimensions, not 2")
        real = attention_mask.cpu().numpy().astype(bool)
    rows = []
    for index, (row, mask, completion) in enumerate(zip(ids, real, predicted, strict=True)):
        columns = np.nonzero(mask)[0]
        if not len(columns) or columns[-1] - columns[0] + 1 != len(columns):
            raise CannotPack(f"row {index} is empty or has padding between its tokens")
        if (completion & ~mask).any():
            raise CannotPack(f"row {index} has a completion token that is padding")
        prompt = int(completion.argmax() - columns[0]) if completion.any() else len(columns)
        if prompt < 1:
            raise CannotPack(f"row {index} has no prompt before its completion")
        if (row[columns][prompt:] == image_token).any():
            raise CannotPack(f"the completion of row {index} holds an image token")
        rows.append(_Row(row[columns], index * len(row) + columns, prompt))
    return rows


def _group(rows: Sequence[_Row], images: Images, images_of: Sequence[range]) -> list[list[int]]:
    """Return the rows of each prompt with its images, in order of first appearance."""
    groups: dict[tuple[bytes, int], list[int]] = {}
    for r, row in enumerate(rows):
        prompt = row.ids[: row.prompt].tobytes()
        alike = (first for text, first in groups if text == prompt)
        first = next((f for f in alike if images.same(images_of[f], images_of[r])), r)
        groups.setdefault((prompt, first), []).append(r)
    return list(groups.values())


def _common(texts: Sequence[np.ndarray]) -> int:
    """Return the length of the common beginning: prompt, and first tokens of all completions."""
    shared = min(map(len, texts))
    differs = [(text[:shared] != texts[0][:shared]).nonzero()[0][:1] for text in texts]
    return int(min([shared, *np.concatenate(differs)]))
