"""`vlrft eval` of the demo's checkpoints before and after, and the report on both.

runs/demo/eval/before, runs/demo/eval/after    predictions.jsonl, summary.json
runs/demo/report.html
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swift_vlrft.demo.tasks import DemoTask
from swift_vlrft.evaluation import read_predictions
from swift_vlrft.evaluation.compare import Comparison, compare_runs
from swift_vlrft.report import write_report
from swift_vlrft.swift_plugin.evaluate import evaluate as evaluate_model

BATCH = 64


def evaluate(
    task: DemoTask, checkpoint: Path, folder: Path, out: Path, progress: Callable[[int, str], None]
) -> list[str]:
    """Greedy answers on the held-out images, row by row; summary and predictions are in ``out``."""
    evaluate_model(
        checkpoint,
        folder / "data" / "held_out",
        "detection" if task.boxes else "classification",
        out=out,
        workers=1,
        max_tokens=task.max_completion_length,
        engine="transformers",
        batch_size=BATCH,
        dtype="float32",
        progress=lambda done, total: progress(done, ""),
    )
    return [row.completion for row in read_predictions(out).rows]


def compare_and_report(folder: Path) -> Comparison:
    before, after = (folder / "eval" / name for name in ("before", "after"))
    write_report(folder / "grpo", [before, after], folder / "report.html")
    return compare_runs(before, after)
