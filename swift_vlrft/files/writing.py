"""Write to a temporary file, then rename: the old file stays until the new one is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``path`` when the block ends without an error.

    It is hidden, in the same folder; a link is followed, so that its target is replaced.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """The file holds all of ``content``, or what it held before."""
    with beside(path) as unfinished:
        if isinstance(content, str):
            content = content.encode("utf-8")
        unfinished.write_bytes(content)
