"""Judge the rows of a data set for a run, by the rules of training, and say what was found.

first_images(run, stored, asked)    the report by which training judges the rows, too
nothing_scored(rewards, reports)    "no row of any data set is scored by vlrft_counting, ..."
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from swift_vlrft.datasets import DataError, Source
from swift_vlrft.datasets import box_format as formats
from swift_vlrft.datasets.check import Report, check_set
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.syntax import DatasetName
from swift_vlrft.datasets.validate import RowRules, length_check, named_tasks
from swift_vlrft.families.family import Family
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.geometry.box_format import NATIVE, SUBSETS
from swift_vlrft.recipe.rules.model import family, resize_of
from swift_vlrft.recipe.run import NoValue, Run
from swift_vlrft.rewards import PAYING, REWARDS, TASK_NAMES

LOOKED_AT = 400
"""So many first images of a set are looked at."""


def first_images(run: Run, stored: StoredSet, asked: DatasetName) -> Report | None:
    """Return the report by which training judges the rows too, but for images behind the first;
    None if the set cannot be opened here. DataError: what training refuses.
    """
    subset = formats.subset_of(asked.subsets, asked.name)
    rules = _rules(run, asked.name, subset)
    try:
        report = check_set(stored, images=LOOKED_AT, rules=rules)
    except OSError:
        return None
    report.finish(strict=run.true("strict"), tasks=subset.tasks)
    return report


def _rules(run: Run, name: str, subset: formats.Subset) -> RowRules:
    """Return what training asks of rows, without what is not known of the model."""
    known, resize, box_format, key = None, None, subset.box_format, None
    with suppress(NoValue):
        known = family(run)
        resize = resize_of(run, known)
    if known is not None and box_format == NATIVE:
        box_format, key = formats.native_format(name, known)
    if box_format == NATIVE or (box_format == "pixels" and resize is None):
        box_format = ""
    return rules_of(run, subset.tasks, (box_format, key, resize), _words)


def _words(run: Run) -> Callable[[str], int]:
    """Count the words of a text: the least that it takes in tokens, without the tokenizer."""
    return lambda text: len(text.split())


def rules_of(
    run: Run,
    tasks: tuple[str, ...],
    wanted: tuple[str, str | None, ImageResize | None],
    text_tokens: Callable[[Run], Callable[[str], int]],
) -> RowRules:
    """Return what the run asks of rows in the box format, key and resize that are ``wanted``."""
    (box_format, key, resize), limit = wanted, None
    with suppress(NoValue):
        if "truncation_strategy" in run.given and run.text("truncation_strategy") == "delete":
            limit = run.optional("max_length")
    return RowRules(
        rewards=run.texts("reward_funcs"),
        box_format=box_format,
        box_key=key,
        resize=resize,
        too_long=length_check(resize, limit, text_tokens(run)) if resize and limit else None,
        tasks=tasks,
        system=system_of(run) or "",
    )


def system_of(run: Run) -> str | None:
    """Return --system, or what its file holds; None if that is not known."""
    try:
        text = run.text("system") or ""
        path = run.recipe.at(text) if text.endswith(".txt") else None
        return text if path is None else path.read_text("utf-8")
    except (NoValue, OSError, UnicodeError):
        return None


def report_of_source(source: Source) -> Report:
    """Report on a hub's set before it is downloaded: its task, but not its number of rows."""
    return Report(
        Path(source.hub_id), tasks=Counter({source.task: 1}), scored=Counter({source.task: 1})
    )


def refuse_subset(name: str, subsets: Sequence[str]) -> None:
    """Raise DataError if a set that ms-swift's own loader reads is asked for a subset.

    A subset is a box format, or the rows of a task.
    """
    for subset in set(subsets) & {*SUBSETS, *TASK_NAMES} - {"norm1000"}:
        raise DataError(
            f"--dataset {name}:{subset}: ms-swift's own loader reads all rows of this set, and "
            f"leaves boxes as they are. Leave :{subset} out, or rename its columns with --columns: "
            f":{subset} is for sets that have image, problem and solution, and no messages"
        )


def not_native(dataset: str, name: str, family: Family) -> str | None:
    """Warn that a model trains on boxes in the format ``name``, which is not its own. None if it
    is, or the model has none.
    """
    if family.box_format in (None, name):
        return None
    return (
        f"{dataset}: boxes are in {name}, while {family.name} was trained on {family.box_format}: "
        f"rewards start lower. Use {dataset}:{NATIVE}, which is {dataset}:{family.box_format}"
    )


def no_stream(data_set: object) -> str:
    """Say that one of our sets is asked for as a stream, and what to write instead."""
    return (
        f"--streaming true: {data_set} is a set in a form of this package, which is read from disk "
        "or a hub as a whole; leave --streaming out (images stay on the disk)"
    )


def nothing_scored(rewards: Sequence[str], reports: Sequence[Report | None]) -> str | None:
    """Say that a named reward scores no row of any data set. None if each scores some, and where a
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


def routing_notes(report: Report, rewards: Sequence[str]) -> list[str]:
    """Note the rows that no named reward scores, or that several score."""
    named, notes = named_tasks(rewards), []
    others = {t: n for t, n in report.tasks.items() if t in TASK_NAMES and t not in named}
    if named and not any(report.scored[task] for task in named):
        return [f"{report.path}: no named reward scores its rows: {report.rows_by_task()}"]
    if named and others:
        counts = ", ".join(f"{count} {task}" for task, count in others.items())
        tasks = "/".join(task for task in report.tasks if task in named)
        notes.append(
            f"{report.path}: {sum(others.values())} of {report.good} rows state a task that no "
            f"named reward of this package scores: {counts}. Name "
            + ", ".join(PAYING[t][0] for t in others)
            + (f", or train on {report.path}:{tasks} alone" if tasks else "")
        )
    return notes + [
        f"{report.path}: {count} rows state no task, and rewards of {tasks} read their gold: all "
        "of them score these rows. State the task in a column task"
        for tasks, count in report.shared.items()
    ]
