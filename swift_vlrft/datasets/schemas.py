"""The known record schemas are tried in order, the most specific first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swift_vlrft.datasets.coco import COCO_PARQUET_SCHEMA, COCO_SCHEMA
from swift_vlrft.datasets.countbench import COUNTBENCH_SCHEMA
from swift_vlrft.datasets.grefcoco import GREFCOCO_SCHEMA
from swift_vlrft.datasets.lisa import LISA_SCHEMA
from swift_vlrft.datasets.rec import REC_SCHEMA
from swift_vlrft.datasets.schema import EXPLICIT, RecordSchema
from swift_vlrft.datasets.screenspot import SCREENSPOT_SCHEMA
from swift_vlrft.datasets.text_vqa import TEXT_VQA_SCHEMA
from swift_vlrft.datasets.verl import VERL_SCHEMA
from swift_vlrft.datasets.virft import VIRFT_SCHEMA
from swift_vlrft.rewards import REWARDS

SCHEMAS: list[RecordSchema] = [
    COCO_SCHEMA,
    REC_SCHEMA,
    VIRFT_SCHEMA,
    LISA_SCHEMA,
    VERL_SCHEMA,
    COCO_PARQUET_SCHEMA,
    GREFCOCO_SCHEMA,
    SCREENSPOT_SCHEMA,
    TEXT_VQA_SCHEMA,
    COUNTBENCH_SCHEMA,
]
"""A plugin file may put another schema in front (examples/my_dataset.py)."""


def is_for_swift(columns: Iterable[str], rewards: Sequence[str] | None = None) -> bool:
    """Tell whether training hands a set with these columns to ms-swift's own loader, whatever else
    it holds: messages, or images with an answer where no reward of ours is named.
    """
    names = set(columns)
    if names >= EXPLICIT:
        return False
    easy_r1 = names >= {"images", "answer"} and "reward_model" not in names
    return "messages" in names or (easy_r1 and rewards is not None and not scores(rewards))


def scores(rewards: Sequence[str]) -> bool:
    """Tell whether any of these rewards is ours and reads a solution."""
    return any(name in REWARDS and REWARDS[name].task is not None for name in rewards)


def schema_of(columns: Iterable[str]) -> RecordSchema | None:
    """Return the schema of a set with these columns; None if none is known, or for messages."""
    names = set(columns)
    if is_for_swift(names):
        return None
    return next((schema for schema in SCHEMAS if schema.matches(names)), None)
