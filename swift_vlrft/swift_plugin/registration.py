"""Registers REWARDS, SOURCES, and the data sets of the running command in ms-swift.

All errors of reward names and local data sets are raised here: the plugin is imported before any
model is loaded.
"""

from __future__ import annotations

import difflib
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from swift.dataset import register_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.metrics import eval_metrics_map
from swift.rewards import orms
from swift.rollout.multi_turn import multi_turns
from swift.trainers.trainer_factory import TrainerFactory
from swift.utils import get_logger, use_hf_hub

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets.box_format import refuse_subset, subset_of
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.opening import check_columns, is_ours, local_set
from swift_vlrft.datasets.report import Report, nothing_scored, report_of_source
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.syntax import DatasetName, parse
from swift_vlrft.diagnostics.watch import watch
from swift_vlrft.files.checkpoints import good_checkpoints, why_not
from swift_vlrft.files.environment import number
from swift_vlrft.files.text import lines, printable
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.recipe.plugins import clash, read_plugin
from swift_vlrft.recipe.rules.data import ANSWERS_OF_A_STREAM, no_stream
from swift_vlrft.recipe.rules.turns import NAME
from swift_vlrft.rewards import REWARDS, TASK_NAMES, RewardFunction
from swift_vlrft.shared_prefix import settings as shared_prefix
from swift_vlrft.swift_plugin.command_line import CommandLine, running_command
from swift_vlrft.swift_plugin.loader import MODEL_TYPE, dataset_meta
from swift_vlrft.swift_plugin.metrics import metric_of
from swift_vlrft.swift_plugin.model import is_glm4v, register_model_of, wanted_box_format
from swift_vlrft.swift_plugin.zoom import Zoom

logger = get_logger()

TRAINER = "swift_vlrft.swift_plugin.trainer.VlrftGRPOTrainer"
CONFIG = "swift_vlrft.swift_plugin.trainer.VlrftGRPOConfig"


def register(
    datasets: Sequence[str | os.PathLike[str]] | None = None, *, model_type: str | None = None
) -> None:
    """Register the rewards and data sets in ms-swift; calling it again, or in a worker, changes
    nothing.

    ``datasets`` are local sets to register, in ms-swift's syntax (``PATH[:subset][#count]``);
    ``model_type`` is the family that the subsets ``pixels`` and ``native`` are for. Without
    arguments those on the command line are registered and checked: ValueError says what is wrong
    with a reward name, a path, a column or a gold solution, and lists the known names.
    """
    TrainerFactory.TRAINER_MAPPING["grpo"] = TRAINER
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = CONFIG
    multi_turns[NAME] = Zoom
    for name, function in REWARDS.items():
        orms[name] = _factory(watch(name, function))
        eval_metrics_map[name] = metric_of(name, function)
    for source in SOURCES:
        register_dataset(dataset_meta(source.hub_id, source), exist_ok=True)
    MODEL_TYPE["given"] = model_type or MODEL_TYPE["given"]
    # Wrong values are reported now, not after the model is loaded.
    number("VLRFT_LOG_IMAGES")
    if shared_prefix.switched_on():
        shared_prefix.cache_bytes()
    if datasets is not None:
        command, check = CommandLine(dataset=[os.fspath(name) for name in datasets]), True
    else:
        command, is_child = running_command(), multiprocessing.parent_process() is not None
        check = not is_child and os.environ.get("RANK", "0") == "0"
    command.model_type = command.model_type or model_type
    register_model_of(command, check=check)
    if check:
        megatron = "_megatron" in Path(sys.argv[0]).parts  # which streams by a loader of its own
        if command.streaming and command.rlhf_type == "grpo" and not megatron:
            raise DataError(ANSWERS_OF_A_STREAM)
        _check_plugins(command.external_plugins)
        _check_reward_names(command.reward_funcs, command.external_plugins)
        _check_checkpoint(command)
    reports = [_register_path(dataset, command, check=check) for dataset in command.dataset]
    for dataset in command.val_dataset:
        _register_path(dataset, command, check=check)
    # The rest about a set's rows and rewards is reported when it is loaded.
    problem = nothing_scored(command.reward_funcs, reports)
    if problem and check and not command.cached_dataset:
        raise DataError(problem)


def _factory(function: RewardFunction) -> Callable[..., RewardFunction]:
    """What ms-swift calls with ``args=``: it gets the function, whose name is the metric's."""
    return lambda args=None, **_: function


def _check_plugins(plugins: list[str]) -> None:
    """ValueError where one registers a name of ours, whichever of the two would come last."""
    for plugin in plugins:
        file = Path(plugin).expanduser()
        if file.is_file() and (taken := clash(read_plugin(file))):
            raise ValueError(f"--external_plugins {plugin}: it {taken}")


def _check_reward_names(names: list[str], plugins: list[str]) -> None:
    # A plugin imported after ours may register further names, but not ones with our prefix.
    ours_is_last = not plugins or Path(plugins[-1]).name == "vlrft.py"
    for name in names:
        if name in orms or not (name.startswith("vlrft") or ours_is_last):
            continue
        near = difflib.get_close_matches(name, orms, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        others = sorted(set(orms) - set(REWARDS))
        raise ValueError(
            f"--reward_funcs {name}: no reward has this name.{hint}\n"
            f"  known here: {', '.join(REWARDS)}\n"
            f"  known to ms-swift: {', '.join(others)}"
        )


def _check_checkpoint(command: CommandLine) -> None:
    """ms-swift goes on from what is there: where a state is missing, with a new optimizer, say."""
    if command.resume_from_checkpoint is None or command.resume_only_model:
        return
    checkpoint = Path(command.resume_from_checkpoint).expanduser()
    if checkpoint.is_dir() and (why := why_not(checkpoint)):
        others = good_checkpoints(checkpoint.resolve().parent)
        instead = f"take {others[-1]}" if others else "there is no complete one beside it"
        raise DataError(
            f"--resume_from_checkpoint {checkpoint} is not complete: {why}; {instead}, or go on "
            "with its weights alone: --resume_only_model true"
        )


def _register_path(dataset: str, command: CommandLine, *, check: bool) -> Report | None:
    """The report of a set whose rows are known now; None for one that ms-swift reads, or that is
    still to be downloaded.
    """
    asked = parse(dataset)
    if not asked.path.exists():
        return _register_hub_id(asked, dataset, command, check=check)
    stored = local_set(asked.path, keep_going=not command.strict, rename=command.columns)
    if stored is None or not is_ours(stored, command.reward_funcs):
        refuse_subset(asked.name, asked.subsets)
        if check and stored is not None and is_glm4v(command):
            from swift_vlrft.swift_plugin.chatglm4v import refuse_several_images

            refuse_several_images(stored, dataset)
        return None  # ms-swift's own loader reads it
    if command.streaming:
        raise DataError(no_stream(dataset))
    subset = subset_of(asked.subsets, dataset)
    check_columns(stored)
    if check:
        wanted_box_format(command, subset.box_format, asked.name)
    register_dataset(dataset_meta(asked.name), exist_ok=True)
    return _check(stored, command, subset.tasks) if check else None


def _register_hub_id(
    asked: DatasetName, dataset: str, command: CommandLine, *, check: bool
) -> Report | None:
    if asked.is_a_path:
        text = f"the path {asked.name} does not exist (from {Path.cwd()})"
        if Path(dataset.rpartition(":")[0]).exists():
            text += "; ms-swift takes all behind the first ':' for subsets: link the set under a "
            text += "path without ':'"
        raise DataError(f"--dataset {dataset}: {text}")
    source = next((s for s in SOURCES if s.hub_id == asked.name), None)
    if source is None:
        syntax = DatasetSyntax(asked.name)
        metas = [syntax.get_dataset_meta(use_hf) for use_hf in (True, False)]
        # For an id that nobody has registered ms-swift returns an empty entry.
        new = not any(m.ms_dataset_id or m.hf_dataset_id or m.dataset_path for m in metas)
        if new and set(asked.subsets) <= {*SUBSETS, *TASK_NAMES}:
            register_dataset(dataset_meta(asked.name), exist_ok=True)
        return None
    if command.streaming:
        raise DataError(no_stream(dataset))
    subset_of(asked.subsets, dataset)
    use_hf = command.use_hf if asked.hub is None else asked.hub == "hf"
    hint = source.other_hub(use_hf_hub() if use_hf is None else use_hf)
    if hint and check:
        logger.warning(f"swift_vlrft: {source.hub_id}: {hint}")
    return report_of_source(source)


def _check(stored: StoredSet, command: CommandLine, tasks: Sequence[str]) -> Report:
    """Check every prompt and gold solution, of all rows or those of ``tasks``, before any model is
    loaded; images are checked on loading.
    """
    rewards = command.reward_funcs
    report = check_set(stored, images=False, rewards=rewards, tasks=tasks)
    hint = "\n`vlrft data check` lists all, and --fix writes a clean copy."
    report.finish(strict=command.strict, hint=hint, tasks=tasks)
    if report.problems:
        logger.warning(f"swift_vlrft: {report.bad_rows}:\n{lines(report.listed())}{hint}")
    for note in report.notes:
        logger.warning(f"swift_vlrft: {printable(note)}")
    counts = ", ".join(f"{count} {task}" for task, count in report.tasks.most_common())
    good = f"{report.good} rows whose gold reads ({counts})"
    logger.info(f"swift_vlrft: {report.path}: {good}.")
    return report
