"""What one process measures and another judges: records on disk, and figures of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import exp, inf, isfinite
from statistics import fmean, median

import msgspec

KINDS = ("image rows", "text rows", "later turns")
"""Whose figures are told apart."""
LARGEST = 700.0
"""Whose exponential a double still holds."""


class Row(msgspec.Struct):
    """One prompt, the engine's answer, and what both sides say of each of its tokens."""

    place: str
    images: int
    prompt: list[int]
    """As the trainer encodes it, every image token counted."""
    asked: list[int] | None
    """The prompt as the engine had it; None if it does not tell."""
    texts: list[str]
    """Of the answer's tokens."""
    engine: list[float]
    """Log-probabilities; empty if the engine returns none."""
    trainer: list[float]
    apart: list[str] = []
    """The trainer's and the engine's token where their prompts first differ."""
    turn: int = 1
    """Of the answer, in its row; the turns before it belong to the prompt."""

    @property
    def kind(self) -> str:
        return KINDS[2 if self.turn > 1 else 1 - bool(self.images)]

    @property
    def comparable(self) -> bool:
        return bool(self.engine) and len(self.engine) == len(self.trainer)

    def sizes(self) -> list[float]:
        """|difference| of each token, in nats; infinite where a value is no number."""
        both = zip(self.engine, self.trainer, strict=True) if self.comparable else ()
        return [abs(b - a) if isfinite(b - a) else inf for a, b in both]


class Job(msgspec.Struct):
    """What the measuring process is asked for."""

    result: str
    rows: int
    tokens: int
    """The most tokens of an answer."""


class Measurement(msgspec.Struct):
    """What the measuring process found."""

    engine: str
    model: str
    dtype: str
    """The coarsest of both sides: a name of ``LIMITS`` in verdict.py."""
    loaded: list[Row] = []
    """With the weights that each side read."""
    synced: list[Row] = []
    """After every trained weight was moved and sent to the engine, if there is one."""
    notes: list[str] = []


class Figures(msgspec.Struct):
    """The |differences| of some tokens in numbers; ``beyond`` is the share beyond a bound,
    ``ratio`` the mean of the tokens' exp |difference|, NeMo RL's token_mult_prob_error.
    """

    tokens: int
    mean: float
    worst: float
    beyond: float
    ratio: float
    median_ratio: float


def figures(rows: Iterable[Row], bound: float) -> Figures | None:
    """The figures of those rows; None if there is no token to compare."""
    sizes = [size for row in rows for size in row.sizes()]
    if not sizes:
        return None
    beyond = sum(size > bound for size in sizes) / len(sizes)
    ratios = [exp(size) if size < LARGEST else inf for size in sizes]
    mean = sum(sizes) / len(sizes)
    return Figures(len(sizes), mean, max(sizes), beyond, fmean(ratios), median(ratios))


def first_apart(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """The position, from 0, at which two prompts first differ; None if they are the same."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((i for i, (a, b) in pairs if a != b), None)
