"""Results that take seconds to compute are cached as JSON in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from swift_vlrft.files.writing import write_atomically


def remembered(kind: str, key: Any, answer: Callable[[], Any]) -> Any:
    """Return the result of ``answer`` for this ``key`` (all that it depends on), cached or new.

    Key and result are JSON. If the folder cannot be written, nothing is cached.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    file = Path(base) / "swift_vlrft" / kind / f"{digest}.json"
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        value = answer()
    with suppress(OSError):
        write_atomically(file, json.dumps(value))
    return value
