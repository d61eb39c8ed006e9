"""Judge from facts alone what is wrong with a run, and whether a model became better.

    judge(Facts("vlrft_detection_iou", "the last 256 answers", empty=(0.94, 0.09)))
    Finding(code="collapse", text="the model has stopped detecting: 94% of the last 256 ...")

The training log, ``vlrft score``, ``vlrft compare`` and the report say it before anything else.
``Health`` makes the facts of answers, the report (run_log.py) those of a log of steps.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import msgspec

from swift_vlrft.diagnostics.readings import BoxFormatCheck
from swift_vlrft.diagnostics.reasons import UNREAD, Reason, advice
from swift_vlrft.parsing.answers import BoxList, gold_text, read, with_prefix
from swift_vlrft.parsing.turns import earlier_turns
from swift_vlrft.rewards import REWARDS

WINDOW = 256
"""The latest completions of a run, which are judged: at 8 a prompt 32 prompts, nine in ten of which
are alike by chance once in thousands of steps, and few enough to see a collapse while it happens.
"""
LEAST_SAMPLED, LEAST = 64, 16  # of sampled completions, or of rows of other questions
LEAST_GROUPS, LEAST_OF_GROUP = 4, 4  # two or three scores are often equal by chance
MOST = 0.9  # a share as good as all
LEAN = 0.5  # more empty answers than golds: a weak model leaves out some, by habit it is a half
EXCESS = 0.3  # of the commonest answer over the commonest gold, which may be most golds'
LEARNED = 0.9  # a mean score from which on groups without variance are no problem
HALF = 0.5
RISEN = 0.05  # a score, or a share, that rose by less did not rise

WARM_START = (
    "Warm-start it: `vlrft try SET` leaves a tiny model that knows the format in "
    "runs/try/SET/start; another model learns it by SFT on the golds in this format."
)
BEGIN_AGAIN = (
    "Begin again from an earlier checkpoint, or from a longer warm start, with a lower "
    "--learning_rate or a --beta above 0."
)
SOFT = (
    " vlrft_detection_iou pays nothing for a box under IoU 0.5, and in full for an empty answer "
    "where there is no object; vlrft_detection_iou_soft pays for every overlap."
)
SHOW = "`vlrft score COMPLETIONS --show 5` says why."
KEEP = "(a pass rate from 0.1 to 0.9: docs/reference/evaluation.md)."
DOING = {"detection": "detecting", "grounding": "locating", "pointing": "pointing"}
EXPLAINED_BY_READING = ("flat_0", "unreadable", "zero_variance")
"""What follows where boxes are in another format: then that is the finding."""

Pair = tuple[float, float]
T = TypeVar("T")


class Finding(msgspec.Struct, frozen=True):
    """Says what is wrong, and what to do; ``subject`` is its task or reward."""

    code: str
    subject: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}. {self.advice}".strip()


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds what is known of a reward's completions; pairs are of the beginning and of the end.

    ``of`` names the completions that the shares are of. ``empty``: the shares of empty answers and
    of empty golds. ``commonest``: an answer, its share, and the share of the commonest gold.
    ``flat``: 0 if every score of the end is 0, 1 if every score was 1 from the beginning.
    ``zero_variance``: the share of the groups whose completions all earn the same; ``alike``: most
    of those say the same, too. ``codes``: why points are lost.
    """

    reward: str
    of: str
    empty: Pair | None = None
    commonest: tuple[str, float, float] | None = None
    read: Pair | None = None
    never_written: bool = False
    score: Pair | None = None
    flat: float | None = None
    zero_variance: float | None = None
    alike: bool = False
    codes: Mapping[str, int] | None = None

    @property
    def of_format(self) -> bool:
        return self.reward in REWARDS and REWARDS[self.reward].scores_format


def judge(facts: Facts) -> Finding | None:
    """Return the worst problem that the facts show; what follows from it is not said as well."""
    return next(_problems(facts), None)


def _problems(facts: Facts) -> Iterator[Finding]:
    reward, task, of = facts.reward, task_named(facts.reward), facts.of
    if facts.of_format:
        if facts.flat == 0:
            text = f"{reward} is 0 for {of}: the model never writes the format that it asks for"
            yield Finding("no_format", reward, text, f"Leave the reward out, or: {WARM_START}")
        return
    begin_again = BEGIN_AGAIN + (SOFT if task == "detection" else "")
    said, gold = facts.empty or (0.0, 0.0)
    if said - gold >= (EXCESS if said >= MOST else LEAN):
        text = f"{said:.0%} of {of} are empty, but only {gold:.0%} of their golds"
        text = f"the model has stopped {DOING.get(task, 'answering')}: {text}"
        yield Finding("collapse", task, text, begin_again)
    answer, share, gold = facts.commonest or ("", 0.0, 0.0)
    if share >= MOST and share - gold >= EXCESS:
        text = f"{share:.0%} of {of} are {answer[:60]!r}, while the commonest gold has {gold:.0%}"
        text = f"the model gives one answer to everything: {text}"
        yield Finding("collapse", task, text, begin_again)
    if facts.never_written:
        text = f"this model has never written the format: {of} hold no answer block"
        yield Finding("never_written", task, text, WARM_START)
    first, last = facts.read or (1.0, 1.0)
    if last < HALF and last < first + RISEN:
        text = f"{f'only {last:.0%}' if last else 'none'} of {of} can be read"
        yield Finding("unreadable", task, text, _why(facts, UNREAD))
    if facts.flat == 1:
        text = f"{reward} was 1 from the beginning, so nothing is learned from it"
        yield Finding("flat_1", reward, text, f"Take harder rows {KEEP}")
    if facts.flat == 0:
        text = f"{reward} is 0 for {of}, so nothing is learned from it"
        yield Finding("flat_0", reward, text, _why(facts))
    score = facts.score[1] if facts.score else 0.0
    if facts.zero_variance is not None and facts.zero_variance >= MOST and score < LEARNED:
        text = f"{reward}: {facts.zero_variance:.0%} of the groups in {of} have zero variance"
        text += ": their completions are alike" if facts.alike else ", so they teach nothing"
        keep = f"Each prompt is too easy or too hard: keep the prompts in between {KEEP}"
        yield Finding("zero_variance", reward, text, BEGIN_AGAIN if facts.alike else keep)


def _why(facts: Facts, of: Iterable[str] | None = None) -> str:
    """What to do about the commonest reason, of those alone."""
    codes = Counter({c: n for c, n in (facts.codes or {}).items() if of is None or c in of})
    return f"{advice(codes)} {SHOW}" if codes else SHOW


def task_named(reward: str) -> str:
    task = REWARDS[reward].task if reward in REWARDS else None
    return task.name if task else ""


class Answered(NamedTuple):
    """Holds one completion under one reward: what it says, and what it earned."""

    said: str
    gold: str
    empty: bool
    gold_empty: bool
    reason: Reason
    score: float
    group: Hashable


def group_of(row: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return a key for completions of one prompt and gold (images share questions), if any."""
    prompt = str(row.get("prompt_id") or row.get("prompt") or "")
    if turns := earlier_turns(row.get("turns")):  # which are logged behind the prompt
        prompt = prompt.partition(turns[0]["text"])[0]
    return (prompt, str(row.get("step", "")), gold_text(row.get("solution"))) if prompt else None


class Health:
    """Collects the facts of one reward's answers, in order. ``sampled``: a run's answers, several
    to a prompt, of which the latest are judged; else each row is another question.
    """

    def __init__(self, reward: str, *, sampled: bool) -> None:
        self.reward, self.sampled = reward, sampled
        self.task = REWARDS[reward].task if reward in REWARDS else None
        self.rows: deque[Answered] = deque(maxlen=WINDOW if sampled else None)
        self.first: list[Answered] = []
        self.boxes = BoxFormatCheck()
        self.seen = 0
        self.always_1 = True
        self.ever_read = self.ever_written = False

    def add(self, row: Mapping[str, Any], reason: Reason, group: Hashable = None) -> None:
        """Add a row, unless the reward does not score it. ``group``: None if not known."""
        if reason.score is None:
            return
        answer = read(with_prefix(row.get("completion"), row.get("response_prefix")))
        task, solution = self.task, row.get("solution")
        gold = task.read_gold(solution) if task else None
        said = answer.label
        listed: Sized | None = answer.items if task and task.has_items else None
        if task and task.gold_has_boxes:
            if (boxes := answer.placed(points=task.has_points)) is not None:
                labels, listed = [label for label in boxes.labels if label is not None], boxes
                if None not in boxes.boxes:  # an invalid one is compared as it is written
                    said = ", ".join(map(str, [*boxes.boxes, *labels]))
            if gold is not None:
                self.boxes.add_row(task, gold, answer, row)
        empty = listed is not None and not len(listed)
        gold_empty = isinstance(gold, (BoxList, list)) and not len(gold)
        earned = reason, reason.score, group
        answered = Answered(said, gold_text(solution), empty, gold_empty, *earned)
        self.seen += 1
        if len(self.first) < LEAST_SAMPLED:
            self.first.append(answered)
        self.rows.append(answered)
        self.always_1 &= answered.score == 1.0
        self.ever_read |= reason.was_read
        self.ever_written |= answer.short is not None

    def unread(self, least: float = 0.0) -> list[Finding]:
        """Return what answers say and nobody reads, or do not say, in over a share of boxes."""
        ranked = self.reward in REWARDS and REWARDS[self.reward].reads_confidence
        told = self.boxes.unread(ranked=ranked, least=least).items()
        return [Finding(code, task_named(self.reward), text, "") for code, text in told]

    def finding(self) -> Finding | None:
        return self.explained(judge(self.facts()))

    def explained(self, finding: Finding | None) -> Finding | None:
        """Misplaced boxes are the cause of what follows from them, and a problem without it."""
        if finding is not None and finding.code not in EXPLAINED_BY_READING:
            return finding
        if (cause := self.boxes.problem()) is None:
            return finding
        text = f"{cause}; {finding.text}" if finding else cause
        return Finding("box_format", task_named(self.reward), text, "")

    def facts(self) -> Facts:
        rows, first, count = self.rows, self.first, len(self.rows)
        if not count:
            return Facts(self.reward, "no answers")
        # Before, the first answers are among the latest.
        settled = self.sampled and self.seen >= WINDOW + LEAST_SAMPLED
        told = settled or not self.sampled or (self.seen >= LEAST and not self.ever_read)
        before, after = (fmean(r.reason.was_read for r in of) for of in (first, rows))
        facts = Facts(
            self.reward,
            f"the {'last ' if count < self.seen else ''}{count} answers",
            never_written=self.seen >= LEAST and not self.ever_written,
            read=(before if self.sampled else after, after) if told else None,
            codes=Counter(row.reason.code for row in rows),
        )
        if count < (LEAST_SAMPLED if self.sampled else LEAST):
            return facts
        said, most = _commonest([row.said for row in rows if row.reason.was_read], count)
        always_1 = self.sampled and self.always_1
        variance, alike = _groups(rows)
        return replace(
            facts,
            empty=(fmean(row.empty for row in rows), fmean(row.gold_empty for row in rows)),
            commonest=(said, most, _commonest([row.gold for row in rows], count)[1]),
            score=(fmean(row.score for row in first), fmean(row.score for row in rows)),
            flat=1 if always_1 else None if any(row.score for row in rows) else 0,
            zero_variance=variance,
            alike=alike,
        )


def distinct(findings: Iterable[Finding | None]) -> list[Finding]:
    """Return each finding once, though several rewards of a task have it."""
    problems = [finding for finding in findings if finding is not None]
    return list({(p.code, p.subject): p for p in reversed(problems)}.values())[::-1]


def by_group(values: Iterable[tuple[Hashable, T]]) -> list[list[T]]:
    """Return the values of each group that is known (not None)."""
    groups: dict[Hashable, list[T]] = {}
    for group, value in values:
        if group is not None:
            groups.setdefault(group, []).append(value)
    return list(groups.values())


def has_no_variance(scores: Sequence[float]) -> bool:
    """Return whether GRPO's advantages are zero."""
    return math.isclose(min(scores), max(scores), abs_tol=1e-6)


def _commonest(texts: Sequence[str], of: int) -> tuple[str, float]:
    text, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    return text, count / of


def _groups(rows: Iterable[Answered]) -> tuple[float | None, bool]:
    """The share of groups without variance, and whether those of most of them are one text."""
    groups = by_group((row.group, row) for row in rows)
    whole = [group for group in groups if len(group) >= LEAST_OF_GROUP]
    if len(whole) < LEAST_GROUPS:
        return None, False
    equal = [group for group in whole if has_no_variance([row.score for row in group])]
    alike = sum(len({row.said for row in group}) == 1 for group in equal)
    return len(equal) / len(whole), alike > HALF * len(equal)
