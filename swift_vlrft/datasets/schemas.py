"""The known record schemas, the most specific first."""

from __future__ import annotations

from collections.abc import Container, Iterable

from swift_vlrft.datasets.coco import COCO_PARQUET_SCHEMA, COCO_SCHEMA
from swift_vlrft.datasets.countbench import COUNTBENCH_SCHEMA
from swift_vlrft.datasets.grefcoco import GREFCOCO_SCHEMA
from swift_vlrft.datasets.lisa import LISA_SCHEMA
from swift_vlrft.datasets.rec import REC_SCHEMA
from swift_vlrft.datasets.schema import RecordSchema
from swift_vlrft.datasets.screenspot import SCREENSPOT_SCHEMA
from swift_vlrft.datasets.text_vqa import TEXT_VQA_SCHEMA
from swift_vlrft.datasets.virft import VIRFT_SCHEMA

SCHEMAS: list[RecordSchema] = [
    COCO_SCHEMA,
    REC_SCHEMA,
    LISA_SCHEMA,
    VIRFT_SCHEMA,
    COCO_PARQUET_SCHEMA,
    GREFCOCO_SCHEMA,
    SCREENSPOT_SCHEMA,
    TEXT_VQA_SCHEMA,
    COUNTBENCH_SCHEMA,
]
"""A plugin file may put another one in front (examples/my_dataset.py)."""


def is_for_swift(columns: Container[str]) -> bool:
    """Whether training hands a set with these columns to ms-swift's own loader, whatever else it
    holds.
    """
    return "messages" in columns


def schema_of(columns: Iterable[str]) -> RecordSchema | None:
    """The schema of a set with these columns; None if it has none that is known."""
    names = set(columns)
    return next((schema for schema in SCHEMAS if schema.matches(names)), None)
