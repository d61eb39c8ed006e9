"""Data sets: what lies on disk, turned into rows that ms-swift trains on.

A row is ``messages`` (the user's turn, with ``<image>``), ``images``, ``solution`` (gold, as it
was written), ``task`` and ``frame``, and every further column as it was. ``SOURCES`` lists the
sets known by their hub id.
"""

from swift_vlrft.datasets.source import DataError, Source
from swift_vlrft.datasets.virft import VIRFT

SOURCES: tuple[Source, ...] = (*VIRFT,)

__all__ = ["SOURCES", "DataError", "Source"]
