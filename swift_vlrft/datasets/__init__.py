"""Data sets on disk become rows that ms-swift trains on.

    read_rows(PATH)           every row of a set in any form: Row or, kept going, BadRow
    open_image(row.image)     its image, RGB and upright

A row is ``messages`` (the user's turn, with ``<image>``), ``images``, ``solution`` (gold),
``task`` and ``frame``, and every further column as it was. ``SOURCES`` lists the sets known by
their hub id.
"""

from swift_vlrft.datasets.image import open_image
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.datasets.row import BadRow, Row, RowLocation
from swift_vlrft.datasets.source import SOURCES, DataError, Source

__all__ = [
    "SOURCES",
    "BadRow",
    "DataError",
    "RowLocation",
    "Row",
    "Source",
    "open_image",
    "read_rows",
]
