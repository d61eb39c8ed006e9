"""A verdict on what was measured, with the first token that both sides see otherwise.

agrees   within the limits of the type, as loaded and after a synchronisation
prompt   the engine was asked something else than is trained
weights  within the limits only as loaded, or only after a synchronisation
numbers  beyond the limits both times: the two compute something else
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import msgspec

from swift_vlrft.agreement.measurement import KINDS, Figures, Measurement, Row, figures, first_apart


class Limit(NamedTuple):
    """The largest mean |difference|, and the largest ``share`` of tokens with one above ``bound``,
    in nats.
    """

    mean: float
    bound: float
    share: float


# From tests/end_to_end/test_agreement.py: tiny models on a CPU with vLLM 0.32; none was measured on
# a GPU. float32: healthy runs are at 1e-6, the smallest fault (a repetition penalty) at 1e-5. Half
# precision: twice a healthy run whose log-probabilities of -12 the trainer rounds to its type:
# 0.0027, and 0.021 with DeepSpeed. 0.7 is an importance ratio of 2, ms-swift's default bound.
LIMITS = {
    "float32": Limit(8e-6, 1e-4, 0.01),
    "float16": Limit(6e-3, 1e-1, 0.01),
    "bfloat16": Limit(5e-2, 7e-1, 0.01),
}


RATIO = 1.05
"""NeMo RL's threshold (docs/adding-new-models.md), which a few tokens far apart exceed, too."""


class First(msgspec.Struct):
    """The first token that both sides see otherwise, from 1; ``text`` is that of an answer."""

    row: str
    token: int
    trainer: str
    engine: str
    text: str = ""

    def __str__(self) -> str:
        place = f"{self.row}, token {self.token}{self.text and f' of the answer, {self.text!r}'}"
        return f"{place}: trainer {self.trainer}, engine {self.engine}"


class Verdict(msgspec.Struct):
    """The verdict in a word and in a sentence."""

    word: str
    said: str
    first: First | None
    figures: dict[str, Figures]
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
        for kind in KINDS
        if (numbers := figures([row for row in rows if row.kind == kind], limit.bound))
    }
    return Verdict(word, said, first, table, limit, measured.notes)


def _prompt(rows: Sequence[Row]) -> First | None:
    """The first token of a prompt that the engine had otherwise."""
    for row in rows:
        place = None if row.asked is None else first_apart(row.prompt, row.asked)
        if place is not None:
            return First(row.place, place + 1, *row.apart)
    return None


def _beyond(rows: Sequence[Row], limit: Limit) -> First | None:
    """The first token beyond the limits, if the rows of a kind are."""
    for row in rows:
        if not row.comparable:
            values = [f"{len(of)} log-probabilities" for of in (row.trainer, row.engine)]
            return First(row.place, min(len(row.trainer), len(row.engine)) + 1, *values)
    for kind in ([row for row in rows if row.kind == name] for name in KINDS):
        found = figures(kind, limit.bound)
        if found and not (
            found.mean <= limit.mean and found.beyond <= limit.share and found.ratio < RATIO
        ):
            tokens = [(size, row, i) for row in kind for i, size in enumerate(row.sizes())]
            least = limit.bound if found.beyond else min(limit.mean, log(RATIO))
            _, row, i = next(token for token in tokens if token[0] > least)
            ours, theirs = f"{row.trainer[i]:.8g}", f"{row.engine[i]:.8g}"
            return First(row.place, i + 1, ours, theirs, row.texts[i])
    return None
