"""Locks of torch's extension builds whose process was killed: every later run waits for them.

DeepSpeed's operators are compiled, or looked up, under a file named ``lock`` beside each of them
(torch/utils/cpp_extension.py: _jit_compile; file_baton.py). Who holds it keeps it open; who is
killed meanwhile leaves it, and torch waits without a bound and without a word until it is gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psutil

LONGEST = 300
"""Seconds. What holds a lock may be out of sight, in another container or on another machine; a
build takes one or two minutes."""
INTERVAL = 2
"""Seconds between two looks."""


def left_locks() -> list[Path]:
    """The locks that no process which is seen from here holds."""
    if given := os.environ.get("TORCH_EXTENSIONS_DIR"):
        locks = list(Path(given).glob("*/lock"))
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        locks = list((caches / "torch_extensions").glob("*/*/lock"))
    if not locks:
        return []
    held = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            held |= {file.path for file in process.open_files()}
    return [lock for lock in locks if os.path.realpath(lock) not in held]


def remove_left_locks(say: Callable[[str], None]) -> Thread | None:
    """In the background, each ``LONGEST`` seconds after it was made. None: there is no such lock.

    ``say`` is told of each, now and when it is removed.
    """
    made = {lock: times for lock in left_locks() if (times := _times(lock))}
    for lock, (_, age) in made.items():
        say(
            f"{lock} was left by a process that is no longer seen here: DeepSpeed would wait for "
            f"it forever. It is removed in {LONGEST - age:.0f} s; if nothing builds there in "
            f"another container or on another machine: rm {lock}"
        )
    thread = Thread(target=_remove, args=(made, time.monotonic(), say), daemon=True)
    if made:
        thread.start()
    return thread if made else None


def _times(lock: Path) -> tuple[tuple[int, int], float] | None:
    """What tells it from a later one of that name, and its age, 0 to ``LONGEST``."""
    try:
        found = lock.stat()
    except OSError:
        return None
    age = min(max(time.time() - found.st_mtime, 0), LONGEST)
    return (found.st_ino, found.st_ctime_ns), age


def _remove(
    made: dict[Path, tuple[tuple[int, int], float]], start: float, say: Callable[[str], None]
) -> None:
    while made:
        left = left_locks()
        for lock, (identity, age) in list(made.items()):
            now = _times(lock)
            if lock not in left or now is None or now[0] != identity:
                del made[lock]  # gone, or another process's
            elif time.monotonic() - start >= LONGEST - age:
                del made[lock]
                try:
                    lock.unlink(missing_ok=True)
                    say(f"{lock} was removed: nothing had held it for {LONGEST} seconds")
                except OSError as error:
                    say(f"{lock} cannot be removed ({error}): DeepSpeed waits for it")
        if made:
            time.sleep(INTERVAL)
