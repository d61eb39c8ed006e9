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
    return tuple(
        Gpu(name, int(memory) if memory.isdigit() else None, driver)
        for name, memory, driver in ask_gpus("name", "memory.total", "driver_version")
    )


def ask_gpus(*properties: str) -> list[list[str]]:
    """Return these properties of every GPU, as installed_gpus() does."""
    query = f"--query-gpu={','.join(properties)}"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except FileNotFoundError:
        return []
    except subprocess.TimeoutExpired:
        raise TimeoutError("nvidia-smi hangs") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(reason[0] if reason else "nvidia-smi fails")
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
