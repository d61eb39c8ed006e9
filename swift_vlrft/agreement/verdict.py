"""Agrees, drifts or broken, with the likely cause where the evidence names one.

broken   prompts differ; 1 % of the tokens have an importance ratio beyond 2, where ms-swift's
         correction clips by default; or moved weights did not arrive
drifts   the mean difference is more than ``LIMIT`` times the noise, or the types differ
agrees   neither
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import msgspec

from swift_vlrft.agreement.figures import Figures, Row, of_rows
from swift_vlrft.agreement.measurement import Measurement, Moved
from swift_vlrft.agreement.remedies import REMEDIES

LIMIT = 6.0
"""Two implementations of a layer round at more places than one does: healthy runs of all tiny
models stay below 4 times the noise."""
CLIPPED = 0.01
WORDS = ("agrees", "drifts", "broken")


class Cause(msgspec.Struct):
    name: str
    evidence: str
    remedy: str


class Verdict(msgspec.Struct):
    word: str
    causes: list[Cause]
    notes: list[str]
    figures: dict[str, Figures]
    """By what was compared, as in the table."""

    @property
    def exit_code(self) -> int:
        return WORDS.index(self.word)


class _Found(NamedTuple):
    word: str
    name: str
    evidence: str


def judge(measured: Measurement) -> Verdict:
    found = [*_prompts(measured), *_facts(measured)]
    if not any(one.word == "broken" for one in found):
        found += _numbers(measured, bool(found))
    found += _weights(measured)
    word = max((one.word for one in found), key=WORDS.index, default="agrees")
    known = {one.name: Cause(one.name, one.evidence, REMEDIES[one.name]) for one in found}
    notes, moved = list(measured.notes), measured.moved
    if not any(row.engine for row in measured.rows):
        notes.append("the engine returns no log-probabilities: only the prompts were compared")
    if moved and measured.adapter and measured.noise and moved.left > LIMIT * measured.noise.mean:
        notes.append(
            "ms-swift merges the adapter into the trainer's weights to send them, and takes it out "
            f"again: rounding leaves the trainer's own answer {moved.left:.2g} away from before"
        )
    return Verdict(word, [*known.values()], notes, _table(measured))


def _table(measured: Measurement) -> dict[str, Figures]:
    sides = {
        "image rows": of_rows([row for row in measured.rows if row.images]),
        "text rows": of_rows([row for row in measured.rows if not row.images]),
        "before the first sync": measured.loaded,
        "noise of the trainer": measured.noise,
    }
    if moved := measured.moved:
        sides[f"weights moved {moved.step:.0%}"] = of_rows(moved.rows)
        sides["old weights, for comparison"] = moved.before
    return {name: found for name, found in sides.items() if found is not None}


def off(found: Figures | None, noise: Figures | None) -> str | None:
    """How far beyond the noise: a word, or None."""
    if found is None or noise is None:
        return None
    if not isfinite(found.mean):
        return "broken"
    if found.beyond_two > max(CLIPPED, LIMIT * noise.beyond_two):
        return "broken"
    return "drifts" if not found.mean <= LIMIT * noise.mean else None


# What can be compared by itself ----------------------------------------


def _prompts(measured: Measurement) -> list[_Found]:
    found = []
    for row in measured.rows:
        if row.asked is not None and row.asked != row.prompt:
            name, evidence = _difference(row, measured)
            found.append(_Found("broken", name, f"{row.place}: {evidence}"))
        elif row.engine and not row.comparable:
            counts = f"{len(row.engine)} log-probabilities for {len(row.trainer)} tokens"
            found.append(_Found("broken", "lengths", f"{row.place}: the engine returned {counts}"))
    return found


def _difference(row: Row, measured: Measurement) -> tuple[str, str]:
    ours, theirs = row.prompt, row.asked or []
    if row.images:
        image = image_token(ours)
        counts = [side.count(image) for side in (ours, theirs)]
        if counts[0] != counts[1] and _around(ours, image) == _around(theirs, image):
            options = measured.facts.get("processor options", ("{}", "{}"))
            name = "processor options" if options[0] != options[1] else "resize limits"
            more = f" (mm_processor_kwargs {options[1]})" if options[0] != options[1] else ""
            counted = f"{counts[0]} image tokens for the trainer, {counts[1]} for the engine"
            return name, counted + more
    if len(theirs) < len(ours) and ours[len(ours) - len(theirs) :] == theirs:
        return "truncation", f"the engine had the last {len(theirs)} of {len(ours)} tokens"
    short, long = sorted((ours, theirs), key=len)
    name = "template prefix" if long[: len(short)] == short else "template"
    return name, row.apart


def image_token(ids: Sequence[int]) -> int:
    """The id that is repeated most often in a row: that of an image's tokens."""
    best, run = (0, -1), 0
    for before, token in zip([None, *ids], ids, strict=False):
        run = run + 1 if token == before else 1
        best = max(best, (run, token))
    return best[1]


def _around(ids: Sequence[int], image: int) -> list[int]:
    """Without all from the first image token to the last."""
    places = [i for i, token in enumerate(ids) if token == image]
    return [*ids[: places[0]], *ids[places[-1] + 1 :]] if places else list(ids)


def _facts(measured: Measurement) -> list[_Found]:
    found = []
    for name in ("dtype", "quantisation"):
        ours, theirs = measured.facts.get(name, ("", ""))
        if ours != theirs:
            found.append(_Found("drifts", name, f"{ours} in the trainer, {theirs} in the engine"))
    return found


# What only numbers show ----------------------------------------


def _numbers(measured: Measurement, named: bool) -> list[_Found]:
    """``named``: a cause is known already, and is not looked for."""
    noise, every = measured.noise, of_rows(measured.rows)
    kinds = [of_rows([row for row in measured.rows if bool(row.images) == has]) for has in (1, 0)]
    words = [off(kind, noise) for kind in kinds]
    word = max(filter(None, words), key=WORDS.index, default=None)
    if word is None or every is None or noise is None:
        return []
    evidence = f"mean difference {every.mean:.2g}, {every.mean / noise.mean:.0f} times the noise"
    if _ties_differ(measured):
        ties = measured.facts["tied embeddings"]
        name, evidence = "tied embeddings", f"{ties[0]} in the trainer, {ties[1]} in the engine"
    elif not isfinite(every.mean):
        name, evidence = "not finite", _not_finite(measured.rows)
    elif named:
        return [_Found(word, "dtype", evidence)] if word == "broken" else []
    elif tried := _explained(measured, every, noise):
        name, evidence = tried
    elif off(measured.loaded, noise) is None and measured.loaded and not measured.adapter:
        name = "loading"
    elif words[0] and not words[1] and kinds[1]:
        name, evidence = "images", f"image rows alone: {evidence}"
    elif words[0] and not kinds[1]:
        name = "images"
    else:
        name = "model"
    return [_Found(word, name, evidence)]


def _not_finite(rows: Sequence[Row]) -> str:
    sides = {
        name: [value for row in rows if row.comparable for value in getattr(row, name)]
        for name in ("engine", "trainer")
    }
    return ", ".join(
        f"{sum(not isfinite(value) for value in values)} of the {name}'s {len(values)} "
        "log-probabilities are not finite"
        for name, values in sides.items()
        if not all(map(isfinite, values))
    )


def _ties_differ(measured: Measurement) -> bool:
    return len(set(measured.facts.get("tied embeddings", ()))) > 1


def _explained(measured: Measurement, every: Figures, noise: Figures) -> tuple[str, str] | None:
    causes = {"no sampling filters": "sampling filters", "sequential positions": "positions"}
    for tried, name in causes.items():
        mean = measured.tried.get(tried, float("inf"))
        if mean <= max(LIMIT * noise.mean, every.mean / 10) and mean < every.mean / 2:
            return name, f"mean difference {every.mean:.2g}; with {tried} {mean:.2g}"
    return None


def _weights(measured: Measurement) -> list[_Found]:
    moved = measured.moved
    if moved is None:
        return []
    now = off(of_rows(moved.rows), moved.noise)
    scale = moved.lora_scale
    if moved.altered:
        evidence = f"{', '.join(moved.altered)} of the trainer changed when they were sent"
        return [_Found("broken", "altered weights", evidence)]
    if moved.unplaced:
        evidence = _listed(moved.unplaced, "have adapters that the engine does not add")
        return [_Found("broken", "adapters left out", evidence)]
    if moved.stale:
        return [_Found("broken", *_stale(moved, measured))]
    if scale is not None and not 0.8 <= scale <= 1.25:
        evidence = f"{scale:.2g} times what the adapters add arrived"
        return [_Found("broken", "LoRA scale", evidence)]
    was = off(of_rows(measured.rows), measured.noise)
    if now is None or was is not None:
        return []  # nothing, or what the first comparison has said already
    figures = of_rows(moved.rows)
    if figures and not isfinite(figures.mean):
        evidence = f"after the weights moved by {moved.step:.0%}, {_not_finite(moved.rows)}"
        return [_Found("broken", "not finite", evidence)]
    evidence = f"after the weights moved, mean difference {figures.mean:.2g}" if figures else ""
    limit = LIMIT * moved.noise.mean if moved.noise else 0.0
    if parts := [part for part, mean in moved.parts.items() if mean > limit]:
        evidence += f"; moved alone, so do {', '.join(parts)}"
    if _ties_differ(measured):
        return [_Found("broken", "tied embeddings", evidence)]
    if moved.before and off(moved.before, moved.noise) is None:
        evidence = "the engine answers with the weights of before the step"
    return [_Found("broken", "LoRA merge" if measured.adapter else "missing sync", evidence)]


def _stale(moved: Moved, measured: Measurement) -> tuple[str, str]:
    evidence = _listed(moved.stale, "did not change in the engine")
    if [*moved.stale] == ["language output layer"] and _ties_differ(measured):
        return "tied embeddings", evidence
    return ("LoRA merge" if measured.adapter else "missing sync"), evidence


def _listed(parts: Mapping[str, list[str]], what: str) -> str:
    names = [name for part in parts.values() for name in part]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(parts)} {what} ({', '.join(names[:3])}{more})"
