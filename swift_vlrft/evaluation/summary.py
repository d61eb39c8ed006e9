"""The summary of predictions: what `vlrft eval` prints and writes.

    summarise(read_predictions(file)).metrics["accuracy"]    Measure(value=0.8, low=0.7, high=0.9)

``low`` and ``high`` bound the 95 % bootstrap interval over pictures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.evaluation.bootstrap import COUNT, Array, interval, ratio_estimates, resamples
from swift_vlrft.evaluation.gold import (
    PROTOCOLS,
    BoxSet,
    boxes_of_annotations,
    boxes_of_rows,
    read_annotations,
)
from swift_vlrft.evaluation.predictions import EvaluationError, Predictions
from swift_vlrft.evaluation.tables import SUBSTRING, Table, build_table

HEADLINES = {
    "detection": "AP",
    "grounding": "acc50",
    "classification": "accuracy",
    "counting": "accuracy",
}
"""The metric that says which of two summaries of a task is better."""

PROTOCOL_NOTES = {
    "all": "protocol all: every question is scored that was asked, and no box of another is missed",
    "visual-rft": "protocol visual-rft: gold boxes of categories that were not asked are missed; "
    "not comparable with protocol all",
    "rows": "protocol rows: the questions are those of the data set",
}
NO_NMS_AP = "NMS-AP (OVDEval) is not provided"
SUBSTRING_NOTE = (
    f"{SUBSTRING}: for comparison with numbers published for Visual-RFT alone; it counts any "
    "part of the name as right"
)


@dataclass(frozen=True)
class Measure:
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass
class Summary:
    task: str
    rows: int
    images: int
    headline: str
    metrics: dict[str, Measure]
    by_class: dict[str, dict[str, float | None]]
    reasons: dict[str, int]
    problems: dict[str, int]
    named: dict[str, list[str]]
    """The first few of each problem."""
    protocol: str | None = None
    selected: dict[str, float | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bootstrap: int = COUNT
    run: dict[str, Any] = field(default_factory=dict)
    """What made the predictions: model, data set, settings, versions."""

    @property
    def best(self) -> float | None:
        return self.metrics[self.headline].value if self.headline in self.metrics else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def box_set(
    predictions: Predictions,
    *,
    annotations: Path | None = None,
    categories: Sequence[str] = (),
    protocol: str | None = None,
) -> tuple[BoxSet | None, str | None]:
    """Gold and predictions for average precision, and the protocol; None for other tasks."""
    if predictions.task != "detection":
        if protocol or annotations or categories:
            raise EvaluationError(
                f"--protocol, --categories and annotations are of detection; these predictions "
                f"are of {predictions.task}"
            )
        return None, None
    if protocol is not None and protocol not in PROTOCOLS:
        raise EvaluationError(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}")
    if annotations is None:
        if predictions.detections is not None:
            raise EvaluationError(
                "these predictions hold boxes without gold; give the annotation file they were "
                "made on with --gold, such as instances_val2017.json"
            )
        if protocol not in (None, "rows"):
            raise EvaluationError(
                f"--protocol {protocol} needs an annotation file: give it with --gold"
            )
        if categories:
            predictions.rows = _of_categories(predictions, categories)
        return boxes_of_rows(predictions.rows, predictions.problems), "rows"
    if protocol == "rows":
        raise EvaluationError("--protocol rows is of rows that bring their own gold, not of --gold")
    if protocol is None:
        protocol = "visual-rft" if predictions.detections is not None else "all"
    if predictions.detections is not None and protocol != "visual-rft":
        raise EvaluationError(
            "a list of boxes does not say which questions were asked; only --protocol visual-rft, "
            "which misses every box of the gold that is not found, can be scored"
        )
    gold = read_annotations(annotations)
    made = boxes_of_annotations(gold, predictions, categories=categories, protocol=protocol)
    return made, protocol


def _of_categories(predictions: Predictions, categories: Sequence[str]) -> list[Any]:
    from swift_vlrft.datasets.build import chosen_categories

    known = sorted({row.category for row in predictions.rows if row.category is not None})
    chosen = set(chosen_categories(categories, known))
    return [row for row in predictions.rows if row.category in chosen]


def summarise(
    predictions: Predictions,
    *,
    annotations: Path | None = None,
    categories: Sequence[str] = (),
    protocol: str | None = None,
    bootstrap: int = COUNT,
    seed: int = 0,
    run: dict[str, Any] | None = None,
) -> Summary:
    """Every metric of the predictions with its interval; EvaluationError where there is no gold."""
    boxes, protocol = box_set(
        predictions, annotations=annotations, categories=categories, protocol=protocol
    )
    table = build_table(predictions, boxes)
    return summary_of(
        table, predictions, protocol=protocol, bootstrap=bootstrap, seed=seed, run=run
    )


def summary_of(
    table: Table,
    predictions: Predictions,
    *,
    protocol: str | None,
    bootstrap: int = COUNT,
    seed: int = 0,
    run: dict[str, Any] | None = None,
) -> Summary:
    if table.rows and table.bad_gold == len(table.rows):
        if not any(row.solution for row in table.rows):
            raise EvaluationError(
                f"no gold solution in any of the {len(table.rows)} predictions; give the set that "
                "they answer with --gold"
            )
        raise EvaluationError(
            f"no gold solution of the {len(table.rows)} rows can be read as {table.task} "
            f"(the first is {table.rows[0].solution[:60]!r}); is --task right?"
        )
    weights = resamples(len(table.units), bootstrap, seed) if bootstrap else None
    metrics: dict[str, Measure] = {}
    notes = list(predictions.notes)
    if table.ap is not None:
        drawn = (
            table.matches.average_precision(weights)
            if table.matches is not None and weights is not None
            else {}
        )
        for name, value in table.ap.mean.items():
            if name.startswith("AP_") and table.boxes is not None and not table.boxes.sizes_known:
                value = None
            metrics[name] = _measure(value, drawn.get(name))
        notes.append(PROTOCOL_NOTES[protocol or "rows"])
        if table.boxes is not None and not table.boxes.sizes_known:
            notes.append("the pictures' sizes are not known: no AP by size")
        notes.append(NO_NMS_AP)
    for name, ratio in table.ratios.items():
        estimates = None if weights is None else ratio_estimates(*table.per_unit(ratio), weights)
        metrics[name] = _measure(ratio.value, estimates)
    if SUBSTRING in metrics:
        notes.append(SUBSTRING_NOTE)
    by_class: dict[str, dict[str, float | None]] = {
        name: {metric: ratio.value for metric, ratio in ratios.items()}
        for name, ratios in table.classes.items()
    }
    if table.ap is not None:
        for name, scores in table.ap.by_category.items():
            known = {m: scores[m] for m in ("AP", "AP50", "AP75")}
            by_class[str(name)] = known | by_class.get(str(name), {})
    return Summary(
        task=table.task,
        rows=len(table.rows),
        images=len(table.units),
        headline=HEADLINES[table.task],
        metrics=metrics,
        by_class=dict(sorted(by_class.items())),
        reasons=dict(table.codes.most_common()),
        problems=dict(predictions.problems.counts),
        named=dict(predictions.problems.examples),
        protocol=protocol,
        selected=_selected(by_class) if table.ap is not None else {},
        notes=notes,
        bootstrap=0 if weights is None else len(weights),
        run=run or {},
    )


def _selected(by_class: dict[str, dict[str, float | None]]) -> dict[str, float | None]:
    """AP averaged over each named list of categories of which the set has every one."""
    from swift_vlrft.datasets.category_lists import CATEGORY_LISTS

    made = {}
    for name, categories in CATEGORY_LISTS.items():
        if all(category in by_class for category in categories):
            values = [value for c in categories if (value := by_class[c].get("AP")) is not None]
            made[name] = sum(values) / len(values) if values else None
    return made


def _measure(value: float | None, estimates: Array | None) -> Measure:
    bounds = None if estimates is None or value is None else interval(estimates)
    return Measure(value, *(bounds or (None, None)))


# ---- on disk ---------------------------------------------------------------------------------


def write_summary(summary: Summary, path: Path, *, force: bool = False) -> None:
    """Write ``path`` whole or not at all. EvaluationError where a better summary lies there, or
    one that cannot be compared, and ``force`` is not given.
    """
    if path.exists() and not force:
        _refuse_to_lose(summary, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(json.dumps(summary.as_dict(), indent=2) + "\n", encoding="utf-8")
    half.replace(path)


def _refuse_to_lose(summary: Summary, path: Path) -> None:
    keep = "; --force writes over it, another --out keeps both"
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        task, rows, headline = old["task"], int(old["rows"]), old["headline"]
        before = old["metrics"][headline]["value"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"{path} is there and is no summary ({error!r}){keep}") from None
    if (task, old.get("protocol")) != (summary.task, summary.protocol):
        named = f"{task}, protocol {old.get('protocol')}" if old.get("protocol") else task
        raise EvaluationError(f"{path} holds a summary of another kind ({named}){keep}")
    if rows > summary.rows:
        raise EvaluationError(
            f"{path} holds a summary of {rows} rows, the new one is of {summary.rows}{keep}"
        )
    now = summary.best
    if before is not None and (now is None or before > now + 1e-12):
        said = "none" if now is None else f"{now:.4f}"
        raise EvaluationError(
            f"{path} holds a better summary: {headline} {before:.4f}, the new one has {said}{keep}"
        )
