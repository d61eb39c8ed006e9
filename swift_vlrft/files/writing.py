"""Write to a temporary file, then rename: the old file stays until the new one is complete."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

FULL = {
    errno.ENOSPC: "no space is left on its disk",
    errno.EDQUOT: "the quota of its disk is used up",
    errno.EFBIG: "a file so large is not allowed (`ulimit -f`, or the file system)",
}
ABANDONED_AFTER = 3600
"""Seconds that a file which nobody holds a lock on is left alone: some network file systems lock
for one node only."""

_UNFINISHED = re.compile(r"\..*\.[0-9a-f]{12}\.unfinished")
_tidied: set[Path] = set()
"""Folders in which this process has looked for what killed ones left."""


class DiskFull(OSError):
    """Writing failed for want of space; the message names file, cause and what to do."""


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes ``path`` when the block ends without an error.

    It is hidden, in the same folder, and another one in every process on every node; a link is
    followed, so that its target is replaced. What reaches ``path`` is on the disk: neither a kill
    nor a power cut leaves half a file there. DiskFull where there is no space.
    """
    path = Path(os.path.realpath(path))
    with space_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name[:40]}.{uuid4().hex[:12]}.unfinished")
        # Locked while this process lives, so that no other one takes it for abandoned.
        held = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with suppress(OSError):  # not every file system can
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_abandoned(path.parent, os.fstat(held).st_mtime)
            yield unfinished
            on_disk(unfinished)
            with suppress(OSError):  # of what is replaced: a file that is private stays so
                unfinished.chmod(path.stat().st_mode & 0o777)
            os.replace(unfinished, path)
        finally:
            os.close(held)
            unfinished.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """The file holds all of ``content``, or what it held before."""
    with beside(path) as unfinished:
        if isinstance(content, str):
            content = content.encode("utf-8")
        unfinished.write_bytes(content)


def on_disk(path: Path) -> None:
    """Wait until the disk has the file: some report only then that they are full."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


@contextmanager
def space_named(path: Path) -> Iterator[None]:
    """DiskFull, which names ``path``, for an error of writing that says nothing but its cause."""
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
    """ " (3 MB free in /data)", for a message."""
    there = next((one for one in (path, *path.parents) if one.exists()), Path("/"))
    with suppress(OSError):
        return f" ({shutil.disk_usage(there).free / 1e6:.0f} MB free in {there})"
    return ""


def _remove_abandoned(folder: Path, now: float) -> None:
    """Remove the temporary files of killed processes, once for every folder. ``now`` is by the
    folder's own disk: the clock of this machine may be another, or have jumped.
    """
    if folder in _tidied:
        return
    _tidied.add(folder)
    with suppress(OSError):
        unfinished = [one for one in folder.iterdir() if _UNFINISHED.fullmatch(one.name)]
        for one in unfinished:
            with suppress(OSError):
                if now - one.stat().st_mtime > ABANDONED_AFTER:
                    with one.open("rb") as file:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else it is being written
                        one.unlink()
