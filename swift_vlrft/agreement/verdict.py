"""Judge a measurement, and name the first token on which the two sides differ.

agrees   within the limits of the type, as loaded and after a synchronisation
prompt   the engine's prompt is not the trainer's
weights  within the limits only as loaded, or only after a synchronisation
numbers  beyond the limits both times: the two sides compute differently
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log
from typing import NamedTuple

import msgspec

from swift_vlrft.agreement.measurement import KINDS, Figures, Measurement, Row, figures, first_apart


class Limit(NamedTuple):
    """The largest |differences| of sides that agree, in nats.

    ``mean`` is that of all tokens; at most a ``share`` of them may be above ``bound``.
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
    """The first token, from 1, on which the sides differ; one of an answer has its ``text``."""

    row: str
    token: int
    trainer: str
    engine: str
    text: str = ""
    of_video: bool = False

    def __str__(self) -> str:
        place = f"{self.row}, token {self.token}{self.text and f' of the answer, {self.text!r}'}"
        return f"{place}: trainer {self.trainer}, engine {self.engine}"


class Verdict(msgspec.Struct):
    """The outcome of a comparison: a word, a sentence, and the figures behind them."""

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
    """Judge a measurement by the limits of its type."""
    limit = LIMITS[measured.dtype]
    sides = {"as loaded": measured.loaded, "after the sync": measured.synced}
    prompts = [_prompt(rows) for rows in sides.values()]
    off = {when: _beyond(rows, limit) for when, rows in sides.items() if rows}
    beyond = [when for when, first in off.items() if first]
    first = next((first for first in (*prompts, *off.values()) if first), None)
    if any(prompts):
        word, said = "prompt", f"the prompts differ{_what(first)}: {first}"
    elif not beyond:
        word, said = "agrees", "within the limits"
    elif len(beyond) < len(off):
        other = next(when for when in off if when not in beyond)
        word, said = "weights", f"both sides agree {other}, but not {beyond[0]}: {first}"
    else:
        word, said = "numbers", f"beyond the limits {' and '.join(beyond)}{_what(first)}: {first}"
    table = {
        f"{when}, {kind}": numbers
        for when, rows in sides.items()
        for kind in KINDS
        if (numbers := figures([row for row in rows if row.kind == kind], limit.bound))
    }
    return Verdict(word, said, first, table, limit, measured.notes)


def _what(first: First | None) -> str:
    """Name what of a video differs: timestamps are digits in its prompt."""
    if first is None or not first.of_video or first.text:
        equal = ", with equal prompts: the frames of a video, or their positions, differ"
        return equal if first and first.of_video else ""
    if "video" in first.trainer + first.engine:
        return " in the number of a video's frames or their size"
    digits = all(re.fullmatch(r"\d+ '[\d.]+'", said) for said in (first.trainer, first.engine))
    return " in the timestamps of a video" if digits else " in the ids around a video"


def _prompt(rows: Sequence[Row]) -> First | None:
    """Return the first token of a prompt that the engine had otherwise."""
    for row in rows:
        place = None if row.asked is None else first_apart(row.prompt, row.asked)
        if place is not None:
            return First(row.place, place + 1, row.apart[0], row.apart[1], "", row.videos > 0)
    return None


def _beyond(rows: Sequence[Row], limit: Limit) -> First | None:
    """Return the first token beyond the limits, if the rows of a kind are."""
    for row in rows:
        if not row.comparable:
            ours, theirs = (f"{len(of)} log-probabilities" for of in (row.trainer, row.engine))
            return First(row.place, min(len(row.trainer), len(row.engine)) + 1, ours, theirs)
    for kind in ([row for row in rows if row.kind == name] for name in KINDS):
        numbers = figures(kind, limit.bound)
        if numbers and not (
            numbers.mean <= limit.mean and numbers.beyond <= limit.share and numbers.ratio < RATIO
        ):
            tokens = [(size, row, i) for row in kind for i, size in enumerate(row.sizes())]
            least = limit.bound if numbers.beyond else min(limit.mean, log(RATIO))
            _, row, i = next(token for token in tokens if token[0] > least)
            ours, theirs = f"{row.trainer[i]:.8g}", f"{row.engine[i]:.8g}"
            return First(row.place, i + 1, ours, theirs, row.texts[i], row.videos > 0)
    return None
