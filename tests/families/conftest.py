"""Tiny checkpoints of the families, each written once when a test first asks for it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Callable[[str], Path]:
    from swift_vlrft.tiny.checkpoint import write_tiny

    folder = tmp_path_factory.mktemp("tiny")

    @cache
    def written(name: str) -> Path:
        write_tiny(name, folder / name)
        return folder / name

    return written
