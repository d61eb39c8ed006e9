"""What was found in a set: its rows by task, what is wrong with which, and whether the rewards that
a command names score any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swift_vlrft.datasets.routing import named_tasks, tasks_of_row, unscored
from swift_vlrft.datasets.row import Row, RowLocation
from swift_vlrft.datasets.row_check import NotRead, UnreadableGold
from swift_vlrft.datasets.source import Source
from swift_vlrft.rewards import REWARDS, TASK_NAMES

MAX_SHOWN = 5
NO_TASK = "without a task"


@dataclass
class Report:
    """What was found in a set; ``problems`` in the order of the rows."""

    path: Path
    rows: int = 0
    problems: list[tuple[RowLocation, str]] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    too_long: int = 0
    notes: list[str] = field(default_factory=list)
    scored: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards score them; a row without a task may be of several."""
    shared: Counter[str] = field(default_factory=Counter)
    """Rows without a task that several of the named rewards read, by their tasks."""
    unread: str = ""
    """Which rows no named reward reads, where those are all that the set has without a task."""
    fits: Counter[str] = field(default_factory=Counter)
    """Good rows by the tasks whose rewards their gold would earn 1.0 under, where it was asked."""

    def add_good(self, row: Row, rewards: Sequence[str] = ()) -> None:
        task = row.columns.get("task")
        self.tasks[task or NO_TASK] += 1
        self.frames[row.columns.get("frame") or "none"] += 1
        tasks = tasks_of_row(row, rewards)
        self.scored.update(tasks)
        if len(tasks) > 1:
            self.shared[" and ".join(tasks)] += 1

    def leave_unread(self) -> None:
        """Where no row of the set is scored by a named reward, since none reads its gold, that is
        for a note: the rewards may be for the other sets of the command.
        """
        unread = [found for found in self.problems if isinstance(found[1], NotRead)]
        if unread and not self.scored:
            self.problems = [found for found in self.problems if not isinstance(found[1], NotRead)]
            self.tasks[NO_TASK] += len(unread)
            place, text = unread[0]
            self.unread = f"{len(unread)} rows without a task, as of {place}: {text}"

    def rows_by_task(self) -> str:
        """What its rows are, for a message."""
        stated = [
            f"{count} {task}" if self.rows else task  # of a hub's set nobody knows how many
            for task, count in self.tasks.most_common()
            if task != NO_TASK
        ]
        rest = [] if self.unread else [f"{n} {NO_TASK}" for n in [self.tasks[NO_TASK]] if n]
        return "; ".join([*stated, *rest, *([self.unread] if self.unread else [])]) or "no row"

    def routing_notes(self, rewards: Sequence[str]) -> list[str]:
        """What to say of rows that no named reward scores, or several do."""
        named = named_tasks(rewards)
        if named and not any(self.scored[task] for task in named):
            return [f"{self.path}: no reward that is named scores its rows: {self.rows_by_task()}"]
        return self.shared_notes()

    def shared_notes(self) -> list[str]:
        """What to say of rows that rewards of several tasks score."""
        return [
            f"{self.path}: {count} rows state no task, and rewards of {tasks} read their gold: all "
            "of them score these rows. A column task says which is meant"
            for tasks, count in self.shared.items()
        ]

    @property
    def good(self) -> int:
        return self.rows - sum(place.row is not None for place, _ in self.problems)

    @property
    def unreadable(self) -> int:
        """Rows whose gold solution cannot be read."""
        return sum(isinstance(problem, UnreadableGold) for _, problem in self.problems)

    @property
    def bad_rows(self) -> str:
        """How many rows cannot be trained on, to begin a message with."""
        if not self.rows:
            return f"{self.path} cannot be read"
        return f"{len(self.problems)} of {self.rows} rows of {self.path} cannot be trained on"

    def listed(self, most: int = MAX_SHOWN) -> str:
        """The first problems, a line each."""
        lines = [
            f"  {text if str(place) in text else f'{place}: {text}'}"
            for place, text in self.problems[:most]
        ]
        more = len(self.problems) - most
        return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


def report_of_source(source: Source) -> Report:
    """What is known of a set of a hub before it is downloaded: its task, not how many rows."""
    return Report(
        Path(source.hub_id), tasks=Counter({source.task: 1}), scored=Counter({source.task: 1})
    )


def nothing_scored(rewards: Sequence[str], reports: Sequence[Report | None]) -> str | None:
    """What to say where a named reward scores no row of any data set; None where each scores some,
    and where a set is not known (its report is None).
    """
    known = [report for report in reports if report is not None]
    scored: Counter[str] = sum((report.scored for report in known), Counter())
    if len(known) < len(reports) or not known or not (names := unscored(rewards, scored)):
        return None
    tasks = named_tasks(names)
    sets = "\n".join(f"  {report.path}: {report.rows_by_task()}" for report in known)
    fitting = [n for n, reward in REWARDS.items() if reward.task and reward.task.name in scored]
    others = f" Rewards of the tasks that are there: {', '.join(fitting)}." if fitting else ""
    holds = " or ".join(TASK_NAMES[task].holds for task in tasks)
    return (
        f"--reward_funcs {' '.join(names)}: no row of any data set is scored by "
        f"{'these' if len(names) > 1 else 'it'}, so nothing would be learned. Scored are rows of "
        f"the task {' or '.join(tasks)}, and rows without a task whose solution is {holds}:\n"
        f"{sets}\n"
        f"Leave it out, name a reward of these rows, or put their column task right.{others} "
        "`vlrft data check PATH` says which rewards fit a set."
    )
