"""The records of a measurement, which another process judges, and their figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import exp, inf, isfinite
from statistics import fmean

import msgspec

KINDS = ("image rows", "text rows", "video rows")
"""The kinds of rows, each with figures of its own."""
MAX_EXPONENT = 700.0
"""The largest difference whose exponential a double holds."""


class Row(msgspec.Struct):
    """A compared row: its prompt, the engine's answer, and both sides' log-probabilities."""

    place: str
    images: int
    prompt: list[int]
    """The prompt's tokens as the trainer encodes them, image tokens included."""
    asked: list[int] | None
    """The prompt's tokens as the engine had them; None if it does not say."""
    texts: list[str]
    """The text of each token of the answer."""
    engine: list[float]
    """The engine's log-probabilities; empty if it returns none."""
    trainer: list[float]
    """The trainer's log-probabilities."""
    videos: int = 0
    apart: list[str] = []
    """The trainer's and the engine's token where their prompts first differ."""

    @property
    def kind(self) -> str:
        return KINDS[2 if self.videos else 1 - bool(self.images)]

    @property
    def comparable(self) -> bool:
        return bool(self.engine) and len(self.engine) == len(self.trainer)

    def sizes(self) -> list[float]:
        """Return |difference| of each token, in nats; infinite where a value is no number."""
        both = zip(self.engine, self.trainer, strict=True) if self.comparable else ()
        return [abs(b - a) if isfinite(b - a) else inf for a, b in both]


class Job(msgspec.Struct):
    """The order to a measuring process: where its result goes, and how much it compares."""

    result: str
    rows: int
    tokens: int
    """The longest answer, in tokens."""


class Measurement(msgspec.Struct):
    """The result of a measuring process."""

    engine: str
    model: str
    dtype: str
    """The coarser type of both sides: a name of ``LIMITS`` in verdict.py."""
    loaded: list[Row] = []
    """Rows under the weights that each side loaded."""
    synced: list[Row] = []
    """Rows after every trained weight was moved and sent to the engine, if there is one."""
    notes: list[str] = []


class Figures(msgspec.Struct):
    """The |differences| of tokens in numbers.

    ``beyond`` is the share beyond a bound, and ``ratio`` the mean of exp |difference|, NeMo RL's
    token_mult_prob_error.
    """

    tokens: int
    mean: float
    worst: float
    beyond: float
    ratio: float


def figures(rows: Iterable[Row], bound: float) -> Figures | None:
    """Return the figures of rows; None if there is no token to compare."""
    sizes = [size for row in rows for size in row.sizes()]
    if not sizes:
        return None
    beyond = sum(size > bound for size in sizes) / len(sizes)
    ratios = [exp(size) if size < MAX_EXPONENT else inf for size in sizes]
    return Figures(len(sizes), fmean(sizes), max(sizes), beyond, fmean(ratios))


def first_apart(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the position, from 0, at which two prompts first differ; None if they are equal."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((i for i, (a, b) in pairs if a != b), None)
