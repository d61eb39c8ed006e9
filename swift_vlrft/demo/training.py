"""Run a training command of ms-swift, and follow what it logs.

    with training(["swift", "sft", ...], Path("runs/try/mine/sft")) as logged:
        for metrics in logged:      # of every step, with --logging_steps 1
            ...                     {"loss": 7.25, "global_step/max_steps": "1/400", ...}

What it prints goes to runs/try/mine/sft.log; its --output_dir is runs/try/mine/sft.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import json_lines

POLL = 0.5  # seconds


class TrialError(ChildProcessError):
    """A stage of a trial failed; the message says which, and where its output is."""

    exit_code = 1


def flags_of(values: Mapping[str, object]) -> list[str]:
    """Return the words of a command that set these flags."""
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


@contextmanager
def training(
    command: Sequence[str], out: Path, **variables: str
) -> Iterator[Iterator[dict[str, Any]]]:
    """Run a command beside the block, and give the metrics that it logs.

    It ends with the block, also by a signal that ends this process.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, _: sys.exit(128 + received))
    shutil.rmtree(out, ignore_errors=True)  # of a trial that was interrupted there
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with out.with_suffix(".log").open("w") as log:
        # In a session of its own: bash, `swift` and its Python end together.
        process = subprocess.Popen(
            [*command],
            env=os.environ | {"PATH": path} | variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _steps(process, out)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _steps(process: subprocess.Popen[bytes], out: Path) -> Iterator[dict[str, Any]]:
    ended, seen = False, 0
    while not ended:
        ended = process.poll() is not None
        logged = logged_steps(out)
        yield from logged[seen:]
        seen = len(logged)
        if not ended:
            time.sleep(POLL)
    if process.returncode != 0:
        log = out.with_suffix(".log")
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise TrialError(f"training ended with exit code {process.returncode}; {log} ends:\n{tail}")


def logged_steps(out: Path) -> list[dict[str, Any]]:
    """Return each step's metrics, from ms-swift's logging.jsonl as far as it is written."""
    file = out / "logging.jsonl"
    lines = json_lines(file) if file.exists() else ()
    # The last lines sum the run up.
    return [row for _, row in lines if isinstance(row, dict) and "loss" in row]
