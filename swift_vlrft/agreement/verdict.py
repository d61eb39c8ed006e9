"""A verdict on what was measured, with the first token that both sides see otherwise.

agrees   within the limits of the type, as loaded and after a synchronisation
prompt   the engine was asked something else than is trained
weights  within the limits only as loaded, or only after a synchronisation
numbers  beyond the limits both times: the two compute something else
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from swift_vlrft.agreement.figures import Figures, Row, figures, first_apart
from swift_vlrft.agreement.measurement import Measurement


class Limit(NamedTuple):
    """The limits of a type: of the mean |difference|, and of the share of tokens whose difference
    is beyond a bound; in nats.
    """

    mean: float
    bound: float
    share: float


LIMITS = {
    "float32": Limit(8e-6, 1e-4, 0.01),
    "float16": Limit(3e-3, 3e-2, 0.01),
    "bfloat16": Limit(2e-2, 2e-1, 0.01),
}


class First(msgspec.Struct):
    """The first token that both sides see otherwise, counted from 1."""

    row: str
    token: int
    trainer: str
    engine: str

    def __str__(self) -> str:
        return f"{self.row}, token {self.token}: trainer {self.trainer}, engine {self.engine}"


class Verdict(msgspec.Struct):
    """The verdict in a word and in a sentence."""

    word: str
    said: str
    first: First | None
    figures: dict[str, Figures]
    """By what was compared, as in the table."""
    limit: Limit
    notes: list[str]

    @property
    def exit_code(self) -> int:
        return int(self.word != "agrees")


def judge(measured: Measurement) -> Verdict:
    """The verdict by the limits of the measured type."""
    limit = LIMITS[measured.dtype]
    sides = {"as loaded": measured.loaded, "after the sync": measured.synced}
    found = [_prompt(rows) for rows in sides.values()]
    off = {when: _beyond(rows, limit) for when, rows in sides.items() if rows}
    beyond = [when for when, first in off.items() if first]
    first = next((first for first in (*found, *off.values()) if first), None)
    if any(found):
        word, said = "prompt", f"the prompts differ: {first}"
    elif not beyond:
        word, said = "agrees", "within the limits"
    elif len(beyond) < len(off):
        other = next(when for when in off if when not in beyond)
        word, said = "weights", f"they agree {other}, and not {beyond[0]}: {first}"
    else:
        word, said = "numbers", f"beyond the limits {' and '.join(beyond)}: {first}"
    table = {
        f"{when}, {kind}": numbers
        for when, rows in sides.items()
        for kind, images in (("image rows", True), ("text rows", False))
        if (numbers := figures([r for r in rows if bool(r.images) == images], limit.bound))
    }
    return Verdict(word, said, first, table, limit, measured.notes)


def _prompt(rows: Sequence[Row]) -> First | None:
    for row in rows:
        place = None if row.asked is None else first_apart(row.prompt, row.asked)
        if place is not None:
            ours, theirs = row.apart or ("another token", "another token")
            return First(row.place, place + 1, ours, theirs)
    return None


def _beyond(rows: Sequence[Row], limit: Limit) -> First | None:
    """The first token beyond the limits, if the rows are."""
    for row in rows:
        if not row.comparable:
            values = [f"{len(of)} log-probabilities" for of in (row.trainer, row.engine)]
            return First(row.place, min(len(row.trainer), len(row.engine)) + 1, *values)
    kinds = [[row for row in rows if bool(row.images) == images] for images in (True, False)]
    for kind in (*filter(None, kinds), rows):
        found = figures(kind, limit.bound)
        if found and not (found.mean <= limit.mean and found.beyond <= limit.share):
            bounds = (limit.bound, limit.mean)
            return next(filter(None, (_larger(kind, bound) for bound in bounds)), None)
    return None


def _larger(rows: Sequence[Row], bound: float) -> First | None:
    for row in rows:
        for i, size in enumerate(row.sizes()):
            if size > bound:
                values = (f"{of[i]:.6g}" for of in (row.trainer, row.engine))
                return First(row.place, i + 1, *values)
    return None
