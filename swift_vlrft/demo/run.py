"""The demo from end to end: data, warm start, training, evaluation.

    runs/demo/data/train, data/held_out   ViRFT Parquet
    runs/demo/start                       the warm-started checkpoint
    runs/demo/grpo                        what `swift rlhf` wrote; what it printed is in grpo.log
    runs/demo/eval/before, after          `vlrft eval` of the two checkpoints; the first runs while
                                          `swift rlhf` starts. With several tasks, a folder for each
    runs/demo/{summary.json,reward.png,answers.png,report.html}

Tasks other than colours write to a folder below, runs/demo/TASK.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.rows import Row
from swift_vlrft.demo.tasks import DemoTask
from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.files.writing import beside, write_atomically
from swift_vlrft.parsing.answers import gold_text, read
from swift_vlrft.report.reward_picture import draw_rewards

FORMAT = "vlrft_format"
POLL = 0.5  # seconds
SHOWN, COLUMNS = 12, 6  # pictures of answers

Advance = Callable[[int, str], None]
"""Takes the steps done, and a note."""


class DemoError(ChildProcessError):
    """A part of the demo failed; the message says which, and where its output is."""

    exit_code = 1


def run_demo(
    task: DemoTask, folder: Path, *, steps: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Run the demo in ``folder``, emptied of an earlier one; what summary.json holds."""
    started = time.monotonic()
    _remove_earlier(folder)
    steps = steps or task.grpo_steps
    rng = random.Random(seed)
    train = task.make(rng, task.train_rows)
    held_out = task.make(rng, task.held_out_rows, held_out=True)
    write_parquet(train, folder / "data" / "train")
    write_parquet(held_out, folder / "data" / "held_out")
    with _stages() as begin:
        from swift_vlrft.demo.warm_start import warm_start

        advance = begin("warm start: answers in format, at chance", task.warm_steps)
        warm_start(task, train, folder / "start", seed=seed, progress=advance)

        def answers_of(name: str, checkpoint: Path) -> list[str]:
            advance = begin(f"held-out images, {name}", len(held_out))
            return _answers(task, held_out, checkpoint, folder, name, advance)

        with training(task, folder, steps) as run:
            answers = [answers_of("before", folder / "start")]
            advance = begin("swift rlhf --rlhf_type grpo", steps)
            for step, rewards in run:
                advance(step, " ".join(f"{name} {value:.2f}" for name, value in rewards.items()))
        found = list((folder / "grpo").glob("checkpoint-*"))
        if not found:
            raise DemoError(f"{folder / 'grpo'} holds no checkpoint")
        last = max(found, key=lambda path: int(path.name.split("-")[-1]))
        answers.append(answers_of("after", last))
        from swift_vlrft.report.page import write_report

        # A page shows one evaluation before and after; several tasks have curves each.
        sides = [folder / "eval" / name for name in ("before", "after")]
        write_report(folder / "grpo", sides if len(task.kinds) == 1 else [], folder / "report.html")
    before, after = (task.scores(held_out, texts) for texts in answers)
    curves = _curves(task, folder)
    summary: dict[str, Any] = {"task": task.name, "rewards": {}}
    for kind, name in zip(task.kinds, task.rewards, strict=True):
        rows = [n for n, row in enumerate(held_out) if task.kind_of(row) == kind]
        summary["rewards"][name] = _ends(curves[name]) | {
            "held_out_before": mean(before[n] for n in rows),  # of greedy answers
            "held_out_after": mean(after[n] for n in rows),
            "held_out_rows": len(rows),
            **_compared(folder, kind if len(task.kinds) > 1 else ""),
        }
    summary |= {
        "format": _ends(curves[FORMAT]),
        "steps": len(curves[FORMAT]),
        "seconds": round(time.monotonic() - started, 1),  # data and warm start included
    }
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    with beside(folder / "reward.png") as unfinished:
        draw_rewards(curves, unfinished)
    draw_answers(task, held_out, answers, folder / "answers.png")
    return summary


def _ends(values: list[float]) -> dict[str, float]:
    """Means of the first and the last tenth."""
    tenth = max(1, len(values) // 10)
    return {"first": mean(values[:tenth]), "last": mean(values[-tenth:])}


def _compared(folder: Path, kind: str) -> dict[str, Any]:
    """The headline metric of the two evaluations."""
    from swift_vlrft.evaluation.compare import compare_runs

    compared = compare_runs(*(folder / "eval" / side / kind for side in ("before", "after")))
    headline = compared.metrics[compared.headline]
    return {
        "metric": compared.headline,
        "metric_before": headline.a or 0.0,
        "metric_after": headline.b or 0.0,
        "difference_95": [headline.low, headline.high],  # paired bootstrap of after - before
    }


def _answers(
    task: DemoTask,
    held_out: list[Row],
    checkpoint: Path,
    folder: Path,
    name: str,
    advance: Advance,
) -> list[str]:
    """Greedy answers on the held-out images, row by row; summaries and predictions are in
    ``folder``/eval/``name``.
    """
    from swift_vlrft.evaluation import read_predictions
    from swift_vlrft.swift_plugin.evaluate import evaluate

    done = 0

    def answered(total: int, n: int) -> None:
        nonlocal done
        done += n
        advance(done, "")

    settings: dict[str, Any] = {"engine": "transformers", "batch_size": 64, "dtype": "float32"}
    settings |= {"max_tokens": task.max_completion_length, "workers": 1}
    answers: dict[str, Iterator[str]] = {}
    for kind in task.kinds:
        out = folder / "eval" / name / (kind if len(task.kinds) > 1 else "")
        data = folder / "data" / "held_out"
        evaluate(checkpoint, data, kind, out=out, progress=answered, **settings)
        answers[kind] = (row.completion for row in read_predictions(out).rows)
    return [next(answers[task.kind_of(row)]) for row in held_out]


def _remove_earlier(folder: Path) -> None:
    """Remove what an earlier demo wrote, and nothing else. grpo.log is there from its beginning."""
    log = folder / "grpo.log"
    there = [folder / name for name in ("data", "start", "grpo", "eval")]
    there = [path for path in there if path.exists()]
    if there and not log.exists():
        raise DemoError(f"{there[0]} would be deleted, and is not a demo's; choose another --out")
    for old in there:
        shutil.rmtree(old)
    for name in ("summary.json", "reward.png", "answers.png", "report.html"):
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    log.touch()


@contextmanager
def _stages() -> Iterator[Callable[[str, int], Advance]]:
    """``begin(name, steps)`` shows a bar; where there is no terminal, a line for every tenth."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bars:

        def begin(name: str, total: int) -> Advance:
            bar = bars.add_task(name, total=total)

            def advance(done: int, note: str) -> None:
                bars.update(bar, completed=done, description=f"{name} {note}")
                if not console.is_terminal and (done % max(1, total // 10) == 0 or done == total):
                    console.print(f"{name}: {done}/{total} {note}", highlight=False)

            return advance

        yield begin


@contextmanager
def training(
    task: DemoTask, folder: Path, steps: int
) -> Iterator[Iterator[tuple[int, dict[str, float]]]]:
    """Run recipes/demo_cpu.sh beside what the block does; gives the steps and mean rewards as they
    come. Its output goes to grpo.log.
    """
    environment = os.environ | {
        "MODEL": str(folder / "start"),
        "DATASET": str(folder / "data" / "train"),
        "OUTPUT_DIR": str(folder / "grpo"),
        "REWARDS": " ".join(task.rewards),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["bash", str(shipped_file("recipes", "demo_cpu.sh")), "--max_steps", str(steps)]
    command += ["--max_completion_length", str(task.max_completion_length)]
    command += ["--learning_rate", str(task.learning_rate)]
    with (folder / "grpo.log").open("w") as out:
        # In a session of its own: bash, `swift` and its Python end together.
        process = subprocess.Popen(
            command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield _steps(process, task, folder)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _steps(
    process: subprocess.Popen[bytes], task: DemoTask, folder: Path
) -> Iterator[tuple[int, dict[str, float]]]:
    seen, ended = 0, False
    while not ended:
        ended = process.poll() is not None
        logged = _curves(task, folder)
        for step in range(seen, len(logged[FORMAT])):  # which scores every row
            seen = step + 1
            yield seen, {name: values[step] for name, values in logged.items() if values[step:]}
        if not ended:
            time.sleep(POLL)
    if process.returncode != 0:
        text = (folder / "grpo.log").read_text(errors="replace")
        tail = "\n".join(text.splitlines()[-15:])
        raise DemoError(
            f"`swift rlhf` ended with exit code {process.returncode}; "
            f"{folder / 'grpo.log'} ends:\n{tail}"
        )


def _curves(task: DemoTask, folder: Path) -> dict[str, list[float]]:
    log = folder / "grpo" / "logging.jsonl"
    return {name: step_rewards(log, f"rewards/{name}/mean") for name in (*task.rewards, FORMAT)}


def step_rewards(log: Path, name: str = "reward") -> list[float]:
    """One number of every training step, from ms-swift's logging.jsonl as far as it is written."""
    if not log.exists():
        return []
    lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    rows = [json.loads(line) for line in lines if line.strip()]
    return [float(row[name]) for row in rows if name in row]


# ---- figures -----------------------------------------------------------------------------------


def draw_answers(task: DemoTask, rows: list[Row], answers: list[list[str]], path: Path) -> None:
    """``answers``: the texts before and after. Boxes: gold white, before red, after green."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.6 * SHOWN / COLUMNS), layout="constrained")
    grid = figure.subplots(SHOWN // COLUMNS, COLUMNS, squeeze=False)
    scores = [task.scores(rows, texts) for texts in answers]
    for i, (axes, row) in enumerate(zip(grid.flat, rows, strict=False)):
        before, after = answers[0][i], answers[1][i]
        axes.imshow(row.image, extent=(0, 1000, 1000, 0))
        if task.kinds == ["detection"]:
            for text, colour in ((row.solution, "white"), (before, "red"), (after, "lime")):
                found = read(text).boxes
                for x1, y1, x2, y2 in filter(None, found.boxes if found else ()):
                    axes.plot([x1, x2, x2, x1, x1], [y1, y1, y2, y2, y1], color=colour, lw=2)
            title = f"reward before {scores[0][i]:.2f}, after {scores[1][i]:.2f}"
        else:
            texts = [(read(text).text or "(no answer)")[:20] for text in (before, after)]
            title = f"{gold_text(row.solution)}\nbefore {texts[0]}\nafter {texts[1]}"
        axes.set_title(title, fontsize=8, color="black" if scores[1][i] >= 0.5 else "firebrick")
        axes.set(xticks=[], yticks=[])
    with beside(path) as unfinished:
        figure.savefig(unfinished, dpi=110, format="png")
