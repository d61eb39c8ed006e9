"""Find the locks that killed builds of torch's extensions have left.

DeepSpeed's operators are compiled, or looked up, under a file named ``lock`` beside each of them
(torch/utils/cpp_extension.py: _jit_compile; file_baton.py). Who holds it keeps it open. Who is
killed meanwhile leaves it, and torch waits for it without a bound and without a word.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def left_locks() -> list[Path]:
    """Return the locks in this user's torch folder that no process seen from here holds."""
    caches = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    folder, pattern = os.environ.get("TORCH_EXTENSIONS_DIR"), "*/lock"
    if folder is None:
        folder, pattern = os.path.join(caches, "torch_extensions"), "*/*/lock"
    left, locks = [], []
    with suppress(OSError):  # a folder that this user must not enter
        locks = list(Path(folder).glob(pattern))
    for lock in locks:
        with suppress(OSError):
            status = lock.stat()
            if not status.st_size and lock.is_file() and _holder(status) is None:
                left.append(lock.absolute())
    return left


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
