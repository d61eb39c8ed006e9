"""`vlrft eval` of the demo's checkpoints before and after, and the report on both.

runs/demo/eval/before, runs/demo/eval/after    predictions.jsonl, summary.json
runs/demo/report.html
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from swift_vlrft.demo.tasks import DemoTask
from swift_vlrft.evaluation import read_predictions, summarise
from swift_vlrft.evaluation.compare import Comparison, compare
from swift_vlrft.evaluation.questions import Settings
from swift_vlrft.evaluation.run import begin, finish
from swift_vlrft.evaluation.summary import write_summary
from swift_vlrft.report import write_report

BATCH = 64


def evaluate(
    task: DemoTask, checkpoint: Path, folder: Path, out: Path, progress: Callable[[int, str], None]
) -> list[str]:
    """Greedy answers on the held-out images, row by row; summary and predictions are in ``out``."""
    os.environ.setdefault("LOG_LEVEL", "WARNING")  # read by ms-swift when it is imported
    from swift_vlrft.swift_plugin.inference import run_worker

    settings = Settings(
        model=str(checkpoint),
        dataset=folder / "data" / "held_out",
        task="detection" if task.boxes else "classification",
        max_tokens=task.max_completion_length,
        engine="transformers",
        batch_size=BATCH,
        dtype="float32",
    )
    begin(out, settings)
    done = 0

    def answered(n: int) -> None:
        nonlocal done
        done += n
        progress(done, "")

    run_worker(out, settings, progress=answered)
    file, _ = finish(out, settings)
    predictions = read_predictions(file, settings.task)
    write_summary(summarise(predictions, run=settings.as_dict()), out / "summary.json")
    return [row.completion for row in predictions.rows]


def compare_and_report(folder: Path) -> Comparison:
    sides = [folder / "eval" / name for name in ("before", "after")]
    write_report(folder / "grpo", sides, folder / "report.html")
    before, after = (read_predictions(side / "predictions.jsonl") for side in sides)
    return compare(before, after)
