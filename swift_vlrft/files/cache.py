"""Answers that take seconds, kept as JSON in the user's cache folder under all they depend on."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from swift_vlrft.files.writing import write_atomically


def cache_file(kind: str, key: Any) -> Path:
    """Where the answer to ``key`` (anything that JSON can say) is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    text = json.dumps(key, sort_keys=True)
    name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    return Path(base) / "swift_vlrft" / kind / name


def kept(file: Path) -> Any:
    """The answer, or None where none is kept or it cannot be read."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def keep(file: Path, answer: Any) -> None:
    """A folder that cannot be written costs time and nothing else."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(answer))
    except OSError:
        return
