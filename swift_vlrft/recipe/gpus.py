"""Ask nvidia-smi for the GPUs of this machine; nothing else in the package runs it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import lru_cache

SECONDS = 20


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    mib: int | None
    """Memory in MiB; None if the GPU shares the host's and says [N/A]."""
    driver: str


@lru_cache
def installed_gpus() -> tuple[Gpu, ...]:
    """Return all GPUs, none without nvidia-smi; OSError says why nvidia-smi failed."""
    query = "--query-gpu=name,memory.total,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except FileNotFoundError:
        return ()
    except subprocess.TimeoutExpired:
        raise TimeoutError("nvidia-smi hangs") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(reason[0] if reason else "nvidia-smi fails")
    gpus = []
    for line in done.stdout.strip().splitlines():
        name, memory, driver = (part.strip() for part in line.rsplit(",", 2))
        gpus.append(Gpu(name, int(memory) if memory.isdigit() else None, driver))
    return tuple(gpus)


def gpus_here() -> int:
    """Return how many GPUs nvidia-smi lists; 0 if it is missing or fails."""
    try:
        return len(installed_gpus())
    except OSError:
        return 0
