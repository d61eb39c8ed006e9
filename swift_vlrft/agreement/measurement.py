"""What one process measures and another judges: records on disk."""

from __future__ import annotations

import msgspec

from swift_vlrft.agreement.figures import Row


class Job(msgspec.Struct):
    """What the measuring process is asked for."""

    result: str
    rows: int
    tokens: int
    """The most tokens of an answer."""


class Measurement(msgspec.Struct):
    """What the measuring process found."""

    engine: str
    model: str
    dtype: str
    """The coarsest of both sides: a name of ``LIMITS`` in verdict.py."""
    loaded: list[Row] = []
    """With the weights that each side read."""
    synced: list[Row] = []
    """After every trained weight was moved and ms-swift had synchronised the engine; empty without
    an engine of its own.
    """
    step: float = 0.0
    """By how much they were moved, as a share of the root mean square of the weight."""
    notes: list[str] = []
