"""What one forward and backward pass keeps: traced if torch is installed, else in closed form.

A trace takes seconds and is cached by everything that it depends on (configuration, shape, versions
of tracing.py, torch and transformers).
"""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec

from swift_vlrft.files.cache import remembered
from swift_vlrft.memory.analytic import analytic
from swift_vlrft.memory.models import Model
from swift_vlrft.memory.stages import Activations, BatchShape, Peaks, with_copied_keys

VERSION = 3
"""To be raised when tracing.py changes what it counts, so that old results are not used."""


@lru_cache
def _versions() -> list[str]:
    """Of what a trace needs; empty if one is not installed."""
    needed = ("torch", "transformers")
    return [metadata.version(name) for name in needed] if all(map(find_spec, needed)) else []


def can_trace(model: Model) -> bool:
    return model.traceable and bool(_versions())


def traced(model: Model, shape: BatchShape) -> Activations:
    """Activations of this shape, cached or traced; in closed form (see ``how``) if it cannot be."""
    if not can_trace(model):
        return analytic(model, shape)

    def answer() -> Peaks:
        from swift_vlrft.memory.tracing import trace

        return trace(model.config, shape)

    try:
        key = [VERSION, _versions(), model.config, asdict(shape)]
        peaks = remembered("memory", key, answer)
    except Exception:  # a class or a configuration that does not run without data
        return analytic(model, shape)
    return Activations(with_copied_keys(model, shape, peaks), "traced")
