"""Write to a temporary file, then rename: the old file stays until the new one is complete."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from swift_vlrft.files.text import InputError

FULL = {
    errno.ENOSPC: "no space is left on its disk",
    errno.EDQUOT: "the quota of its disk is used up",
    errno.EFBIG: "a file of this size is not allowed (`ulimit -f`, or the file system)",
}


class DiskFull(OSError):
    """Writing failed for want of space; the message names file, cause and what to do."""


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Give a path to write to, which becomes ``path`` when the block ends without an error.

    It is hidden, in the same folder, and another one in every process on every node; a link is
    followed, so that its target is replaced. What reaches ``path`` is on the disk: neither a kill
    nor a power cut leaves half a file there. DiskFull where there is no space.
    """
    refuse_address(path)
    path = Path(os.path.realpath(path))
    with space_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name[:40]}.{uuid4().hex[:12]}.unfinished")
        try:
            yield unfinished
            on_disk(unfinished)
            with suppress(OSError):  # of what is replaced: a file that is private stays so
                unfinished.chmod(path.stat().st_mode & 0o777)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that holds all of ``content``, or what it held before."""
    with beside(path) as unfinished:
        if isinstance(content, str):
            content = content.encode("utf-8")
        unfinished.write_bytes(content)


def refuse_address(path: Path) -> None:
    """Raise InputError for s3://bucket/set, which would be a folder "s3:" here."""
    if re.match(r"[\w+.-]+:/", str(path)):
        raise InputError(f"{path} is an address; name a local path, and copy the result there")


def on_disk(path: Path) -> None:
    """Wait until the disk has the file: some report only then that they are full."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


@contextmanager
def space_named(path: Path) -> Iterator[None]:
    """Raise DiskFull, which names ``path``, for an error of writing that names only its cause."""
    try:
        yield
    except DiskFull:
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFull(
            f"{path} could not be written: {FULL[error.errno]}{free_space(path)}. Make room, or "
            "name another place, and start again; what was there before is as it was"
        ) from error


def free_space(path: Path) -> str:
    """Return " (3 MB free in /data)", for a message."""
    there = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    with suppress(OSError):
        return f" ({shutil.disk_usage(there).free / 1e6:.0f} MB free in {there})"
    return ""
