"""What one forward and backward pass keeps: traced where torch is, else in closed form.

A trace takes seconds and is kept in the user's cache folder under everything that it depends on
(configuration, shape, versions of tracing.py, torch and transformers).
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swift_vlrft.files.writing import write_atomically
from swift_vlrft.memory.analytic import analytic
from swift_vlrft.memory.models import Model
from swift_vlrft.memory.stages import Activations, BatchShape, with_copied_keys

VERSION = 2
"""Raised when tracing.py changes what it counts, so that old results are not taken."""


def can_trace(model: Model) -> bool:
    return model.simulated and _installed()


@lru_cache
def _installed() -> bool:
    return all(find_spec(name) for name in ("torch", "transformers"))


@lru_cache
def _versions() -> list[str]:
    return [metadata.version(name) for name in ("torch", "transformers")]


def traced(model: Model, shape: BatchShape) -> Activations:
    """From the cache or by a trace; in closed form (``how`` says so) where there can be none."""
    if not can_trace(model):
        return analytic(model, shape)
    file = cache_file(model, shape)
    try:
        peaks = json.loads(file.read_text())
    except (OSError, ValueError):
        from swift_vlrft.memory.tracing import trace

        try:
            peaks = trace(model.config, shape)
        except Exception:  # a class or a configuration that does not run without data
            return analytic(model, shape)
        with suppress(OSError):  # no cache is no loss
            write_atomically(file, json.dumps(peaks))
    return Activations(with_copied_keys(model, shape, peaks), "traced")


def cache_file(model: Model, shape: BatchShape) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = json.dumps(
        [VERSION, _versions(), _without_context(model.config), asdict(shape)], sort_keys=True
    )
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return base / "swift_vlrft" / "memory" / f"{name}.json"


def _without_context(config: dict[str, Any]) -> dict[str, Any]:
    """The longest row that a model takes changes nothing in a row that is shorter."""
    return {
        name: _without_context(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name != "max_position_embeddings"
    }
