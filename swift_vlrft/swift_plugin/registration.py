"""Registers REWARDS, SOURCES, and the data sets of the running command in ms-swift.

All errors of reward names and local data sets are raised here: the plugin is imported before any
model is loaded.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from swift.dataset import register_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.metrics import eval_metrics_map
from swift.rewards import orms
from swift.rollout.multi_turn import multi_turns
from swift.trainers.trainer_factory import TrainerFactory
from swift.utils import get_logger, use_hf_hub

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets.box_format import subset_of
from swift_vlrft.datasets.opening import is_ours, local_set
from swift_vlrft.datasets.syntax import DatasetName, parse
from swift_vlrft.diagnostics.watch import watch
from swift_vlrft.geometry.box_format import SUBSETS
from swift_vlrft.recipe.rules import PROBLEM, Rule, check_recipe
from swift_vlrft.recipe.rules.data import data_sets, renamed, reward_names
from swift_vlrft.recipe.rules.model import checkpoint, liger, plugins
from swift_vlrft.recipe.run import Run, resolve
from swift_vlrft.rewards import REWARDS, TASK_NAMES, RewardFunction
from swift_vlrft.shared_prefix import settings as shared_prefix
from swift_vlrft.swift_plugin import video, vision_tokens
from swift_vlrft.swift_plugin.command_line import run_of, running_run
from swift_vlrft.swift_plugin.loader import MODEL_TYPE, READ, align, dataset_meta, read_ahead
from swift_vlrft.swift_plugin.metrics import metric_of
from swift_vlrft.swift_plugin.model import register_model_of, wanted_box_format
from swift_vlrft.swift_plugin.zoom import ZoomScheduler
from swift_vlrft.zoom import SCHEDULER

logger = get_logger()

TRAINER = "swift_vlrft.swift_plugin.trainer.VlrftGRPOTrainer"
CONFIG = "swift_vlrft.swift_plugin.trainer.VlrftGRPOConfig"


def register(
    datasets: Sequence[str | os.PathLike[str]] | None = None, *, model_type: str | None = None
) -> None:
    """Register the rewards and data sets in ms-swift. Calling it again, or in a worker, changes
    nothing.

    ``datasets`` are local sets to register, in ms-swift's syntax (``PATH[:subset][#count]``);
    ``model_type`` is the family that the subsets ``pixels`` and ``native`` are for. Without
    arguments those on the command line are registered and checked: ValueError says what is wrong
    with a reward name, a path, a column or a gold solution, and lists the known names.
    """
    TrainerFactory.TRAINER_MAPPING["grpo"] = TRAINER
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = CONFIG
    multi_turns[SCHEDULER] = ZoomScheduler
    for name, function in REWARDS.items():
        orms[name] = _factory(watch(name, function))
        eval_metrics_map[name] = metric_of(name, function)
    for source in SOURCES:
        register_dataset(dataset_meta(source.hub_id, source), exist_ok=True)
    MODEL_TYPE["given"] = model_type or MODEL_TYPE["given"]
    shared_prefix.switched_on()  # a wrong value is reported now, not after the model is loaded
    if datasets is not None:
        words = ["--dataset", *(os.fspath(name) for name in datasets)]
        run, check = run_of(words, model_type), True
    else:
        run, is_child = running_run(model_type), multiprocessing.parent_process() is not None
        check = not is_child and os.environ.get("RANK", "0") == "0"
    if check:
        _refuse(run)
    register_model_of(run, check=check)
    if datasets is None and (run.grpo or run.command == "rollout"):
        vision_tokens.register()
    video.register()
    for dataset in (*run.texts("dataset"), *run.texts("val_dataset")):
        _register_set(dataset, run, check=check)


def _refuse(run: Run) -> None:
    """Raise the problems that `vlrft check` finds in rewards, plugins, sets and the checkpoint."""
    known = msgspec.structs.replace(run.facts, rewards=[*orms])
    rules: tuple[Rule, ...] = (plugins, liger, reward_names, checkpoint)
    if "dataset" in run.given:
        rules += (partial(data_sets, judge=read_ahead),)
    findings = check_recipe(resolve(run.recipe, known), rules)
    if problems := [finding.text for finding in findings if finding.level == PROBLEM]:
        raise DataError("\n".join(problems))


def _factory(function: RewardFunction) -> Callable[..., RewardFunction]:
    """What ms-swift calls with ``args=``: it gets the function, whose name is the metric's."""
    return lambda args=None, **_: function


def _register_set(dataset: str, run: Run, *, check: bool) -> None:
    """Register a set that our loader reads; ms-swift's own forms are left to it."""
    asked = parse(dataset)
    if not asked.path.exists():
        return _register_hub_id(asked, run, check=check)
    names = run.texts("reward_funcs")
    ready = any(name == asked.name and of.rewards == names for name, of in READ)
    stored = None if ready else local_set(asked.path, rename=renamed(run))
    if not ready and (stored is None or not is_ours(stored, names)):
        return align(asked.name)
    if check:
        wanted_box_format(run, subset_of(asked.subsets, dataset).box_format, asked.name)
    register_dataset(dataset_meta(asked.name), exist_ok=True)


def _register_hub_id(asked: DatasetName, run: Run, *, check: bool) -> None:
    source = next((s for s in SOURCES if s.hub_id == asked.name), None)
    if source is None:
        syntax = DatasetSyntax(asked.name)
        metas = [syntax.get_dataset_meta(use_hf) for use_hf in (True, False)]
        # For an id that nobody has registered ms-swift returns an empty entry.
        new = not any(m.ms_dataset_id or m.hf_dataset_id or m.dataset_path for m in metas)
        if new and set(asked.subsets) <= {"default", *SUBSETS, *TASK_NAMES}:
            register_dataset(dataset_meta(asked.name), exist_ok=True)
        elif not new:
            align(asked.name)
        return
    use_hf = run.true("use_hf") if "use_hf" in run.given else use_hf_hub()
    hint = source.other_hub(use_hf if asked.hub is None else asked.hub == "hf")
    if hint and check:
        logger.warning(f"swift_vlrft: {source.hub_id}: {hint}")
