"""Rewards and data sets: do they exist, and do they match?

vlrft_detection_iou needs the column solution          a folder with image, problem, answer lacks it
a norm1000 set and Qwen2.5-VL, which writes pixels     a note that names :native
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swift_vlrft.geometry.box_format import BOX_FORMATS, NATIVE, SUBSETS
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import family, is_missing
from swift_vlrft.recipe.run import NoValue, Run
from swift_vlrft.rewards import REWARDS, TASK_NAMES

if TYPE_CHECKING:
    from swift_vlrft.datasets.report import Report


def reward_names(run: Run) -> Iterator[Finding]:
    """Reward names that neither ms-swift nor a plugin file registers."""
    if run.command != "rlhf":
        return
    ours, theirs = REWARDS, run.facts.rewards
    plugins = [*run.texts("external_plugins"), *run.texts("custom_register_path")]
    paths = [run.recipe.at(plugin) for plugin in plugins]
    texts = [path.read_text(errors="replace") for path in paths if path and path.is_file()]
    if len(texts) < len(plugins):
        return  # a plugin that was not read may register any name
    with_ours = any("swift_vlrft" in text for text in texts)
    for name in run.texts("reward_funcs"):
        if name in theirs or (with_ours and name in ours):
            continue
        if any(re.search(rf"['\"]{re.escape(name)}['\"]", text) for text in texts):
            continue
        if name in ours:
            text = f'{name} is ours: add --external_plugins "$(vlrft plugin)"'
        else:
            near = difflib.get_close_matches(name, [*ours, *theirs], n=1, cutoff=0.5)
            text = f"no reward is named {name}."
            text += f" Did you mean {near[0]}?" if near else ""
            text += f" Known: {', '.join([*ours, *theirs])}"
        yield problem(run, "reward_funcs", "reward", text)


@dataclass(frozen=True, slots=True)
class _Set:
    """A data set as named by a flag, ``[hf::]NAME[:subset][#count]``, and what is known of it."""

    flag: str
    value: str
    name: str
    subsets: tuple[str, ...]
    columns: tuple[str, ...] = ()
    """As rewards see them; empty if they are not known."""
    ours: bool = False
    """Whether our readers load its rows, not ms-swift's."""
    report: Report | None = None
    """The rows that the rewards would score, if known."""


def _set(run: Run, flag: str, value: str) -> _Set:
    """DataError if the set exists but cannot be read."""
    from swift_vlrft.datasets import SOURCES, DataError
    from swift_vlrft.datasets.check import CHECKED, beginning, check_set
    from swift_vlrft.datasets.opening import find_set
    from swift_vlrft.datasets.report import report_of_source
    from swift_vlrft.datasets.row import Kind
    from swift_vlrft.datasets.schemas import is_for_swift, schema_of
    from swift_vlrft.datasets.syntax import parse

    def exists(name: str) -> bool:
        path = run.recipe.at(name)
        return path is not None and path.exists()

    if (asked := parse(value, exists)).in_store:
        if not run.true("streaming"):
            raise DataError(f"--{flag} {value}: a set in a store needs --streaming true")
        return _Set(flag, value, asked.name, asked.subsets, ours=True)
    name, subsets = asked.name, asked.subsets
    for source in SOURCES:
        if source.hub_id == name:
            row_columns = ("image", "problem", "solution")
            report = report_of_source(source)
            return _Set(flag, value, name, subsets, row_columns, True, report=report)
    path = run.recipe.at(name)
    stored = None
    if path is not None and path.exists():
        stored = find_set(path, rename=_renamed(run))
    if stored is None:
        return _Set(flag, value, name, subsets)
    columns = tuple(stored.columns)
    if is_for_swift(columns):
        return _Set(flag, value, name, subsets, columns)
    if schema_of(columns) is None:
        return _Set(flag, value, name, subsets, columns, "solution" in columns)
    known: Report | None = None
    rewards = _named_rewards(run)
    tasks = [task for task in subsets if task in TASK_NAMES]
    try:
        if rewards and flag == "dataset":
            first = CHECKED if run.true("streaming") else None
            part = stored if first is None else beginning(stored)
            known = check_set(part, images=False, rewards=rewards, tasks=tasks, first=first)
            if first is not None and known.other_tasks.total() >= first:
                tasks = []  # rows of them may follow
            known.leave_unread()
            known.problems = [
                one for one in known.problems if one.kind in (Kind.GOLD, Kind.NOT_READ)
            ]
    except (DataError, OSError):
        known = None  # another rule says so, or the images lie elsewhere
    if known is not None and (text := known.no_row_of(tasks)):
        raise DataError(text)
    return _Set(flag, value, name, subsets, (*columns, "solution"), True, known)


def _renamed(run: Run) -> dict[str, str]:
    """--columns, if it can be read."""
    try:
        return {name: str(new) for name, new in run.json("columns").items()}
    except (OSError, ValueError):
        return {}


def _named_rewards(run: Run) -> list[str]:
    """All rewards of the run, if one of them is ours."""
    names = list(run.texts("reward_funcs"))
    return names if set(names) & set(REWARDS) else []


def data_sets(run: Run) -> Iterator[Finding]:
    from swift_vlrft.datasets import DataError
    from swift_vlrft.datasets.report import nothing_scored

    if not run.trains:
        return
    if run.lacks("dataset", "cached_dataset"):
        yield problem(run, "dataset", "dataset", "--dataset is missing")
    reports: list[Report | None] = []
    notes: list[Finding] = []
    rewards = _named_rewards(run)
    named = [(flag, v) for flag in ("dataset", "val_dataset") for v in run.texts(flag)]
    for flag, value in named:
        try:
            data_set = _set(run, flag, value)
        except DataError as error:
            yield problem(run, flag, "dataset", str(error))
            reports += [None] * (flag == "dataset")
            continue
        if is_missing(run, data_set.name):
            text = f"the path {data_set.name} does not exist (from {run.recipe.folder})"
            yield problem(run, flag, "dataset", f"--{flag} {value}: {text}")
        yield from _columns(run, data_set)
        yield from _box_format(run, data_set)
        reports += [data_set.report] * (flag == "dataset")
        if data_set.report is not None and data_set.report.problems:
            text = f"{len(data_set.report.problems)} rows of {value} cannot be trained on:"
            yield problem(run, flag, "reward-gold", f"{text}\n{data_set.report.listed()}")
        elif data_set.report is not None and flag == "dataset":
            lines = data_set.report.routing_notes(rewards)
            notes += [note(run, flag, "reward-rows", line) for line in lines]
    yield from _stream(run)
    if rewards and run.lacks("cached_dataset"):
        if unscored := nothing_scored(rewards, reports):
            yield problem(run, "reward_funcs", "reward-rows", unscored)
        else:
            yield from notes


def _stream(run: Run) -> Iterator[Finding]:
    """A stream has no length, which transformers says after the model is loaded; of GRPO's on one,
    ms-swift's sampler that repeats a prompt is not used (get_train_dataloader of TRL).
    """
    if not run.true("streaming") or run.command not in ("rlhf", "sft", "pt"):
        return
    if not run.megatron and run.integer("max_steps") <= 0:  # Megatron asks for its --train_iters
        text = "--streaming true: a stream has no length; --max_steps says how many train"
        yield problem(run, "streaming", "streaming", text)
    plugins = [*run.texts("external_plugins"), *run.texts("custom_register_path")]
    if run.grpo and run.integer("num_generations") > 1 and not plugins:
        text = (
            "--streaming true: ms-swift 4.6.0 samples one answer a prompt of a stream, so GRPO "
            "compares answers to different prompts. Leave it out, or let our plugin repeat the "
            'prompts: --external_plugins "$(vlrft plugin)"'
        )
        yield problem(run, "streaming", "streaming", text)
    if run.grpo and run.texts("val_dataset"):
        text = "--streaming true: GRPO needs the length of --val_dataset, and a stream has none"
        yield problem(run, "val_dataset", "streaming", text)


def _columns(run: Run, data_set: _Set) -> Iterator[Finding]:
    needing = [
        name
        for name in run.texts("reward_funcs")
        if name in REWARDS and "solution" in REWARDS[name].needs
    ]
    if needing and data_set.columns and "solution" not in data_set.columns:
        run.text("columns")  # which may rename one to it
        text = (
            f"--{data_set.flag} {data_set.value} has the columns {', '.join(data_set.columns)}; "
            f"{', '.join(needing)} need solution. Rename one with --columns "
            '\'{"answer": "solution"}\''
        )
        yield problem(run, data_set.flag, "reward-columns", text)


def _box_format(run: Run, data_set: _Set) -> Iterator[Finding]:
    """Boxes in another format than the model's own, in an unknown one, or for a model that writes
    none.
    """
    from swift_vlrft.datasets.box_format import (
        native_format,
        not_native,
        refuse_subset,
        subset_of,
    )
    from swift_vlrft.datasets.schemas import is_for_swift
    from swift_vlrft.datasets.source import DataError

    names = data_set.subsets
    subset = next((name for name in names if name in SUBSETS), "norm1000")
    try:
        if data_set.ours:
            subset_of(names, data_set.value)
        elif is_for_swift(data_set.columns):
            refuse_subset(data_set.name, names)
    except DataError as error:
        yield problem(run, data_set.flag, "dataset", str(error))
        return
    try:
        known = family(run)
    except NoValue:
        return
    if known is None:
        if subset == NATIVE:
            name = run.text("model") or run.text("resume_from_checkpoint") or "the model"
            text = (
                f"{data_set.value}: the box format of {name} is not known here; unless ms-swift "
                "takes it for a model of a known family, the run stops. Name one: "
                + ", ".join(BOX_FORMATS)
            )
            yield note(run, data_set.flag, "frame", text)
        return
    tasks = [REWARDS[name].task for name in run.texts("reward_funcs") if name in REWARDS]
    boxes = known.images and any(task is not None and task.gold_has_boxes for task in tasks)
    if boxes and known.box_format is None:
        text = (
            f"{run.text('model')} cannot ground, its makers say (zai-org/GLM-4#196): rewards for "
            "boxes start near 0. zai-org/cogagent-9b-20241220, of the same code, and GLM-4.1V do"
        )
        yield note(run, "model", "grounding", text)
    if subset == NATIVE:
        try:
            native_format(data_set.name, known)
        except DataError as error:
            yield problem(run, data_set.flag, "dataset", str(error))
    elif boxes and subset in BOX_FORMATS and (data_set.ours or set(names) & set(BOX_FORMATS)):
        text = not_native(data_set.name, subset, known) or ""
        yield from [note(run, data_set.flag, "frame", text)] * bool(text)


DATA = (reward_names, data_sets)
