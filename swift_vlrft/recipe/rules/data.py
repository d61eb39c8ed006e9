"""Check rewards and data sets: do they exist, and do they match?

vlrft_detection_iou needs the column solution          a folder with image, problem, answer lacks it
a norm1000 set and Qwen2.5-VL, which writes pixels     a note that names :native
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets import box_format as formats
from swift_vlrft.datasets.check import Report, check_set, nothing_scored, report_of_source
from swift_vlrft.datasets.opening import check_columns, image_root, is_ours, local_set
from swift_vlrft.datasets.row import STOPS
from swift_vlrft.datasets.schemas import is_for_swift
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.syntax import parse
from swift_vlrft.geometry.box_format import BOX_FORMATS, NATIVE, SUBSETS
from swift_vlrft.recipe.plugins import read_plugin
from swift_vlrft.recipe.rules.batches import steps
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.model import family, given_plugins, no_such_path
from swift_vlrft.recipe.run import NoValue, Run
from swift_vlrft.rewards import REWARDS, TASK_NAMES

ANSWERS_OF_A_STREAM = (
    "--streaming true: of a stream ms-swift 4.6.0 samples one answer a prompt, so GRPO would "
    "compare answers to different prompts; leave it out"
)


def no_stream(data_set: object) -> str:
    """Say that one of our sets is asked for as a stream, and what to write instead."""
    return (
        f"--streaming true: {data_set} is a set in a form of this package, which is read from disk "
        "or a hub as a whole; leave --streaming out (images stay on the disk)"
    )


def reward_names(run: Run) -> Iterator[Finding]:
    """Find reward names that neither ms-swift nor a plugin file registers."""
    if run.command != "rlhf":
        return
    paths = [path for *_, path in given_plugins(run)]
    plugins = [read_plugin(path) for path in paths if path and path.is_file()]
    if len(plugins) < len(paths) or any(plugin.fault or plugin.anything for plugin in plugins):
        return  # it may register any name
    own = [name for plugin in plugins for name in plugin.names]
    every = [*dict.fromkeys([*own, *REWARDS, *run.facts.rewards])]
    known = {*own, *run.facts.rewards} | (REWARDS.keys() if any(p.ours for p in plugins) else set())
    for name in run.texts("reward_funcs"):
        if name in known or "," in name:
            continue
        if name in REWARDS:
            text = f'{name} is a reward of this package: add --external_plugins "$(vlrft plugin)"'
            text += " in front of your plugin, which does not register it" if plugins else ""
        else:
            near = difflib.get_close_matches(name, every, n=1, cutoff=0.5)
            meant = f" Did you mean {near[0]}?" if near else ""
            text = f"--reward_funcs {name}: no reward has this name.{meant}"
            text += f" Known: {', '.join(every)}"
        yield problem(run, "reward_funcs", "reward", text)


@dataclass(frozen=True, slots=True)
class _Set:
    """A flag names this data set, ``[hf::]NAME[:subset][#count]``; the rest is known of it."""

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
    count: int | None = None
    """How many of its rows are asked for, if not all."""

    @property
    def rows(self) -> int:
        """Return the number of rows, 0 if it is not known or they cannot be trained on."""
        known = self.report.rows if self.report and not self.report.problems else 0
        return known and (self.count or known)


def _set(run: Run, flag: str, value: str, rewards: Sequence[str]) -> _Set:
    """DataError if the set exists but cannot be read. ``rewards``: of its report, if any."""

    def exists(name: str) -> bool:
        path = run.recipe.at(name)
        return path is not None and path.exists()

    asked = parse(value, exists)
    described = partial(_Set, flag, value, asked.name, asked.subsets, count=asked.count)
    streamed = run.true("streaming") and not _groups_of_a_stream(run)
    for source in SOURCES:
        if source.hub_id == asked.name:
            if streamed:
                raise DataError(no_stream(value))
            hub = report_of_source(source)
            return described(("image", "problem", "solution"), ours=True, report=hub)
    path = run.recipe.at(asked.name)
    stored = local_set(path, rename=renamed(run)) if path and path.exists() else None
    if stored and (root := run.variable("ROOT_IMAGE_DIR")):
        stored.root = image_root(run.recipe.at(root) or root)
    columns = () if stored is None or _adds_forms(run) else tuple(stored.columns)
    if stored is None or not is_ours(stored, run.texts("reward_funcs")):
        return described(columns)
    if streamed:
        raise DataError(no_stream(value))
    check_columns(stored)
    report = _report(run, stored, asked.subsets, rewards)
    return described((*columns, "solution"), ours=True, report=report)


def _report(
    run: Run, stored: StoredSet, subsets: Sequence[str], rewards: Sequence[str]
) -> Report | None:
    """Return the report, None if the set cannot be opened here. DataError: it is misread or empty,
    or no row is of the tasks that are asked for.
    """
    tasks = [task for task in subsets if task in TASK_NAMES]
    try:
        report = check_set(stored, images=False, rewards=rewards, tasks=tasks)
    except OSError:
        return None
    if report.good and not run.true("strict"):
        report.problems = [bad for bad in report.problems if bad.kind in STOPS]
    if text := report.no_row_of(tasks):
        raise DataError(text)
    if not report.rows and not report.problems:
        raise DataError(f"{stored.path} has no rows")
    return report


def _adds_forms(run: Run) -> bool:
    """Tell whether a plugin file may add a form of records, whose columns no rule knows."""
    files = [path for *_, path in given_plugins(run) if path and path.is_file()]
    return any(re.search(rb"SCHEMAS|record_form", file.read_bytes()) for file in files)


def renamed(run: Run) -> dict[str, str]:
    """--columns, if it can be read."""
    try:
        return {name: str(new) for name, new in run.json("columns").items()}
    except (OSError, ValueError):
        return {}


def data_sets(run: Run) -> Iterator[Finding]:
    if not run.trains:
        return
    if run.omits("dataset", "cached_dataset"):
        yield problem(run, "dataset", "dataset", "--dataset is missing")
    reports: list[Report | None] = []
    rows: list[int] = []
    notes: list[Finding] = []
    names = run.texts("reward_funcs")
    rewards = names if set(names) & set(REWARDS) else ()  # where one of them is ours
    named = [(flag, value) for flag in ("dataset", "val_dataset") for value in run.texts(flag)]
    for flag, value in named:
        report, known = None, 0
        try:
            data_set = _set(run, flag, value, rewards if flag == "dataset" else ())
        except DataError as error:
            yield problem(run, flag, "dataset", str(error))
        else:
            yield from _of_set(run, data_set)
            report, known = data_set.report, data_set.rows
        if flag == "dataset":
            reports.append(report)
            rows.append(known)
            lines = report.routing_notes(rewards) if report and not report.problems else []
            notes += [note(run, flag, "reward-rows", line) for line in lines]
    if _groups_of_a_stream(run):
        yield problem(run, "streaming", "streaming", ANSWERS_OF_A_STREAM)
    if rewards and all(rows) and run.omits("cached_dataset"):
        yield from steps(run, sum(rows))
    if rewards and run.omits("cached_dataset"):
        if unscored := nothing_scored(rewards, reports):
            yield problem(run, "reward_funcs", "reward-rows", unscored)
        else:
            yield from notes


def _of_set(run: Run, data_set: _Set) -> Iterator[Finding]:
    flag, value, report = data_set.flag, data_set.value, data_set.report
    if "," not in value and parse(value).is_a_path:  # the rule of commas has those
        whole, why = run.recipe.at(value.rpartition(":")[0]), "does not exist"
        if ":" in value and whole is not None and whole.exists():
            why += " (ms-swift takes all after the first ':' for subsets: link the set under a "
            why += "path without ':')"
        yield from no_such_path(run, flag, "dataset", data_set.name, why)
    ours = [name for name in run.texts("reward_funcs") if name in REWARDS]
    needing = [name for name in ours if "solution" in REWARDS[name].needs]
    if needing and data_set.columns and "solution" not in data_set.columns:
        run.text("columns")  # which may rename one to it
        text = (
            f"--{flag} {value} has the columns {', '.join(data_set.columns)}; "
            f'{", ".join(needing)} need solution: rename by --columns \'{{"answer": "solution"}}\''
        )
        yield problem(run, flag, "reward-columns", text)
    for name in ours if data_set.columns else ():
        if (column := REWARDS[name].zero_without) not in (None, *data_set.columns):
            text = f"--{flag} {value} has no column {column}: {name} is 0 for each of its rows"
            yield note(run, flag, "reward-columns", text)
    yield from _box_format(run, data_set)
    if report is not None and report.problems:
        text = f"{len(report.problems)} rows of {value} cannot be trained on:\n{report.listed()}"
        yield problem(run, flag, "reward-gold", text)


def _groups_of_a_stream(run: Run) -> bool:
    """Tell whether GRPO is to make groups of a stream.

    TRL's get_train_dataloader does not use the sampler that repeats a prompt then.
    """
    return run.true("streaming") and run.grpo and not run.megatron


def _box_format(run: Run, data_set: _Set) -> Iterator[Finding]:
    """Boxes in another format than the model's own, or in one that is not known."""
    names = data_set.subsets
    subset = next((name for name in names if name in SUBSETS), "norm1000")
    try:
        if data_set.ours:
            formats.subset_of(names, data_set.value)
        elif is_for_swift(data_set.columns):
            formats.refuse_subset(data_set.name, names)
    except DataError as error:
        yield problem(run, data_set.flag, "dataset", str(error))
        return
    try:
        known = family(run)
        if known and subset == NATIVE:
            formats.native_format(data_set.name, known)
    except DataError as error:
        yield problem(run, data_set.flag, "dataset", str(error))
    except NoValue:
        return
    if known is None and subset == NATIVE:
        name = run.text("model") or run.text("resume_from_checkpoint") or "the model"
        text = f"{data_set.value}: the box format of {name} is not known here. Name one: "
        yield note(run, data_set.flag, "frame", text + ", ".join(BOX_FORMATS))
    tasks = [REWARDS[name].task for name in run.texts("reward_funcs") if name in REWARDS]
    boxes = any(task is not None and task.gold_has_boxes for task in tasks)
    if known is None or not known.images or not boxes:
        return
    if known.box_format is None:
        text = (
            f"{run.text('model')} cannot ground (zai-org/GLM-4#196), so rewards for boxes start "
            "near 0; zai-org/cogagent-9b-20241220 and GLM-4.1V can"
        )
        yield note(run, "model", "grounding", text)
    other = formats.not_native(data_set.name, subset, known)
    if other and subset != NATIVE and (data_set.ours or subset in names):
        yield note(run, data_set.flag, "frame", other)


DATA = (reward_names, data_sets)
