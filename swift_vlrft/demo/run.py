"""The demo from end to end: data, warm start, the recipe, what it learned.

    runs/demo/data/train, data/held_out   ViRFT Parquet
    runs/demo/start                       the warm-started checkpoint
    runs/demo/grpo                        what `swift rlhf` wrote; what it printed is in grpo.log
    runs/demo/eval/before, after          what `vlrft eval` wrote about the two checkpoints
    runs/demo/{summary.json,reward.png,answers.png,report.html}

Tasks other than colours have a folder of their own below, runs/demo/TASK.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.stages import Stages
from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.shipped import shipped_file

STEP = re.compile(r"'global_step/max_steps': '(\d+)/(\d+)'")
REWARD = re.compile(r"'reward': '([-\d.eE]+)'")


class DemoError(RuntimeError):
    """A part of the demo failed; the message says which, and where its output is."""


@dataclass(frozen=True)
class Summary:
    task: str
    reward_first: float  # mean reward of the first tenth of the steps
    reward_last: float  # of the last tenth
    steps: int
    seconds: float  # the whole demo, data and warm start included
    held_out_before: float  # mean reward of greedy answers on held-out images
    held_out_after: float
    held_out_rows: int
    metric: str  # what `vlrft eval` judges the task by
    metric_before: float
    metric_after: float
    difference_95: list[float | None]  # paired bootstrap interval of after - before


def run_demo(task: DemoTask, folder: Path, *, steps: int | None = None, seed: int = 0) -> Summary:
    """Run the demo in ``folder``, which is made anew. Raises DemoError."""
    began = time.monotonic()
    _make_anew(folder)
    with Stages() as stages:
        rng = random.Random(seed)
        train = task.make(rng, task.train_rows)
        held_out = task.make(rng, task.held_out_rows)
        write_parquet(train, folder / "data" / "train")
        write_parquet(held_out, folder / "data" / "held_out")

        advance = stages.begin("warm start: answers in format, at chance", task.warm_steps)
        from swift_vlrft.demo.warm_start import warm_start

        def warm(step: int, loss: float) -> None:
            advance(step, f"loss {loss:.2f}")

        warm_start(task, train, folder / "start", seed=seed, progress=warm)

        max_steps = steps or task.grpo_steps
        advance = stages.begin("swift rlhf --rlhf_type grpo", max_steps)

        def grpo(step: int, reward: float) -> None:
            advance(step, f"reward {reward:.2f}")

        rewards = train_grpo(task, folder, max_steps, grpo)

        from swift_vlrft.demo.answers import score_answers
        from swift_vlrft.demo.evaluate import compare_and_report, evaluate

        advance = stages.begin("held-out images, before and after", 2 * len(held_out))
        answers = []
        done = 0

        def answered(n: int) -> None:
            nonlocal done
            done += n
            advance(done, "")

        checkpoints = {"before": folder / "start", "after": last_checkpoint(folder / "grpo")}
        for name, checkpoint in checkpoints.items():
            out = folder / "eval" / name
            answers.append(evaluate(task, checkpoint, folder, out, answered))
        compared = compare_and_report(folder)
    before, after = (score_answers(task, held_out, texts) for texts in answers)
    tenth = max(1, len(rewards) // 10)
    summary = Summary(
        task.name,
        sum(rewards[:tenth]) / tenth,
        sum(rewards[-tenth:]) / tenth,
        len(rewards),
        round(time.monotonic() - began, 1),
        sum(before) / len(before),
        sum(after) / len(after),
        len(held_out),
        compared.headline,
        compared.metrics[compared.headline].a or 0.0,
        compared.metrics[compared.headline].b or 0.0,
        [compared.metrics[compared.headline].low, compared.metrics[compared.headline].high],
    )
    write_results(task, folder, summary, rewards, held_out, answers)
    return summary


def _make_anew(folder: Path) -> None:
    """Remove what an earlier demo wrote, and nothing else."""
    for name in ("data", "start", "grpo", "eval"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def train_grpo(
    task: DemoTask, folder: Path, steps: int, progress: Callable[[int, float], None]
) -> list[float]:
    """Run recipes/demo_cpu.sh as anyone would; the mean reward of every step. Its output goes to
    grpo.log.
    """
    environment = os.environ | {
        "MODEL": str(folder / "start"),
        "DATASET": str(folder / "data" / "train"),
        "OUTPUT_DIR": str(folder / "grpo"),
        "REWARD": task.reward,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    flags = {
        "max_steps": steps,
        "max_completion_length": task.max_completion_length,
        "learning_rate": task.learning_rate,
    }
    command = ["bash", str(shipped_file("recipes", "demo_cpu.sh"))]
    command += [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    log = folder / "grpo.log"
    tail: deque[str] = deque(maxlen=15)
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            tail.append(line)
            step, reward = STEP.search(line), REWARD.search(line)
            if step and reward:
                progress(int(step[1]), float(reward[1]))
    if process.wait() != 0:
        raise DemoError(
            f"`swift rlhf` ended with exit code {process.returncode}; {log} ends:\n{''.join(tail)}"
        )
    return step_rewards(folder / "grpo" / "logging.jsonl")


def step_rewards(log: Path) -> list[float]:
    """The mean reward of every training step, from ms-swift's logging.jsonl."""
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.strip()]
    return [float(row["reward"]) for row in rows if "reward" in row]


def last_checkpoint(folder: Path) -> Path:
    found = sorted(folder.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[-1]))
    if not found:
        raise DemoError(f"{folder} holds no checkpoint")
    return found[-1]


def write_results(
    task: DemoTask,
    folder: Path,
    summary: Summary,
    rewards: list[float],
    rows: list[Row],
    answers: list[list[str]],
) -> None:
    from swift_vlrft.demo.pictures import draw_answers, draw_rewards

    (folder / "summary.json").write_text(json.dumps(vars(summary), indent=2) + "\n")
    draw_rewards(rewards, folder / "reward.png")
    draw_answers(task, rows, answers, folder / "answers.png")
