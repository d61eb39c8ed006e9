"""The known record schemas are tried in order, the most specific first.

A plugin file may put another in front: examples/my_dataset.py, examples/datasets.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.coco import COCO_PARQUET_SCHEMA, COCO_SCHEMA
from swift_vlrft.datasets.lisa import LISA_SCHEMA
from swift_vlrft.datasets.rec import REC_SCHEMA
from swift_vlrft.datasets.schema import ANSWER_FORM, EXPLICIT, RecordSchema, Rows, further, text_in
from swift_vlrft.datasets.swift_objects import SWIFT_OBJECTS_SCHEMA
from swift_vlrft.datasets.verl import VERL_SCHEMA
from swift_vlrft.datasets.video_rows import VIDEO_SCHEMA
from swift_vlrft.datasets.virft import VIRFT_SCHEMA
from swift_vlrft.rewards import REWARDS

__all__ = ["ANSWER_FORM", "SCHEMAS", "RecordSchema", "further", "record_form", "text_in"]

SCHEMAS: list[RecordSchema] = [
    COCO_SCHEMA,
    SWIFT_OBJECTS_SCHEMA,
    VIDEO_SCHEMA,
    REC_SCHEMA,
    VIRFT_SCHEMA,
    LISA_SCHEMA,
    VERL_SCHEMA,
    COCO_PARQUET_SCHEMA,
]


def record_form(*columns: str, **facts: Any) -> Callable[[Rows], Rows]:
    """Register a function as the reader of sets with these columns; it goes before all others.

    ``facts`` are further fields of its ``RecordSchema``.
    """

    def register(rows: Rows) -> Rows:
        matches = frozenset(columns).issubset
        SCHEMAS.insert(0, RecordSchema(rows.__name__, matches, rows, **facts))
        return rows

    return register


def load_forms(files: Sequence[Path]) -> None:
    """Run plugin files that add schemas; ValueError for one that cannot be run."""
    for file in files:
        try:
            runpy.run_path(str(file.expanduser()))
        except Exception as error:
            raise ValueError(f"--external-plugins {file}: {error!r}") from error


def is_for_swift(columns: Iterable[str], rewards: Sequence[str] | None = None) -> bool:
    """Tell whether training hands a set with these columns to ms-swift's own loader.

    Whatever else it holds: messages; where no reward of ours is named, also messages with objects,
    and images with an answer.
    """
    names = set(columns)
    if names >= EXPLICIT:
        return False
    objects = SWIFT_OBJECTS_SCHEMA.matches(names)
    if "videos" in names and VIDEO_SCHEMA.matches(names):
        return rewards is not None and not any("_temporal_" in name for name in rewards)
    easy_r1 = names >= {"images", "answer"} and "reward_model" not in names
    if "messages" in names and not objects:
        return True
    return (objects or easy_r1) and rewards is not None and not scores(rewards)


def scores(rewards: Sequence[str]) -> bool:
    """Tell whether any of these rewards is ours and reads a solution."""
    return any(name in REWARDS and REWARDS[name].task is not None for name in rewards)


def schema_of(columns: Iterable[str]) -> RecordSchema | None:
    """Return the schema of a set with these columns; None if none is known, or for messages."""
    names = set(columns)
    if is_for_swift(names):
        return None
    return next((schema for schema in SCHEMAS if schema.matches(names)), None)
