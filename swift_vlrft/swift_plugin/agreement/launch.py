"""Start the measuring processes, and say why they ended without a result."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from swift_vlrft.recipe.reader import Recipe
from swift_vlrft.recipe.run import Run

WORKER = "swift_vlrft.swift_plugin.agreement.process"
CLUSTER_VARIABLES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "NNODES"}
"""Variables with which a process waits for other nodes, as only `torchrun` should."""


def measure(recipe: Recipe, run: Run, words: list[str], log: Path) -> int:
    """Run the measuring processes to their end, and return their exit status.

    They are started as ms-swift's launcher starts those of a training.
    """
    processes, address = run.count("NPROC_PER_NODE") or 1, "127.0.0.1"
    with socket.socket() as free:  # the recipe's own may be that of a training
        free.bind((address, 0))
        port = str(free.getsockname()[1])
    inherited = {k: v for k, v in recipe.environment.items() if k not in CLUSTER_VARIABLES}
    environment = inherited | {"NPROC_PER_NODE": str(processes)}
    environment |= {"MASTER_PORT": port, "MASTER_ADDR": address}
    launched = [sys.executable, "-m", WORKER]
    if "NPROC_PER_NODE" in recipe.environment or processes > 1 or "--deepspeed" in words:
        started = ["--nproc_per_node", str(processes), "--master_addr", address]
        started += ["--master_port", port]
        launched = [sys.executable, "-m", "torch.distributed.run", *started, "-m", WORKER]
    with log.open("w") as file:
        to_log: Any = {"stdout": file, "stderr": subprocess.STDOUT}
        return subprocess.call([*launched, *words], env=environment, cwd=recipe.folder, **to_log)


def why_not(result: Path, log: Path, code: int) -> str:
    """Say what ended the measuring process, and where all that it printed is."""
    said, printed = result.with_suffix(".error"), log.read_text(errors="replace").splitlines()
    if said.is_file():
        text = " ".join(said.read_text(errors="replace").split())
    elif code == -signal.SIGKILL:
        text = "it was killed (SIGKILL), most likely because the memory ran out"
    else:  # a launcher of several processes ends with what became of them, and a rule
        words = [line.strip() for line in printed if any(map(str.isalpha, line))]
        text = words[-1] if words else f"it ended with exit code {code} and printed nothing"
    return f"{text[:600].rstrip('.')} (all of it: {log})"
