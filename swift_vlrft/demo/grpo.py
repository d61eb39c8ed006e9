"""The road's GRPO run starts recipes/demo_cpu.sh, follows its steps, and ends with the road."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from swift_vlrft.files.shipped import shipped_file

FORMAT = "vlrft_format"
POLL = 0.5  # seconds


class RoadError(ChildProcessError):
    """A part of the road failed; the message says which, and where its output is."""

    exit_code = 1


@contextmanager
def training(
    folder: Path, rewards: Sequence[str], **flags: object
) -> Iterator[Iterator[tuple[int, dict[str, float]]]]:
    """Run recipes/demo_cpu.sh with these flags of ms-swift beside what the block does; give the
    steps and mean rewards as they come. Its output goes to grpo.log.
    """
    shutil.rmtree(folder / "grpo", ignore_errors=True)  # of a road that was interrupted there
    environment = os.environ | {
        "MODEL": str(folder / "start"),
        "DATASET": f"{folder / 'data'}:native",
        "OUTPUT_DIR": str(folder / "grpo"),
        "REWARDS": " ".join(rewards),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["bash", str(shipped_file("recipes", "demo_cpu.sh"))]
    command += [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    with (folder / "grpo.log").open("w") as out:
        # In a session of its own: bash, `swift` and its Python end together.
        process = subprocess.Popen(
            command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield _steps(process, folder, rewards)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _steps(
    process: subprocess.Popen[bytes], folder: Path, rewards: Sequence[str]
) -> Iterator[tuple[int, dict[str, float]]]:
    ended = False
    seen: set[int] = set()
    while not ended:
        ended = process.poll() is not None
        logged = curves(folder, rewards)
        for step in sorted(logged[FORMAT].keys() - seen):  # which scores every row
            yield step, {name: of[step] for name, of in logged.items() if step in of}
        seen |= logged[FORMAT].keys()
        if not ended:
            time.sleep(POLL)
    if process.returncode != 0:
        text = (folder / "grpo.log").read_text(errors="replace")
        tail = "\n".join(text.splitlines()[-15:])
        raise RoadError(
            f"`swift rlhf` ended with exit code {process.returncode}; "
            f"{folder / 'grpo.log'} ends:\n{tail}"
        )


def curves(folder: Path, rewards: Sequence[str]) -> dict[str, dict[int, float]]:
    """Return the mean of each reward, and of the format, by training step."""
    log = folder / "grpo" / "logging.jsonl"
    return {name: step_rewards(log, f"rewards/{name}/mean") for name in (*rewards, FORMAT)}


def step_rewards(log: Path, name: str = "reward") -> dict[int, float]:
    """Return the values of a metric by training step, from ms-swift's logging.jsonl as far as it is
    written: with several tasks, a step lacks the rewards of tasks that it has no row of.
    """
    if not log.exists():
        return {}
    lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    rows = [json.loads(line) for line in lines if line.strip()]
    return {
        int(row["global_step/max_steps"].partition("/")[0]): float(row[name])
        for row in rows
        if name in row
    }
