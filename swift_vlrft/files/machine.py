"""What a recipe may see of the machine that reads it: all of it, or nothing.

    read_text(mine)                # paths in it are looked up here, $HOME is mine
    with unseen():
        read_text(a_strangers)     # no path in it is opened or looked for, no variable is set

A path that a recipe or a command line names is looked up through these functions; so a page that
reads other people's recipes shows nothing of its own disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_seen: ContextVar[bool] = ContextVar("seen", default=True)


@contextmanager
def unseen() -> Iterator[None]:
    """Nothing of this machine is seen, in this thread, until the block ends."""
    before = _seen.set(False)
    try:
        yield
    finally:
        _seen.reset(before)


def seen() -> bool:
    return _seen.get()


def environment() -> Mapping[str, str]:
    """This process's variables, or none."""
    return os.environ if seen() else {}


def folder() -> str | None:
    """Where this process runs; None: not known."""
    return os.getcwd() if seen() else None


def expanded(path: str) -> str:
    """With ``~`` and ``~name`` as folders; as it is written where they are not seen."""
    return os.path.expanduser(path) if seen() else path


def is_file(path: str | Path) -> bool:
    return seen() and os.path.isfile(path)


def is_folder(path: str | Path) -> bool:
    return seen() and os.path.isdir(path)


def text_of(path: str | Path) -> str:
    """The text of a file; OSError as in ``Path.read_text``, and where nothing is seen."""
    if not seen():
        raise FileNotFoundError(f"{path}: no file is read here")
    return Path(path).read_text()
