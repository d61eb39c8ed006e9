"""The pass rates of a whole set: what `vlrft data difficulty` prints and writes to summary.json.

scored = score_set(SampledSet(settings), Path("runs/difficulty/m-s"), names=(), pass_at=None)
difficulty_of(scored, settings, problems, notes).histogram      [Bin(low=0, high=0, rows=9), ...]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean

import msgspec

from swift_vlrft.datasets.row import BadRow
from swift_vlrft.evaluation.difficulty import RowScores, judge, pass_mark, ranked, rewards_of
from swift_vlrft.evaluation.predictions import EvaluationError, Problems
from swift_vlrft.evaluation.queries import Settings
from swift_vlrft.evaluation.sampled import SampledSet
from swift_vlrft.files.completions import read_completions


class Bin(msgspec.Struct):
    """The rows with a pass rate from ``low`` up to ``high``; equal: with just that one."""

    low: float
    high: float
    rows: int


class Listed(msgspec.Struct):
    count: int
    first: list[RowScores] = []


class Difficulty(msgspec.Struct):
    """What ``vlrft data difficulty`` found; ``flags`` keep the set from teaching this model."""

    model: str
    dataset: str
    split: str
    rows: int
    scored: int
    samples: int
    temperature: float
    rewards: dict[str, float]
    """Those that scored a row, with the score from which an answer passes."""
    pass_rate: float
    reward_mean: float
    readable: float
    zero_variance: int
    histogram: list[Bin]
    always_right: Listed
    never_right: Listed
    """The likeliest wrong gold first."""
    suspects: list[RowScores]
    """The first of the ranking, whatever their pass rate."""
    flags: list[str] = []
    notes: list[str] = []
    problems: dict[str, int] = {}
    folder: str = ""
    written: int = 0
    """Rows of the set in ``folder``."""


FIRST = 20
LIKELY = 0.5
"""The suspicion from which a row is shown though some answers are right."""


def histogram(rates: Sequence[float], samples: int) -> list[Bin]:
    """A bin for each pass rate that there can be; of more than 10 samples, tenths, and 0 and 1 by
    themselves.
    """
    if samples <= 10:
        counts = Counter(round(rate * samples) for rate in rates)
        return [Bin(n / samples, n / samples, counts[n]) for n in range(samples + 1)]
    right, wrong = sum(rate == 1 for rate in rates), sum(rate == 0 for rate in rates)
    tenths = Counter(min(9, int(rate * 10 + 1e-9)) for rate in rates if 0 < rate < 1)
    middle = [Bin(n / 10, (n + 1) / 10, tenths[n]) for n in range(10)]
    return [Bin(0, 0, wrong), *middle, Bin(1, 1, right)]


def unreadable(model: str, answers: int, reason: str, example: str, cut: int) -> str:
    """What to say of a model none of whose answers can be read."""
    shown = " ".join(example.split())[:120]
    length = f"{cut} were cut off at --max-tokens: raise it first. " if cut > answers / 2 else ""
    return (
        f"{model} cannot answer in the form that rewards read: of {answers} answers none could be "
        f"read ({reason}), as {shown!r}. Every reward would be 0, and GRPO learn nothing. "
        f"{length}Have the prompts ask for <think> ... </think><answer> ... </answer> (`vlrft data "
        "show SET` shows them), or begin with supervised fine-tuning on a few hundred answers in "
        "that form (`swift sft`)"
    )


@dataclass
class ScoredSet:
    """What a pass over the rows found."""

    rows: list[RowScores] = field(default_factory=list)
    """The likeliest wrong gold first; last those of which that cannot be said."""
    rewards: dict[str, float] = field(default_factory=dict)
    total: int = 0
    without_reward: list[str] = field(default_factory=list)
    cut: int = 0
    example: str = ""
    """The first answer."""


def score_set(
    queries: SampledSet, out: Path, names: Sequence[str], pass_at: float | None
) -> ScoredSet:
    """Every row with its answers, which stand in the order of the rows."""
    found, notes = ScoredSet(), list[str]()
    lines = read_completions(out / "predictions.jsonl", notes)
    groups = ((n, [one.row for one in of]) for n, of in groupby(lines, lambda one: one.row["row"]))
    number, answers = next(groups, (-1, []))
    for index, row in enumerate(queries.rows()):
        found.total += 1
        if index != number or isinstance(row, BadRow):
            continue
        rewards = rewards_of(row, names)
        scores = judge(row, index, answers, rewards, pass_at) if rewards else None
        if scores is None:
            found.without_reward.append(str(row.place))
        else:
            found.rows.append(scores)
            marks = ((name, pass_mark(name) if pass_at is None else pass_at) for name in rewards)
            found.rewards |= dict(marks)
            found.cut += sum(answer.get("finish") == "length" for answer in answers)
            texts = [answer["completion"] for answer in answers]
            found.example = found.example or max(texts, key=len)
        number, answers = next(groups, (-1, []))
    unknown = [row for row in found.rows if row.suspicion is None]
    found.rows = [*ranked(found.rows), *unknown]
    return found


def difficulty_of(
    scored: ScoredSet, settings: Settings, problems: Problems, notes: list[str]
) -> Difficulty:
    """EvaluationError where nothing was scored, or no answer could be read."""
    rows = scored.rows
    if not rows:
        raise EvaluationError(f"no row of {settings.dataset} was scored: {problems}")
    answers = sum(row.samples for row in rows)
    readable = sum(row.readable for row in rows)
    if not readable:
        reasons = sum((Counter(row.reasons) for row in rows), Counter[str]())
        why = reasons.most_common(1)[0][0]
        text = unreadable(settings.model, answers, why, scored.example, scored.cut)
        raise EvaluationError(text)
    rates = [row.pass_rate for row in rows]
    right = sorted((row for row in rows if row.pass_rate == 1), key=lambda row: row.number)
    wrong = [row for row in rows if row.pass_rate == 0]
    equal = sum(row.reward_std < 1e-9 for row in rows)
    found = Difficulty(
        model=settings.model,
        dataset=str(settings.dataset),
        split=settings.split or "train",
        rows=scored.total,
        scored=len(rows),
        samples=settings.samples,
        temperature=settings.temperature,
        rewards=scored.rewards,
        pass_rate=fmean(rates),
        reward_mean=fmean(row.reward_mean for row in rows),
        readable=readable / answers,
        zero_variance=equal,
        histogram=histogram(rates, settings.samples),
        always_right=Listed(len(right), right[:FIRST]),
        never_right=Listed(len(wrong), wrong[:FIRST]),
        suspects=[row for row in rows[:FIRST] if (row.suspicion or 0) > 0],
        notes=notes,
        problems=dict(problems.counts),
    )
    if min(rates) == 1:
        found.flags.append(
            f"every answer to every row is right: {settings.model} learns nothing from this set. "
            "Take harder rows, or a reward that asks for more (--reward, --pass-at)"
        )
    elif max(rates) == 0:
        found.flags.append(
            "no answer to any row is right: begin with supervised fine-tuning or easier rows, and "
            "see with `vlrft data show` whether prompt and gold fit together"
        )
    if found.readable < 0.5:
        found.flags.append(
            f"only {found.readable:.0%} of {answers} answers can be read: pass rates say more of "
            "the form of the answers than of the rows"
        )
    if scored.cut > 0.1 * answers:
        found.notes.append(
            f"{scored.cut} of {answers} answers were cut off at {settings.max_tokens} tokens "
            "(--max-tokens)"
        )
    if settings.samples == 1:
        found.notes.append(
            "with one answer per row, a pass rate is 0 or 1, and rows cannot be ranked by how far "
            "answers agree: --samples 8 can"
        )
    if scored.without_reward:
        named = ", ".join(scored.without_reward[:3])
        found.notes.append(
            f"{len(scored.without_reward)} rows are scored by no reward that is named: {named}"
        )
    return found
