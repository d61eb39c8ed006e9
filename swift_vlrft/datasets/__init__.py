"""Data sets on disk become rows that ms-swift trains on.

    read_rows(PATH)           every row of a set in any form: Row or, kept going, BadRow
    to_dataset(PATH)          the same as a ``datasets.Dataset``, as ms-swift trains on it
    @record_form(COLUMNS)     makes a function the reader of a form of your own
    open_image(row.image)     its image, RGB and upright

A row is ``messages`` (the user's turn, with ``<image>``), ``images``, ``solution`` (gold),
``task`` and ``frame``, and every further column as it was. ``SOURCES`` lists the sets known by
their hub id.
"""

from swift_vlrft.datasets.image import open_image
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.datasets.row import BadRow, Row, RowLocation
from swift_vlrft.datasets.schemas import record_form
from swift_vlrft.datasets.source import SOURCES, DataError, Source
from swift_vlrft.datasets.training import to_dataset

__all__ = ["SOURCES", "BadRow", "DataError", "Row", "RowLocation", "Source"]
__all__ += ["open_image", "read_rows", "record_form", "to_dataset"]
