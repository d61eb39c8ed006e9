"""A report counts a set's rows by task, lists their problems, and says whether the rewards that a
command names score any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from swift_vlrft.datasets.declared import DeclaredBoxes
from swift_vlrft.datasets.routing import named_tasks, tasks_of_row
from swift_vlrft.datasets.row import STOPS, BadRow, Kind, Row
from swift_vlrft.datasets.source import DataError, Source
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES

MAX_SHOWN = 5
NO_TASK = "without a task"


@dataclass
class Report:
    """The report on a set lists ``problems`` in the order of the rows."""

    path: Path
    rows: int = 0
    problems: list[BadRow] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    box_formats: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    """The count of what correctly makes no row, where it was asked; the notes say why."""
    scored: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards score them; a row without a task may be in several."""
    boxes: DeclaredBoxes = field(default_factory=DeclaredBoxes)
    """Boxes of all rows as they are stored: can they be in the format that rows declare?"""
    shared: Counter[str] = field(default_factory=Counter)
    """Rows without a task that several of the named rewards read, by their tasks."""
    unread: str = ""
    """Rows that no named reward reads, where the set has no others without a task."""
    other_tasks: Counter[str] = field(default_factory=Counter)
    """Rows that were passed over, of tasks that were not asked for."""
    fits: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards their gold would earn 1.0 under, where it was asked."""

    def __add__(self, other: Report) -> Report:
        """Return the report on both, under this report's path."""
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)[1:]}
        return Report(self.path, **both)

    def add_good(self, row: Row, rewards: Sequence[str] = ()) -> None:
        self.tasks[row.columns.get("task") or NO_TASK] += 1
        self.box_formats[row.columns.get("frame") or "none"] += 1
        tasks = tasks_of_row(row, rewards)
        self.scored.update(tasks)
        if len(tasks) > 1:
            self.shared[" and ".join(tasks)] += 1

    def leave_unread(self) -> None:
        """Turn rows that no named reward reads into a note, where no other row is scored: the
        rewards may be for the other sets of the command.
        """
        unread = [problem for problem in self.problems if problem.kind is Kind.NOT_READ]
        if unread and not self.scored:
            self.problems = [p for p in self.problems if p.kind is not Kind.NOT_READ]
            self.tasks[NO_TASK] += len(unread)
            self.unread = f"{len(unread)} rows without a task, such as {unread[0]}"

    def finish(self, *, strict: bool = False, hint: str = "", tasks: Sequence[str] = ()) -> None:
        """Finish the report when all rows were read. DataError, which ``hint`` ends, where no row
        is left, where a gold solution cannot be read, and, if ``strict``, where any row is bad;
        where no row is of the ``tasks`` asked for, it names the tasks that are there.
        """
        self.leave_unread()
        if problem := self.no_row_of(tasks):
            raise DataError(problem)
        if not self.rows and not self.problems:
            raise DataError("\n".join([f"{self.path} has no rows", *self.notes]))
        bad = len(self.problems) > self.too_long
        if (bad and strict) or self.unreadable or not self.good:
            raise DataError(f"{self.bad_rows}:\n{self.listed()}{hint}")

    def no_row_of(self, tasks: Sequence[str]) -> str | None:
        """Say that rows of ``tasks`` were asked for, and all are of others; None if not."""
        if not tasks or not self.other_tasks or self.rows or self.problems:
            return None
        text = f"{self.path}:{'/'.join(tasks)}: no row has the task {' or '.join(tasks)}; "
        if self.other_tasks[NO_TASK]:
            text += "state it in a column task; "
        return f"{text}there are {self.passed_over()}"

    def passed_over(self) -> str:
        """Describe the rows that were not asked for, for a message."""
        return ", ".join(f"{count} {task}" for task, count in self.other_tasks.most_common())

    def rows_by_task(self) -> str:
        """Describe the rows by task, for a message."""
        parts = [
            f"{count} {task}" if self.rows else task  # of a hub's set nobody knows how many
            for task, count in self.tasks.most_common()
            if task != NO_TASK
        ]
        if last := self.unread or (f"{n} {NO_TASK}" if (n := self.tasks[NO_TASK]) else ""):
            parts.append(last)
        return "; ".join(parts) or "no row"

    def fitting_rewards(self) -> dict[str, list[int]]:
        """Return the rewards under which gold answers earn 1.0: for how many rows, of how many that
        they would score.
        """
        return {
            name: [rows, max(rows, self.tasks[task] + self.tasks[NO_TASK])]
            for task, names in PAYING.items()
            for name in names
            if (rows := self.fits[task])
        }

    def routing_notes(self, rewards: Sequence[str]) -> list[str]:
        """Note the rows that no named reward scores, or that several score."""
        if self.unscored(rewards):
            return [f"{self.path}: no named reward scores its rows: {self.rows_by_task()}"]
        return self.unscored_notes(rewards) + self.shared_notes()

    def unscored_notes(self, rewards: Sequence[str]) -> list[str]:
        """Note the rows that state tasks of which no reward is named, where others are scored."""
        named = named_tasks(rewards)
        others = {t: n for t, n in self.tasks.items() if t in TASK_NAMES and t not in named}
        if not named or not others or self.unscored(rewards):
            return []
        counts = ", ".join(f"{count} {task}" for task, count in others.items())
        tasks = "/".join(task for task in self.tasks if task in named)
        return [
            f"{self.path}: {sum(others.values())} of {self.good} rows state a task that no named "
            f"reward of this package scores: {counts}. Name "
            + ", ".join(PAYING[t][0] for t in others)
            + (f", or train on {self.path}:{tasks} alone" if tasks else "")
        ]

    def unscored(self, rewards: Sequence[str]) -> bool:
        """Tell whether rewards of some task are named, and none of them scores a row."""
        named = named_tasks(rewards)
        return bool(named) and not any(self.scored[task] for task in named)

    def shared_notes(self) -> list[str]:
        """Note the rows that rewards of several tasks score."""
        return [
            f"{self.path}: {count} rows state no task, and rewards of {tasks} read their gold: all "
            "of them score these rows. State the task in a column task"
            for tasks, count in self.shared.items()
        ]

    @property
    def good(self) -> int:
        return self.rows - sum(problem.place.row is not None for problem in self.problems)

    @property
    def too_long(self) -> int:
        return sum(problem.kind is Kind.TOO_LONG for problem in self.problems)

    @property
    def unreadable(self) -> int:
        """Count the problems that stop a training: a gold solution or a file cannot be read."""
        return sum(problem.kind in STOPS for problem in self.problems)

    @property
    def bad_rows(self) -> str:
        """Say how many rows cannot be trained on, for the start of a message."""
        if any(problem.kind is Kind.SET for problem in self.problems):
            return f"{self.path} cannot be trained on as it is declared"
        if files := sum(problem.kind is Kind.FILE for problem in self.problems):
            return f"{self.path}: {files} of its files cannot be read"
        return f"{len(self.problems)} of {self.rows} rows of {self.path} cannot be trained on"

    def listed(self, most: int = MAX_SHOWN) -> str:
        """List the first problems, a line each, those of the set as a whole before all others."""
        ordered = sorted(self.problems, key=lambda problem: problem.kind is not Kind.SET)
        lines = [f"  {problem}" for problem in ordered[:most]]
        more = len(self.problems) - most
        return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


def report_of_source(source: Source) -> Report:
    """Report on a hub's set before it is downloaded: its task, but not its number of rows."""
    return Report(
        Path(source.hub_id), tasks=Counter({source.task: 1}), scored=Counter({source.task: 1})
    )


def nothing_scored(rewards: Sequence[str], reports: Sequence[Report | None]) -> str | None:
    """Say that a named reward scores no row of any data set; None if each scores some, and where a
    set is not known (its report is None).
    """
    known = [report for report in reports if report is not None]
    scored: Counter[str] = sum((report.scored for report in known), Counter())
    tasks = {task: names for task, names in named_tasks(rewards).items() if not scored[task]}
    if len(known) < len(reports) or not known or not tasks:
        return None
    names = [name for of_task in tasks.values() for name in of_task]
    sets = "\n".join(f"  {report.path}: {report.rows_by_task()}" for report in known)
    fitting = [n for n, reward in REWARDS.items() if reward.task and reward.task.name in scored]
    others = f" Rewards of the tasks that are there: {', '.join(fitting)}." if fitting else ""
    holds = " or ".join(TASK_NAMES[task].holds for task in tasks)
    return (
        f"--reward_funcs {' '.join(names)}: no row of any data set is scored by "
        f"{'these' if len(names) > 1 else 'it'}, so nothing would be learned. Scored are rows of "
        f"the task {' or '.join(tasks)}, and rows without a task whose solution is {holds}:\n"
        f"{sets}\n"
        f"Leave it out, name a reward of these rows, or correct their column task.{others} "
        "`vlrft data check PATH` says which rewards fit a set."
    )
