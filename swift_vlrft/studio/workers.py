"""Processes that wait for a question (worker.py), so that an answer need not wait for imports.

    workers = Workers(2)
    workers.ask("check", {"script": "swift rlhf ..."}, seconds=10, gib=1)       HTML

A process answers one question: nothing of a user is left when the next one asks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "COVERAGE_PROCESS_START"),
)
"""Variables that a worker has; not the tokens of a Space."""


class Workers:
    """``spares``: how many wait; ``close`` ends them."""

    def __init__(self, spares: int) -> None:
        self._spares: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for _ in range(spares):
            self._spares.put(_start())

    def ask(self, ask: str, values: dict[str, Any], *, seconds: int, gib: float) -> str:
        """The answer; ValueError in one line where there is none."""
        try:
            worker = self._spares.get_nowait()
        except Empty:
            worker = _start()
        else:
            self._spares.put(_start())
        question = {"ask": ask, "values": values, "seconds": seconds, "gib": gib}
        assert worker.stdout is not None
        try:
            worker.stdout.read(1)
            given, _ = worker.communicate(json.dumps(question).encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ValueError(
                f"this takes longer than {seconds} s, the most that a question may"
            ) from None
        finally:
            _end(worker)
        try:
            found = json.loads(given)
        except ValueError:  # killed by a limit, mostly
            raise ValueError("this takes more time or memory than a question may") from None
        if "error" in found:
            raise ValueError(found["error"])
        return str(found["html"])

    def close(self) -> None:
        with suppress(Empty):
            while True:
                _end(self._spares.get_nowait())


def _start() -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "swift_vlrft.studio.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment,
        cwd="/",
        start_new_session=True,
    )


def _end(worker: subprocess.Popen[bytes]) -> None:
    """It and what it started."""
    with suppress(OSError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
