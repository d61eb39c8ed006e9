"""What one process measures and another judges: records on disk."""

from __future__ import annotations

import msgspec

from swift_vlrft.agreement.figures import Figures, Row


class Job(msgspec.Struct):
    result: str
    rows: int
    tokens: int
    """The most tokens of an answer."""


class Moved(msgspec.Struct):
    """After every trained weight was moved, and ms-swift had synchronised the engine."""

    step: float
    """By how much, as a share of the root mean square of the weight."""
    rows: list[Row]
    noise: Figures | None
    before: Figures | None
    """The engine against the trainer with the weights of before the step."""
    stale: dict[str, list[str]]
    """Parts of the model that the engine kept, with its names of their weights."""
    unplaced: dict[str, list[str]] = {}
    """Parts whose adapters the engine was given and adds to nothing, with its names of them."""
    altered: list[str] = []
    """Parts of the trainer that are not as they were before the synchronisation."""
    parts: dict[str, float] = {}
    """The mean difference after each part alone was moved, if all together gave one."""
    lora_scale: float | None = None
    """How large the engine's change is as a multiple of what the adapters add."""
    left: float = 0.0
    """How far the trainer's own answer stays off once its trained weights are back."""


class Measurement(msgspec.Struct):
    engine: str
    model: str
    rows: list[Row] = []
    noise: Figures | None = None
    loaded: Figures | None = None
    """Before the first synchronisation, with the weights that the engine read from disk."""
    facts: dict[str, tuple[str, str]] = {}
    """What can be compared by itself: of the trainer and of the engine."""
    tried: dict[str, float] = {}
    """The mean difference under a changed condition, by its name."""
    moved: Moved | None = None
    adapter: bool = False
    notes: list[str] = []
