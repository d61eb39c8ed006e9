"""From rows that begin alike to one sequence in which every prompt stands once.

    rows    P P P a a .      two completions of prompt P, one of Q; "." is padding
            P P P b . .
            Q Q c c c c
    packed  P P P a a b Q Q c c c c

No token of the packed sequence is padding. Positions (M-RoPE's three rows of them) are copied from
the separate rows. Where completions begin alike, what they have in common counts as prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from swift_vlrft.shared_prefix.images import CannotPack, Images

__all__ = ["CannotPack", "Group", "Packed", "pack"]


@dataclass(frozen=True)
class Group:
    """Where one prompt and its completions stand in the packed sequence.

    ``gather`` picks the completions' tokens (counted from ``start + shared``) as one padded batch
    of ``len(own) x max(own)``, ``keep`` picks the real ones back out; both None where no padding
    is needed.
    """

    start: int
    shared: int
    own: tuple[int, ...]
    gather: torch.Tensor | None
    keep: torch.Tensor | None

    @property
    def stop(self) -> int:
        return self.start + self.shared + sum(self.own)


@dataclass(frozen=True)
class Packed:
    """What the model is given instead of the rows, and how to find the rows' tokens again."""

    input_ids: torch.Tensor
    """[1, packed tokens]"""
    position_ids: torch.Tensor
    """[3, 1, packed tokens]"""
    groups: tuple[Group, ...]
    predictors: torch.Tensor
    """[completion tokens]: the packed position whose logits predict each, in row order."""
    targets: torch.Tensor
    """[completion tokens]: their ids."""
    images: Images
    distinct_images: tuple[int, ...]
    """The images that the packed sequence holds, in its order."""
    rows: int
    row_tokens: int
    """Tokens of the separate rows, padding included: what is computed without packing."""

    @property
    def tokens(self) -> int:
        return int(self.input_ids.shape[1])

    @property
    def distinct_tokens(self) -> list[int]:
        """Language-model tokens of each distinct image."""
        return [self.images.tokens[i] for i in self.distinct_images]

    @property
    def repeats(self) -> bool:
        """Whether any prompt stands in more than one row."""
        return len(self.groups) < self.rows


def pack(
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor,
    completion_mask: torch.Tensor,
    images: Images,
) -> Packed:
    """Lay out a micro-batch with every distinct prompt once.

    ``input_ids`` and ``attention_mask`` are [rows, columns], ``position_ids`` [3, rows, columns],
    ``completion_mask`` covers the last columns: True where a token's log-probability is wanted.
    CannotPack says what keeps a micro-batch from it.
    """
    ids = input_ids.cpu().numpy()
    real = _real(attention_mask, ids.shape)
    wanted = np.zeros(ids.shape, dtype=bool)
    wanted[:, ids.shape[1] - completion_mask.shape[1] :] = completion_mask.cpu().numpy()
    rows = [_row(r, *x, images.token_id) for r, x in enumerate(zip(ids, real, wanted, strict=True))]
    images_of = images.of_rows([int((row.ids == images.token_id).sum()) for row in rows])

    groups: list[Group] = []
    distinct: list[int] = []
    order: list[np.ndarray] = []  # where each packed token comes from, as a flat index
    place = np.full(ids.shape, -1)  # where each token of the rows stands in the packed sequence
    start = 0
    for members in _group(rows, images, images_of):
        lead, shared = rows[members[0]], _common([rows[m].ids for m in members])
        order.append(lead.flat[:shared])
        stop, own = start + shared, []
        for row in (rows[m] for m in members):
            place.reshape(-1)[row.flat[:shared]] = start + np.arange(shared)
            rest = row.flat[shared:]
            if len(rest):
                place.reshape(-1)[rest] = stop + np.arange(len(rest))
                order.append(rest)
                own.append(len(rest))
                stop += len(rest)
        groups.append(_slots(start, shared, tuple(own), input_ids.device))
        distinct.extend(images_of[members[0]])
        start = stop

    device = input_ids.device
    chosen = torch.from_numpy(np.concatenate(order)).to(device)
    r, c = np.nonzero(wanted)
    return Packed(
        input_ids=input_ids.reshape(-1)[chosen][None],
        position_ids=position_ids.reshape(position_ids.shape[0], -1)[:, None, chosen],
        groups=tuple(groups),
        predictors=torch.from_numpy(place[r, c - 1]).to(device),
        targets=torch.from_numpy(ids[r, c]).to(device),
        images=images,
        distinct_images=tuple(distinct),
        rows=len(rows),
        row_tokens=ids.size,
    )


@dataclass(frozen=True)
class _Row:
    """The real tokens of a row, where they come from, and how many of them are its prompt."""

    ids: np.ndarray
    flat: np.ndarray
    prompt: int


def _real(attention_mask: torch.Tensor | None, shape: tuple[int, ...]) -> np.ndarray:
    if attention_mask is None:
        return np.ones(shape, dtype=bool)
    if attention_mask.ndim != 2:
        raise CannotPack(f"the attention mask has {attention_mask.ndim} dimensions, not 2")
    return np.asarray(attention_mask.cpu().numpy(), dtype=bool)


def _row(
    index: int, ids: np.ndarray, real: np.ndarray, wanted: np.ndarray, image_token: int
) -> _Row:
    columns = np.nonzero(real)[0]
    if not len(columns) or columns[-1] - columns[0] + 1 != len(columns):
        raise CannotPack(f"row {index} is empty or has padding between its tokens")
    if (wanted & ~real).any():
        raise CannotPack(f"row {index} has a completion token that is padding")
    prompt = int(wanted.argmax() - columns[0]) if wanted.any() else len(columns)
    if prompt < 1:
        raise CannotPack(f"row {index} has no prompt before its completion")
    text = ids[columns]
    if (text[prompt:] == image_token).any():
        raise CannotPack(f"the completion of row {index} holds an image token")
    return _Row(text, index * len(ids) + columns, prompt)


def _group(rows: Sequence[_Row], images: Images, images_of: Sequence[range]) -> list[list[int]]:
    """Rows with the same prompt and the same images, in order of first appearance."""
    by_prompt: dict[bytes, list[list[int]]] = {}
    groups: list[list[int]] = []
    for r, row in enumerate(rows):
        known = by_prompt.setdefault(row.ids[: row.prompt].tobytes(), [])
        for members in known:
            if images.same(images_of[members[0]], images_of[r]):
                members.append(r)
                break
        else:
            known.append([r])
            groups.append(known[-1])
    return groups


def _common(texts: Sequence[np.ndarray]) -> int:
    """How much all begin with in common: the prompt and what the completions repeat."""
    shared = min(len(text) for text in texts)
    for text in texts[1:]:
        differs = np.nonzero(text[:shared] != texts[0][:shared])[0]
        shared = int(differs[0]) if len(differs) else shared
    return shared


def _slots(start: int, shared: int, own: tuple[int, ...], device: torch.device) -> Group:
    gather = keep = None
    if len(set(own)) > 1:
        longest = max(own)
        offsets = np.concatenate([[0], np.cumsum(own)[:-1]])
        columns = np.arange(longest)
        inside = columns < np.array(own)[:, None]
        gather = np.where(inside, offsets[:, None] + columns, 0).reshape(-1)
        keep = np.nonzero(inside.reshape(-1))[0]
        gather, keep = (torch.from_numpy(x).to(device) for x in (gather, keep))
    return Group(start, shared, own, gather, keep)
