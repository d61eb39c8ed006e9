"""REWARDS and SOURCES into ms-swift's registries, and the data sets that the running command names.

Everything that can be wrong with reward names and local data sets is said here: the plugin is
imported before any model is looked for.
"""

from __future__ import annotations

import difflib
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swift.dataset import register_dataset
from swift.dataset.dataset_syntax import DatasetSyntax
from swift.rewards import orms
from swift.utils import get_logger

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets.check import check_parquet
from swift_vlrft.datasets.parquet import COLUMNS, column_names, parquet_files
from swift_vlrft.rewards import REWARDS, Reward
from swift_vlrft.swift_plugin.command_line import read_command_line
from swift_vlrft.swift_plugin.loader import local_meta, meta_for
from swift_vlrft.watch import watch

logger = get_logger()


def register(datasets: Sequence[str | os.PathLike[str]] | None = None) -> None:
    """Make the rewards and data sets known to ms-swift; calling it again, or in a worker, changes
    nothing.

    ``datasets`` are local sets to register, in ms-swift's syntax (``PATH[:subset][#count]``).
    Without it those that the command line names are registered, and checked: ValueError names
    what is wrong with a reward name, a path, a column or a gold solution, and the known names.
    """
    for name, function in REWARDS.items():
        orms[name] = _factory(watch(name, function))
    for source in SOURCES:
        register_dataset(meta_for(source), exist_ok=True)
    if os.environ.get("VLRFT_TRACK_MEMORY", "") not in ("", "0"):
        from swift_vlrft.swift_plugin.callbacks import track_memory

        track_memory()
    if datasets is not None:
        for dataset in datasets:
            _register_path(os.fspath(dataset), {}, check=True)
        return
    command = read_command_line(sys.argv[1:])
    main_process = (
        multiprocessing.parent_process() is None and int(os.environ.get("RANK", "0")) == 0
    )
    if main_process:
        _check_reward_names(command.reward_funcs, command.external_plugins)
    for dataset in command.datasets:
        _register_path(dataset, command.columns, check=main_process)


def _factory(function: Reward) -> Callable[..., Reward]:
    """ms-swift builds a reward with ``args=``; what it gets is the function, whose __name__ is the
    metric's name.
    """

    def build(args: Any = None, **_: Any) -> Reward:
        return function

    return build


def _check_reward_names(names: list[str], plugins: list[str]) -> None:
    # A plugin imported after ours may still bring names; those that claim to be ours can be
    # judged now.
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


def _register_path(dataset: str, columns: dict[str, str], *, check: bool) -> None:
    syntax = DatasetSyntax.parse(dataset)
    path = Path(syntax.dataset)
    if not path.exists():
        if _names_a_path(syntax.dataset):
            raise DataError(
                f"--dataset {dataset}: the path {syntax.dataset} does not exist (from {Path.cwd()})"
            )
        return  # a hub id
    files = parquet_files(path)
    if not files:
        return  # not our form: ms-swift's own loader reads it
    names = {columns.get(name, name) for name in column_names(files)}
    if "messages" in names or not names & set(COLUMNS):
        return  # ms-swift's own form
    rows, task = 0, None
    if check:
        rows, task = check_parquet(path, rename=columns)
        logger.info(f"swift_vlrft: {path}: {rows} rows of task {task}, every gold solution reads.")
    register_dataset(local_meta(syntax.dataset), exist_ok=True)


def _names_a_path(text: str) -> bool:
    return (
        text.startswith(("/", "./", "../", "~"))
        or text.count("/") > 1
        or Path(text).suffix in (".parquet", ".json", ".jsonl", ".csv")
    )
