"""The shapes by which records are known, the most particular one first."""

from __future__ import annotations

from collections.abc import Container

from swift_vlrft.datasets.coco_parquet import COCO_PARQUET_SHAPE
from swift_vlrft.datasets.lisa import LISA_SHAPE
from swift_vlrft.datasets.rec import REC_SHAPE
from swift_vlrft.datasets.shape import Shape
from swift_vlrft.datasets.virft import VIRFT_SHAPE

SHAPES: tuple[Shape, ...] = (REC_SHAPE, LISA_SHAPE, VIRFT_SHAPE, COCO_PARQUET_SHAPE)


def is_for_swift(columns: Container[str]) -> bool:
    """Whether training hands a set with these columns to ms-swift's own loader, whatever else it
    holds.
    """
    return "messages" in columns


def shape_of(columns: set[str]) -> Shape | None:
    """The shape of a set with these columns; None where it has none that is known."""
    return next((shape for shape in SHAPES if shape.matches(columns)), None)
