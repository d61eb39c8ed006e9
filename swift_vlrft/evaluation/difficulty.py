"""How hard is a row for a model, and is its gold likely wrong? Several answers per row are scored.

    gold "cat", answers dog dog dog dog dog dog dog cat     pass rate 0.125, suspicion 0.73
    gold "cat", answers dog cow fox cat hen cow fox pig     pass rate 0.125, suspicion 0.02

A row passes as often as an answer earns what ``pass_mark`` asks of its rewards. A wrong gold is
known by answers that are nearer to each other than to it; those to a hard row are far from each
other, too. What is near is what the row's own reward says, with an answer in the gold's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev
from typing import Any

import msgspec

from swift_vlrft.datasets.routing import FULL, tasks_of_row
from swift_vlrft.datasets.row import Row
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.files.completions import further
from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.parsing.answers import gold_text, normalise, read
from swift_vlrft.rewards import REWARDS

POINT_SIDE = 0.1
"""Two points are the same answer within a square around one of them, with sides of this share of
the image's.
"""
RARE = 5
"""A confusion is the model's own, rather than an error of the gold, where it is common among rows
with that gold; as many rows more are assumed without it, since a few show little.
"""


class RowScores(msgspec.Struct):
    """One row; ``number`` counts all rows of the split from 0. ``answer`` is the one that the
    others are nearest to, ``agreement`` their mean score with it in the gold's place.
    """

    number: int
    place: str
    task: str | None
    samples: int
    pass_rate: float
    reward_mean: float
    reward_std: float
    readable: int
    reasons: dict[str, int]
    gold: str
    answer: str | None = None
    agreement: float | None = None
    suspicion: float | None = None
    """-1 to 1; None if no two answers could be read."""
    box_range: tuple[float, float] | None = None
    """What the numbers of boxes run to, in gold and answer."""


def checked_rewards(names: Sequence[str]) -> tuple[str, ...]:
    """ValueError for a name that is no reward, or one that says nothing of right and wrong."""
    for name in names:
        if name not in REWARDS:
            raise EvaluationError(f"--reward {name}: no such reward; known: {', '.join(REWARDS)}")
        if REWARDS[name].task is None or REWARDS[name].scores_format:
            raise EvaluationError(
                f"--reward {name} scores how an answer is written, not whether it is right; name "
                "rewards of the rows' tasks"
            )
    return tuple(dict.fromkeys(names))


def rewards_of(row: Row, named: Sequence[str] = ()) -> list[str]:
    """The rewards that score the row: of those named, as in training; else its task's first."""
    tasks = tasks_of_row(row, named)
    if not named:
        return [FULL[task][0] for task in tasks if task in FULL]
    return [n for n in named if (task := REWARDS[n].task) is not None and task.name in tasks]


def pass_mark(name: str) -> float:
    """The score from which an answer counts as right: an IoU of 0.5 of boxes, else all of it."""
    task = REWARDS[name].task
    if task is None or not task.has_boxes:
        return 1.0
    return 0.75 if name == "vlrft_grounding_giou" else 0.5  # (1 + IoU) / 2 where boxes overlap well


def judge(
    row: Row,
    number: int,
    answers: Sequence[dict[str, Any]],
    names: Sequence[str],
    pass_at: float | None = None,
) -> RowScores | None:
    """The row by its answers, each a line of predictions.jsonl; ``names`` are the rewards that
    score it: it passes where each is at its mark, and its reward is their mean. None if no reward
    reads the gold.
    """
    means, passed, readable = [], 0, 0
    reasons: Counter[str] = Counter()
    for answer in answers:
        columns = {k: v for k, v in further(answer).items() if k != "task"}
        found = [
            (n, explain(n, answer["completion"], answer.get("solution"), **columns)) for n in names
        ]
        scored = [(n, one, one.score) for n, one in found if one.score is not None]
        if not scored:
            return None
        means.append(fmean(score for _, _, score in scored))
        marks = [(score, pass_mark(n) if pass_at is None else pass_at) for n, _, score in scored]
        passed += all(score >= mark - 1e-9 for score, mark in marks)
        readable += all(one.was_read for _, one, _ in scored)
        reasons[scored[0][1].text] += 1
    task = row.columns.get("task") or row.guess
    scores = RowScores(
        number=number,
        place=str(row.place),
        task=task,
        samples=len(means),
        pass_rate=passed / len(means),
        reward_mean=fmean(means),
        reward_std=pstdev(means),
        readable=readable,
        reasons=dict(reasons.most_common()),
        gold=gold_text(answers[0].get("solution")),
        box_range=_box_range(answers[0]) if row.has_boxes else None,
    )
    return _with_agreement(scores, answers, names[0])


def _with_agreement(scores: RowScores, answers: Sequence[dict[str, Any]], name: str) -> RowScores:
    texts = Counter(read(answer["completion"]).text for answer in answers)
    tolerance = answers[0].get("tolerance")
    columns = {} if tolerance is None else {"tolerance": [tolerance]}
    span = max(scores.box_range or (1000.0,))
    best: tuple[float, str] | None = None
    for text in texts:
        gold = None if text is None else _as_gold(name, text, span)
        if gold is None or len(answers) < 2:
            continue

        def near(other: str | None, gold: str = gold) -> float:
            completion = f"<answer>{other}</answer>"
            return (REWARDS[name]([completion], [gold], **columns)[0] or 0.0) if other else 0.0

        # Of the other answers: without the one that stands in the gold's place.
        total = sum(count * near(other) for other, count in texts.items()) - near(text)
        found = total / (len(answers) - 1), str(text)
        best = found if best is None or found[0] > best[0] + 1e-9 else best
    if best is None:
        return scores
    suspicion = best[0] - scores.reward_mean
    return msgspec.structs.replace(scores, agreement=best[0], answer=best[1], suspicion=suspicion)


def _as_gold(name: str, text: str, span: float) -> str | None:
    """An answer as the gold of other answers; None if it cannot be that."""
    task = REWARDS[name].task
    assert task is not None
    if task.has_points:
        points = read(f"<answer>{text}</answer>").points
        if points is None or None in points:
            return None
        half = POINT_SIDE * span / 2
        boxes = [(x - half, y - half, x + half, y + half) for x, y in filter(None, points)]
        return str([list(box) for box in boxes]) if boxes else "No Objects"
    return text if task.read_gold(text) is not None else None


def _box_range(answer: dict[str, Any]) -> tuple[float, float]:
    size = answer.get("seen") or (answer["width"], answer["height"])
    width, height = FORMATS.get(str(answer.get("frame")), FORMATS["norm1000"]).edges(size)
    return float(width), float(height)


def ranked(rows: Iterable[RowScores]) -> list[RowScores]:
    """The rows whose answers can be compared, the likeliest wrong gold first.

    A class that the model often takes for another is its own weakness: the suspicion of a row is
    less by the share of the rows with its gold whose answers are the same.
    """
    known = [row for row in rows if row.suspicion is not None]
    golds = Counter((row.task, normalise(row.gold)) for row in known)
    pairs = Counter((row.task, normalise(row.gold), normalise(row.answer or "")) for row in known)
    found = []
    for row in known:
        suspicion, key = row.suspicion or 0.0, (row.task, normalise(row.gold))
        if suspicion > 0:
            common = pairs[(*key, normalise(row.answer or ""))] - 1
            suspicion *= 1 - common / (golds[key] - 1 + RARE)
        found.append(msgspec.structs.replace(row, suspicion=suspicion))
    return sorted(found, key=lambda row: (-(row.suspicion or 0.0), row.reward_mean, row.number))
