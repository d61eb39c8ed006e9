"""Ports and folders that a test has for itself: no other test, worker or run on this machine."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import TextIO

PORTS = range(20_000, 32_000)
"""Below those that Linux takes for outgoing connections."""
LOCKS = Path(tempfile.gettempdir()) / f"vlrft-test-ports-{os.getuid()}"
_held: list[TextIO] = []


def free_port() -> str:
    """Return a port on which nobody listens, and that no test gets while this process lives."""
    LOCKS.mkdir(exist_ok=True)
    for port in PORTS:
        lock = (LOCKS / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as taking:
                taking.bind(("", port))
        except OSError:
            lock.close()
        else:
            _held.append(lock)
            return str(port)
    raise OSError(f"no port of {PORTS} is free")


def own_folders(folder: Path) -> dict[str, str]:
    """Return the variables that put below ``folder`` what a test's processes store for later."""
    return {
        "MODELSCOPE_CACHE": str(folder / "modelscope"),
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "HF_HUB_CACHE": str(folder / "hub"),
        "TORCH_EXTENSIONS_DIR": str(folder / "operators"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torchinductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "VLLM_CACHE_ROOT": str(folder / "vllm"),
        "XDG_CACHE_HOME": str(folder / "cache"),  # of libraries that have no variable
    }
