"""No run waits forever for a build of torch's extensions whose process was killed.

DeepSpeed's operators are compiled, or looked up, under a file named ``lock`` beside each of them
(torch/utils/cpp_extension.py: _jit_compile; file_baton.py). Who holds it keeps it open. Who is
killed meanwhile leaves it, and torch waits for it without a bound and without a word; once it is
gone, those who waited load what is there, finished or not.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

LONGEST = 300
"""Seconds. The holder may be out of sight, in another container or on another machine, and the
compiler of one that was killed may go on; a build takes one or two minutes."""
INTERVAL = 0.1
"""Seconds between two looks at a lock, as in torch; each 20th time also at who has it open."""

REMEDY = "If nothing builds there for another user, in another container or on another machine"


def take_turns(say: Callable[[str], None]) -> None:
    """From here torch takes a lock that no living process holds, ``LONGEST`` seconds after it was
    made, and who waited for one looks whether there is something to build.

    ``say`` is told what is waited for, and of each lock that is removed.
    """
    from torch.utils.file_baton import FileBaton

    acquire, release = FileBaton.try_acquire, FileBaton.release
    if hasattr(acquire, "__wrapped__"):
        return

    @wraps(acquire)
    def acquire_in_turn(self: Any) -> bool:
        while not acquire(self):
            _wait(Path(self.lock_file_path).absolute(), say)
        return True

    @wraps(release)
    def release_if_held(self: Any) -> None:
        with suppress(FileNotFoundError):  # a build of more than LONGEST seconds, out of sight
            release(self)

    FileBaton.try_acquire = acquire_in_turn
    FileBaton.release = release_if_held


def left_locks() -> list[Path]:
    """The locks in torch's folder of this user that no process which is seen from here holds."""
    caches = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    folder, pattern = os.environ.get("TORCH_EXTENSIONS_DIR"), "*/lock"
    if folder is None:
        folder, pattern = os.path.join(caches, "torch_extensions"), "*/*/lock"
    left, locks = [], []
    with suppress(OSError):  # a folder that this user must not enter
        locks = list(Path(folder).glob(pattern))
    for lock in locks:
        with suppress(OSError):
            found = lock.stat()
            if not found.st_size and lock.is_file() and _holder(found) is None:
                left.append(lock.absolute())
    return left


def _wait(lock: Path, say: Callable[[str], None]) -> None:
    """Until it is gone, or removed."""
    said: object = None
    identity: object = None
    end = 0.0
    for look in count():
        try:
            now = lock.lstat()
        except OSError:
            time.sleep(INTERVAL)
            return
        if identity != _identity(now):
            identity = _identity(now)
            end = time.monotonic() + LONGEST - (time.time() - now.st_mtime)
        if look % 20 == 19:
            holder = _holder(now)
            left = end - time.monotonic()
            if holder is None and left <= 0:
                _remove(lock, now, say)
            elif said != (identity, holder):
                said = (identity, holder)
                say(_what_holds(lock, holder, left))
        time.sleep(INTERVAL)


def _what_holds(lock: Path, holder: int | None, left: float) -> str:
    """``left``: seconds until it is removed."""
    if holder is not None:
        return f"DeepSpeed waits for process {holder}, which builds in {lock.parent}"
    return (
        f"DeepSpeed waits for {lock}, which no process seen here holds: it is removed in "
        f"{left:.0f} s. {REMEDY}: rm {shlex.quote(str(lock))}"
    )


def _identity(found: os.stat_result) -> tuple[int, int]:
    """A later lock may have the number of this one."""
    return found.st_ino, found.st_ctime_ns


def _holder(lock: os.stat_result) -> int | None:
    """A process that has it open. Not psutil's open_files: that knows none of a process whose
    output goes where this user must not look.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for file in os.scandir(process / "fd"):
                with suppress(OSError):
                    if os.path.samestat(os.stat(file.path), lock):
                        return int(process.name)
    return None


def _remove(lock: Path, left: os.stat_result, say: Callable[[str], None]) -> None:
    """Unless another process does so at the same time, and has made it anew; OSError: it cannot."""
    folder = os.open(lock.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # NFS
            fcntl.flock(folder, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if _identity(lock.lstat()) == _identity(left):
                lock.unlink()
                say(f"{lock} was removed: it was older than {LONGEST} s, and nothing here held it")
    finally:
        os.close(folder)
