"""How ms-swift reads our sets: it calls ``load`` with the parsed ``--dataset``; the rows are made
in datasets/training.py.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from modelscope.hub.utils.utils import get_cache_dir
from swift.dataset import DatasetMeta
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.dataset.loader import DatasetLoader
from swift.utils import get_logger, safe_ddp_context

from swift_vlrft.datasets import DataError, Source
from swift_vlrft.datasets.check import left_out_notes, length_check
from swift_vlrft.datasets.forms import Form
from swift_vlrft.datasets.read import open_set, rows_of, schema_of_form
from swift_vlrft.datasets.records import labels_of
from swift_vlrft.datasets.report import Report, nothing_scored
from swift_vlrft.datasets.schemas import is_for_swift, schema_of
from swift_vlrft.datasets.training import (
    LoadOptions,
    box_format_of_subsets,
    from_rows,
    streamed_rows,
    training_set,
    training_table,
)
from swift_vlrft.swift_plugin.command_line import CommandLine, read_command_line
from swift_vlrft.swift_plugin.model import image_resize_of, needed_image_resize, text_tokens

logger = get_logger()

SHOWN = 20
MODEL_TYPE: dict[str, str | None] = {"given": None}
"""What ``register(model_type=...)`` was told, for use without a command line."""


class VlrftLoader(DatasetLoader):
    """A local set in any form through our own reader, a hub id through ms-swift's download;
    columns stay as they are.
    """

    def load(
        self, dataset_syntax: Any = None, dataset_meta: Any = None, *, use_hf: bool | None = None
    ) -> Any:
        # ms-swift drops columns it does not know unless told otherwise (GRPO tells it); rewards
        # read them.
        self._remove_asked = getattr(self, "remove_unused_columns", False)
        self.remove_unused_columns = False
        name = dataset_syntax.dataset
        source = getattr(dataset_meta, "vlrft_source", None)
        wanted = self._wanted(box_format_of_subsets(dataset_syntax.subsets, name), name, source)
        if os.path.exists(name):
            return self._local(Path(name), wanted)
        meta, syntax = copy.copy(dataset_meta), copy.copy(dataset_syntax)
        usual = None if source is not None else dataset_meta.preprocess_func
        meta.preprocess_func, syntax.subsets = partial(self._hub, name, wanted, usual), []
        try:
            return super().load(syntax, meta, use_hf=use_hf)
        except DataError:
            raise
        except Exception as error:
            if source is not None and (hint := source.other_hub(bool(use_hf))):
                raise DataError(f"{name} could not be loaded ({error}). {hint}") from error
            raise

    def _wanted(self, frame: str, name: str, source: Source | None) -> LoadOptions:
        command = read_command_line(sys.argv[1:])
        command.model_type = command.model_type or MODEL_TYPE["given"]
        view = needed_image_resize(command, name) if frame == "pixels" else image_resize_of(command)
        return LoadOptions(
            cache=Path(get_cache_dir()) / "datasets" / "vlrft",
            frame=frame,
            view=view,
            strict=self.strict,
            too_long=self._too_long(command),
            rename=self.columns or {},
            task=source.task if source else None,
            row_box_format=source.frame if source else None,
            rewards=tuple(command.reward_funcs),
            num_proc=self.num_proc or 1,
        )

    def _too_long(self, command: CommandLine) -> Any:
        """ms-swift's ``--max_length N --truncation_strategy delete`` encodes a row to learn its
        length, in every step; headers tell it beforehand.
        """
        if not command.max_length or command.truncation_strategy != "delete":
            return None
        view = image_resize_of(command)
        if view is None:
            return None
        return length_check(view, command.max_length, text_tokens(command))

    def _local(self, path: Path, wanted: LoadOptions) -> Any:
        with safe_ddp_context(None, True):
            form = open_set(path, keep_going=not self.strict, rename=wanted.rename)
            if self.streaming:
                rows = partial(
                    rows_of,
                    form,
                    rename=wanted.rename,
                    task=wanted.task,
                    frame=wanted.row_box_format,
                )
                return _stream(path, rows, wanted)
            dataset, report = training_set(form, wanted)
        _tell(report, wanted)
        _check_rewards_score(str(path), report)
        return dataset

    def _hub(self, name: str, wanted: LoadOptions, usual: Any, dataset: Any, **options: Any) -> Any:
        """What was downloaded; ``usual`` is ms-swift's own way, for what turns out to be no set of
        image, problem and solution.
        """
        from datasets import Dataset, Image

        # Columns were renamed by ms-swift before it calls this.
        wanted = LoadOptions(**(vars(wanted) | {"rename": {}}))
        features = dataset.features or {}
        labels = labels_of(features.to_dict() if hasattr(features, "to_dict") else {})
        columns = list(dataset.column_names or next(iter(dataset)))
        form = Form("table", Path(name), [], columns, labels)
        if usual is not None and (is_for_swift(columns) or schema_of(set(columns)) is None):
            refuse_pixels(name, [wanted.frame])
            self.remove_unused_columns = self._remove_asked
            return usual(dataset, **options)
        open_set(form)
        if not isinstance(dataset, Dataset):
            if isinstance(features.get("image"), Image):
                dataset = dataset.cast_column("image", Image(decode=False))
            form.kind, form.content = "stream", dataset
            rows = partial(rows_of, form, task=wanted.task, frame=wanted.row_box_format)
            return _stream(Path(name), rows, wanted, form)
        if dataset._indices is not None:
            dataset = dataset.flatten_indices()
        table, origin = dataset.data.table, [(Path(name), len(dataset))]
        if schema_of_form(form).single:
            made, report = training_table(table, origin, form, wanted, features=dataset.features)
        else:
            form.content = (table, origin)
            made, report = from_rows(form, wanted)
        _tell(report, wanted)
        _tell_notes(report.notes)  # of a local set they were told when it was registered
        _check_rewards_score(name, report)
        return made


def refuse_pixels(name: str, subsets: Sequence[str]) -> None:
    """DataError where a set that ms-swift's own loader reads is asked for in pixels: it would be
    trained on with its boxes as they are.
    """
    if "pixels" in subsets:
        raise DataError(
            f"--dataset {name}:pixels: ms-swift's own loader reads this set, and leaves boxes as "
            "they are. Leave :pixels out, or rename its columns with --columns: :pixels is for "
            "sets that have image, problem and solution, and no messages"
        )


def _stream(path: Path, rows: Any, wanted: LoadOptions, downloaded: Form | None = None) -> Any:
    from datasets import IterableDataset
    from datasets.iterable_dataset import ExamplesIterable

    def generate() -> Iterator[tuple[int, Any]]:
        report = Report(path)
        yield from enumerate(streamed_rows(rows(), wanted, report))
        _tell(report, wanted)
        if downloaded is not None:
            _tell_notes(left_out_notes(downloaded))

    # Not from_generator: it would pickle the generator with all it refers to, for a fingerprint.
    return IterableDataset(ExamplesIterable(generate, {}))


def _tell(report: Report, wanted: LoadOptions) -> None:
    """What was read, every row that was left out and why, and whether the model writes boxes in
    another frame by itself.
    """
    view = wanted.view
    boxed = report.frames.keys() - {"none"}
    if view is not None and boxed and view.native_box_format != wanted.frame:
        native = view.native_box_format
        logger.info(
            f"swift_vlrft: {report.path}: boxes are in {wanted.frame}; {view.family} was trained "
            f"on {native}, which --dataset {report.path}:{native} gives it."
        )
    for note in report.routing_notes(wanted.rewards):
        logger.warning(f"swift_vlrft: {note}")
    tasks = ", ".join(f"{count} {task}" for task, count in report.tasks.most_common())
    logger.info(f"swift_vlrft: {report.path}: {report.good} of {report.rows} rows train ({tasks}).")
    bad = len(report.problems) - report.too_long
    if report.too_long:
        logger.warning(
            f"swift_vlrft: {report.path}: {report.too_long} rows are longer than allowed."
        )
    if bad:
        logger.warning(
            f"swift_vlrft: {report.path}: {bad} bad rows are left out (--strict true stops "
            "instead; `vlrft data check` lists all, --fix writes a clean copy)."
        )
    if report.problems:
        logger.warning(f"swift_vlrft: left out:\n{report.listed(SHOWN)}")


def _check_rewards_score(name: str, report: Report) -> None:
    """DataError where all sets of the command are read, and a reward that it names scores no row:
    of a set that is downloaded nothing is known before.
    """
    command = read_command_line(sys.argv[1:])
    _READ[name] = report
    wanted = [DatasetSyntax.parse(dataset).dataset for dataset in command.datasets]
    if (
        name in wanted
        and not command.cached_datasets
        and (problem := nothing_scored(command.reward_funcs, [_READ.get(name) for name in wanted]))
    ):
        raise DataError(problem)


_READ: dict[str, Report] = {}


def _tell_notes(notes: list[str]) -> None:
    for note in notes:
        logger.warning(f"swift_vlrft: {note}")


def meta_for(source: Source) -> DatasetMeta:
    """A hub set as ms-swift registers it, under its id on both hubs."""
    meta = DatasetMeta(
        ms_dataset_id=source.hub_id,
        hf_dataset_id=source.hub_id,
        loader=VlrftLoader,
        tags=["vlrft", source.task],
    )
    meta.vlrft_source = source
    return meta


def hub_meta(hub_id: str) -> DatasetMeta:
    """A hub id that nobody registered: one of our forms, or else read as ms-swift would."""
    # Under a name of its own, so that a plugin after ours can still register the id.
    return DatasetMeta(
        dataset_name=f"{hub_id} by its columns",
        ms_dataset_id=hub_id,
        hf_dataset_id=hub_id,
        loader=VlrftLoader,
        tags=["vlrft"],
    )


def local_meta(path: str) -> DatasetMeta:
    """A set on disk; its form, tasks and frames are read off it."""
    return DatasetMeta(dataset_path=path, loader=VlrftLoader, tags=["vlrft"])
