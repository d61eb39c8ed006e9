"""ms-swift reads our sets by ``load``, which gets the parsed ``--dataset``. The rows come from
datasets/training.py.
"""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from swift.dataset import DatasetMeta, DatasetSyntax, register_dataset
from swift.dataset.loader import DatasetLoader
from swift.utils import get_logger, safe_ddp_context

from swift_vlrft.datasets import DataError, Source
from swift_vlrft.datasets.box_format import subset_of
from swift_vlrft.datasets.check import Report
from swift_vlrft.datasets.column_files import table_of
from swift_vlrft.datasets.instances import forget
from swift_vlrft.datasets.opening import check_columns, image_root, open_set
from swift_vlrft.datasets.schemas import is_for_swift, schema_of
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.stored_image import aligned
from swift_vlrft.datasets.syntax import DatasetName
from swift_vlrft.datasets.training import LoadOptions, training_set
from swift_vlrft.families import known_family
from swift_vlrft.files.text import lines
from swift_vlrft.recipe.rules.data import unasked_prompts
from swift_vlrft.recipe.rules.finding import PROBLEM
from swift_vlrft.recipe.rules.rows import (
    first_images,
    no_stream,
    not_native,
    refuse_subset,
    routing_notes,
    rules_of,
)
from swift_vlrft.recipe.run import Run
from swift_vlrft.rewards import TASK_NAMES
from swift_vlrft.swift_plugin.command_line import running_run, supervised
from swift_vlrft.swift_plugin.model import text_tokens, wanted_box_format

logger = get_logger()

MODEL_TYPE: dict[str, str | None] = {"given": None}
"""The argument of ``register(model_type=...)``, for use without a command line."""
READ: dict[tuple[str, LoadOptions], tuple[Any, Report]] = {}
"""Sets that were read when the plugin was imported, until they are loaded."""


class AlignedLoader(DatasetLoader):
    """Loads ms-swift's own sets as ever, with images of one type with ours."""

    def load(self, *args: Any, **options: Any) -> Any:
        return aligned(super().load(*args, **options))


class VlrftLoader(DatasetLoader):
    """Loads a local set in any form by our reader, a hub id by ms-swift's download."""

    def load(
        self, dataset_syntax: Any = None, dataset_meta: Any = None, *, use_hf: bool | None = None
    ) -> Any:
        # ms-swift drops columns it does not know unless told otherwise (GRPO tells it); rewards
        # read them.
        self._remove_asked = getattr(self, "remove_unused_columns", False)
        self.remove_unused_columns = False
        name, subsets = dataset_syntax.dataset, dataset_syntax.subsets
        source: Source | None = getattr(dataset_meta, "vlrft_source", None)
        options = options_of(
            running_run(MODEL_TYPE["given"]), name, subsets, self.strict, self.num_proc
        )
        if os.path.exists(name):
            with safe_ddp_context(None, True):
                ready = READ.pop((name, options), None)
                ready = ready or read_set(open_set(name, rename=self.columns), options)
                return self._told(*ready, options)
        if use_hf and source is None and options.tasks and "default" not in subsets:
            _refuse_names_of_both(name, options.tasks)
        usual = None if source is not None else dataset_meta.preprocess_func
        meta, syntax = copy.copy(dataset_meta), copy.copy(dataset_syntax)
        meta.preprocess_func = partial(self._hub, name, source, options, usual)
        syntax.subsets = []  # those that are left are ours
        return super().load(syntax, meta, use_hf=use_hf)

    def _told(self, dataset: Any, report: Report, options: LoadOptions) -> Any:
        """The rows of a set, when what was found in it is logged."""
        if self.streaming:
            raise DataError(no_stream(report.path))
        run = running_run(MODEL_TYPE["given"])
        asked = [*unasked_prompts(run, options.rewards, [report])]
        refused = [finding.text for finding in asked if finding.level == PROBLEM]
        if refused and len(run.texts("dataset")) + len(run.texts("val_dataset")) == 1:
            raise DataError("\n".join(refused))  # of several sets another may ask
        _tell(report, options)
        _warn([*(finding.text for finding in asked), *report.notes])
        return dataset

    def _hub(
        self,
        name: str,
        source: Source | None,
        options: LoadOptions,
        usual: Any,
        dataset: Any,
        **further: Any,
    ) -> Any:
        """``usual`` is ms-swift's loading, for a set whose columns, as renamed, are not ours."""
        columns = list(dataset.column_names or next(iter(dataset)))
        ours = schema_of(columns) is not None and not is_for_swift(columns, options.rewards)
        if usual is not None and not ours:
            formats = [n for n in options.subset if n not in TASK_NAMES or n in options.tasks]
            refuse_subset(name, formats or [options.box_format])
            self.remove_unused_columns = self._remove_asked
            return aligned(usual(dataset, **further))
        if self.streaming:
            raise DataError(no_stream(name))
        stored = table_of(Path(name), dataset)
        stored.root = image_root()
        check_columns(stored)
        if source is not None:
            stored.task, stored.box_format = source.task, source.box_format
        return self._told(*read_set(stored, options), options)


def options_of(
    run: Run, name: str, subsets: Sequence[str], strict: bool, num_proc: int | None
) -> LoadOptions:
    """Return what a run asks of a set."""
    subset = subset_of(subsets, name)
    wanted = wanted_box_format(run, subset.box_format, name)
    # ms-swift encodes a row to learn its length, in every step; headers tell it beforehand.
    rules = rules_of(run, subset.tasks, wanted, text_tokens)
    return LoadOptions(
        **vars(rules),
        subset=tuple(subsets),
        strict=strict,
        num_proc=num_proc or 1,
        # GRPO samples answers; supervised training needs the gold one as the last turn.
        with_answers=supervised(),
    )


def read_set(stored: StoredSet, options: LoadOptions) -> tuple[Any, Report]:
    """Return the rows of a set as they train, and the report on it."""
    gc.freeze()  # no garbage is looked for in what is imported while rows are made
    try:
        return training_set(stored, options)
    finally:
        gc.unfreeze()
        forget()


def read_ahead(run: Run, stored: StoredSet, asked: DatasetName) -> Report | None:
    """Read a set when the plugin is imported: before the model is loaded, and for the loader."""
    if "truncation_strategy" in run.given:  # tokens are counted, by a model that is not there yet
        return first_images(run, stored, asked)
    strict, num_proc = run.true("strict"), run.optional("dataset_num_proc")
    options = options_of(run, asked.name, asked.subsets, strict, num_proc)
    if (key := (asked.name, options)) not in READ:
        READ[key] = read_set(stored, options)
    return READ[key][1]


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        logger.warning(f"swift_vlrft: {lines(note)}")


def _refuse_names_of_both(name: str, tasks: Sequence[str]) -> None:
    """Raise DataError where a task has the name of one of the hub's subsets."""
    from datasets import get_dataset_config_names

    for task in {*tasks}.intersection(get_dataset_config_names(name)):
        raise DataError(
            f"--dataset {name}:{task}: {task} is a task and a subset of the hub. Write "
            f"{name}:default/{task} for the rows of the task; for the subset, give its folder "
            f"after hf download {name} --repo-type dataset --local-dir DIR"
        )


def _tell(report: Report, options: LoadOptions) -> None:
    """Log what was read, what was left out and why, and whether another box format is native."""
    resize, path = options.resize, report.path
    if resize is not None and report.box_formats.keys() - {"none"}:
        family = known_family(resize.family)
        if family.box_format is None:
            logger.warning(f"swift_vlrft: {path}: {family.name} was not trained to write boxes.")
        elif text := not_native(str(path), options.box_format, family):
            logger.info(f"swift_vlrft: {text}")
    tasks = ", ".join(f"{count} {task}" for task, count in report.tasks.most_common())
    others = f"; passed over: {report.passed_over()}" if report.other_tasks else ""
    logger.info(
        f"swift_vlrft: {path}: {report.good} of {report.rows} rows train ({tasks}{others})."
    )
    _warn([*routing_notes(report, options.rewards), *report.bad_notes(20)])


def dataset_meta(name: str, source: Source | None = None) -> DatasetMeta:
    """Return a set's registration: a path; a source under its id on both hubs; or an unregistered
    hub id, which is read by us if its columns are ours, else by ms-swift.
    """
    if os.path.exists(name):
        return DatasetMeta(dataset_path=name, loader=VlrftLoader, tags=["vlrft"])
    # Without a source the name differs from the id, so that a later plugin can register the id.
    meta = DatasetMeta(
        dataset_name=None if source else f"{name} by its columns",
        ms_dataset_id=name,
        hf_dataset_id=name,
        loader=VlrftLoader,
        tags=["vlrft", *([source.task] if source else [])],
    )
    meta.vlrft_source = source
    return meta


def align(name: str) -> None:
    """Let a set that ms-swift loads itself train beside ours."""
    for use_hf in (True, False):
        meta = DatasetSyntax(name).get_dataset_meta(use_hf)
        if not (meta.ms_dataset_id or meta.hf_dataset_id or meta.dataset_path):
            register_dataset(DatasetMeta(dataset_path=name, loader=AlignedLoader), exist_ok=True)
        elif meta.loader is DatasetLoader:
            register_dataset(replace(meta, loader=AlignedLoader), exist_ok=True)
