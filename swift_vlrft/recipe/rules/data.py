"""Check rewards and data sets: do they exist, and do they match?

vlrft_detection_iou needs the column solution          a folder with image, problem, answer lacks it
a norm1000 set and Qwen2.5-VL, which writes pixels     a note that names :native
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets import box_format as formats
from swift_vlrft.datasets.check import Report, unasked
from swift_vlrft.datasets.opening import check_columns, image_root, is_ours, local_set
from swift_vlrft.datasets.questions import shared_pictures
from swift_vlrft.datasets.schemas import is_for_swift
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.syntax import DatasetName, is_a_path, parse
from swift_vlrft.geometry.box_format import BOX_FORMATS, NATIVE, SUBSETS
from swift_vlrft.recipe.plugins import read_plugin
from swift_vlrft.recipe.rules.batches import steps
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding, note, problem
from swift_vlrft.recipe.rules.model import (
    checkpoint_arguments,
    family,
    given_plugins,
    no_such_path,
)
from swift_vlrft.recipe.rules.rows import (
    first_images,
    no_stream,
    not_native,
    nothing_scored,
    refuse_subset,
    report_of_source,
    routing_notes,
    system_of,
)
from swift_vlrft.recipe.run import NoValue, Run
from swift_vlrft.rewards import REWARDS

Judge = Callable[[Run, StoredSet, DatasetName], Report | None]
ANSWERS_OF_A_STREAM = (
    "--streaming true: of a stream ms-swift 4.6.0 samples one answer a prompt, so GRPO would "
    "compare answers to different prompts; leave it out"
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
        """Return the number of rows that train, 0 if it is not known."""
        known = self.report.good if self.report else 0
        return known and (self.count or known)


def _set(run: Run, flag: str, value: str, judge: Judge) -> _Set:
    """DataError if the set exists but training refuses it."""

    def exists(name: str) -> bool:
        path = run.recipe.at(name)
        return path is not None and path.exists()

    asked = parse(value, exists)
    described = partial(_Set, flag, value, asked.name, asked.subsets, count=asked.count)
    streamed = run.true("streaming") and not run.grpo
    for source in SOURCES:
        if source.hub_id == asked.name:
            if streamed:
                raise DataError(no_stream(value))
            hub = report_of_source(source)
            return described(("image", "problem", "solution"), ours=True, report=hub)
    path = run.recipe.at(asked.name)
    a_set = path and path.exists() and path != path.parent  # `/` may be meant for a backslash
    stored = local_set(path, rename=renamed(run)) if path and a_set else None
    if stored and (root := run.variable("ROOT_IMAGE_DIR")):
        stored.root = image_root(run.recipe.at(root) or root)
    columns = () if stored is None or _adds_forms(run) else tuple(stored.columns)
    if stored is None or not is_ours(stored, run.texts("reward_funcs")):
        return described(columns)
    if streamed:
        raise DataError(no_stream(value))
    check_columns(stored)
    report = judge(run, stored, asked)
    return described((*columns, "solution"), ours=True, report=report)


def unasked_prompts(
    run: Run, rewards: Sequence[str], reports: Sequence[Report | None]
) -> Iterator[Finding]:
    """Find rewards of an answer that no prompt asks for: a note where some prompts do, where a
    system prompt is set, or where the model may have learnt it in an earlier training.
    """
    if not run.grpo or system_of(run) is None:
        return
    known, read = family(run), [report for report in reports if report is not None and report.rows]
    trained = run.texts("adapters") or checkpoint_arguments(run).get("dataset")
    others = trained or run.text("resume_from_checkpoint") or system_of(run)
    others = others or len(read) < len(reports)
    for text, everywhere in unasked(rewards, read, known.writes if known else ()):
        level = PROBLEM if everywhere and not others else NOTE
        yield problem(run, "reward_funcs", "unasked", text, level=level)


def _adds_forms(run: Run) -> bool:
    """Tell whether a plugin file may add a form of records, whose columns no rule knows."""
    files = [path for *_, path in given_plugins(run) if path and path.is_file()]
    return any(re.search(rb"SCHEMAS|record_form", file.read_bytes()) for file in files)


def renamed(run: Run) -> dict[str, str]:
    """--columns, if it can be read."""
    return {name: str(new) for name, new in run.json_or_empty("columns").items()}


def data_sets(run: Run, judge: Judge = first_images) -> Iterator[Finding]:
    """Find what is wrong with the sets that are named; ``judge`` reports on the rows of ours."""
    if not run.trains:
        return
    if run.omits("dataset", "cached_dataset"):
        yield problem(run, "dataset", "dataset", "--dataset is missing")
    reports: list[Report | None] = []
    rows: list[int] = []
    notes: list[Finding] = []
    pictures: dict[str, dict[str, str]] = {"--val_dataset": {}, "--dataset": {}}
    names = run.texts("reward_funcs")
    rewards = names if set(names) & set(REWARDS) else ()  # where one of them is ours
    named = [(flag, value) for flag in ("dataset", "val_dataset") for value in run.texts(flag)]
    for flag, value in named:
        report, known = None, 0
        try:
            data_set = _set(run, flag, value, judge)
        except DataError as error:
            yield problem(run, flag, "dataset", str(error))
        else:
            yield from _of_set(run, data_set)
            report, known = data_set.report, data_set.rows
            pictures[f"--{flag}"] |= report.pictures if report else {}
        if flag == "dataset":
            reports.append(report)
            rows.append(known)
            lines = routing_notes(report, rewards) if report else []
            notes += [note(run, flag, "reward-rows", line) for line in lines]
    for same in {*run.texts("dataset")} & {*run.texts("val_dataset")}:
        text = f"--val_dataset {same} is in --dataset, too: what is measured on it was trained on"
        yield note(run, "val_dataset", "dataset", text)
    for text in shared_pictures(pictures):
        yield note(run, "val_dataset", "dataset", text)
    if run.grpo and run.true("streaming"):  # whose sampler repeats no prompt (TRL)
        yield problem(run, "streaming", "streaming", ANSWERS_OF_A_STREAM)
    if rewards and all(rows) and run.omits("cached_dataset"):
        yield from steps(run, sum(rows), sum(report.good for report in reports if report))
    if rewards and run.omits("cached_dataset"):
        if unscored := nothing_scored(rewards, reports):
            yield problem(run, "reward_funcs", "reward-rows", unscored)
        else:
            yield from (*notes, *unasked_prompts(run, rewards, reports))


def _of_set(run: Run, data_set: _Set) -> Iterator[Finding]:
    flag, value, report = data_set.flag, data_set.value, data_set.report
    if "," not in value and is_a_path(parse(value).name):  # the rule of commas has those
        whole, why = run.recipe.at(value.rpartition(":")[0]), "does not exist"
        if ":" in value and whole is not None and whole.exists():
            why += " (ms-swift takes all after the first ':' for subsets: link the set under a "
            why += "path without ':')"
        yield from no_such_path(run, flag, "dataset", data_set.name, why)
    ours = [name for name in run.texts("reward_funcs") if name in REWARDS]
    needing = [name for name in ours if "solution" in REWARDS[name].needs]
    if needing and data_set.columns and "solution" not in data_set.columns:
        run.text("columns")  # which may rename one to it
        own = "answer" if "answer" in data_set.columns else "NAME"
        text = (
            f"--{flag} {value} has the columns {', '.join(data_set.columns)}; "
            f"{', '.join(needing)} need solution, the right answer of each row: add it, or rename "
            f"""yours by --columns '{{"{own}": "solution"}}'"""
        )
        yield problem(run, flag, "reward-columns", text)
    if needing and not data_set.ours and "solution" in data_set.columns:
        text = f"--{flag} {value}: ms-swift's own loader reads it, so no row of it is checked here"
        yield note(run, flag, "not-ours", text)
    for name in ours if data_set.columns else ():
        if (column := REWARDS[name].zero_without) not in (None, *data_set.columns):
            text = f"--{flag} {value} has no column {column}: {name} is 0 for each of its rows"
            yield note(run, flag, "reward-columns", text)
    yield from _box_format(run, data_set)
    for text in report.bad_notes() if report is not None else ():
        yield note(run, flag, "bad-rows", text)


def _box_format(run: Run, data_set: _Set) -> Iterator[Finding]:
    """Boxes in another format than the model's own, or in one that is not known."""
    names = data_set.subsets
    subset = next((name for name in names if name in SUBSETS), "norm1000")
    try:
        if data_set.ours:
            formats.subset_of(names, data_set.value)
        elif is_for_swift(data_set.columns, run.texts("reward_funcs")):
            refuse_subset(data_set.name, names)
        known = family(run)
        if known and subset == NATIVE:
            formats.native_format(data_set.name, known)
    except DataError as error:
        yield problem(run, data_set.flag, "dataset", str(error))
        return
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
    other = not_native(data_set.name, subset, known)
    if other and subset != NATIVE and (data_set.ours or subset in names):
        yield note(run, data_set.flag, "frame", other)


DATA = (reward_names, data_sets)
