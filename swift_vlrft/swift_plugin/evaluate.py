"""``vlrft eval`` as a function: ask a model every query of a data set, and score what it answers.

import swift_vlrft

summary = swift_vlrft.evaluate(
    "runs/grpo/checkpoint-200", "data/held_out", "detection", out="runs/eval/after"
)
summary.metrics["AP50"].value
swift_vlrft.evaluate(predictions="runs/eval/after")      # scores what is there
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from swift_vlrft.evaluation.annotations import open_annotations
from swift_vlrft.evaluation.bootstrap import COUNT
from swift_vlrft.evaluation.framing import split_box_format
from swift_vlrft.evaluation.joined import join_gold
from swift_vlrft.evaluation.predictions import EvaluationError, Predictions, read_predictions
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.evaluation.run import begin, finish, versions
from swift_vlrft.evaluation.summary import Summary, summarise, write_summary
from swift_vlrft.families.coordinates import RESOLUTION
from swift_vlrft.files.records import as_json
from swift_vlrft.swift_plugin.inference import (
    chosen_engine,
    gpu_count,
    model_and_adapter,
    run_worker,
    run_workers,
)

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]
"""``progress(done, total)``: rows answered of all."""


def evaluate(
    model: PathLike | None = None,
    dataset: PathLike | None = None,
    task: str | None = None,
    *,
    predictions: PathLike | None = None,
    gold: PathLike | None = None,
    out: PathLike | None = None,
    workers: int | None = None,
    bootstrap: int = COUNT,
    force: bool = False,
    progress: Progress = lambda done, total: None,
    **settings: Any,
) -> Summary:
    """Ask ``model`` every query of ``dataset``, or score ``predictions`` that exist.

    ``dataset``: a set on disk, or COCO or LVIS annotations; "PATH:pixels" asks for boxes in pixels.
    ``gold``: of ``predictions``, the annotations or the data set they were made on. ``out``: the
    folder to write to; where a model is asked its default is runs/eval/MODEL-DATASET, and a run
    that was killed resumes. ``workers``: processes with a whole model each, one per GPU by default.
    ``bootstrap``: draws for the intervals, 0: none. ``force`` replaces a better summary, or another
    run. ``settings``: further fields of ``Settings``: split, images, protocol, categories,
    existence_map, max_queries, seed, max_tokens, temperature, engine, base_model, batch_size,
    dtype, engine_options.

    ValueError and OSError say what cannot be used, where, and what to do.
    """
    categories = settings["categories"] = tuple(settings.get("categories") or ())
    paths = {key: Path(path) for key in ("images", "existence_map") if (path := settings.get(key))}
    seed, protocol = settings.get("seed", 0), settings.get("protocol")
    settings |= paths
    annotations = None
    if predictions is not None:
        if model is not None:
            raise EvaluationError(f"give {model} or --predictions, not both")
        if settings.get("existence_map") or settings.get("max_queries"):
            raise EvaluationError(
                "--exist-map and --max-queries choose what a model is asked; existing predictions "
                "are scored as they are"
            )
        found = read_predictions(Path(predictions), task)
        if gold is not None and (annotations := open_annotations(Path(gold))) is None:
            rows = Settings(
                "", Path(gold), found.task, settings.get("split"), settings.get("images")
            )
            found = join_gold(found, QuerySet(rows))
        run: dict[str, Any] = {"predictions": str(predictions)}
    else:
        if model is None or dataset is None or task is None:
            raise EvaluationError(
                "give MODEL, DATASET and --task, or --predictions FILE; "
                "`vlrft eval --help` shows examples"
            )
        if gold is not None:
            raise EvaluationError("--gold is of --predictions")
        path, box_format = split_box_format(os.fspath(dataset))
        limits = {name: value for name in RESOLUTION if (value := os.environ.get(name))}
        asked = Settings(
            os.fspath(model), path, task, box_format=box_format, resolution=limits, **settings
        )
        out = Path(out or Path("runs/eval") / f"{_short(asked.model)}-{path.stem}")
        queries = QuerySet(asked)
        found = _answers(queries, out, workers, force, progress)
        run = as_json(asked) | {"engine": chosen_engine(asked.engine), "versions": versions()}
        annotations = queries.annotations
        if annotations is None:  # the queries are the chosen ones
            categories, protocol = (), None
        else:
            protocol = protocol or "all"
    summary = summarise(
        found,
        annotations=annotations,
        categories=categories,
        protocol=protocol,
        bootstrap=bootstrap,
        seed=seed,
        run=run,
    )
    if out is not None:
        write_summary(summary, Path(out) / "summary.json", force=force)
    return summary


def _answers(
    queries: QuerySet, out: Path, workers: int | None, force: bool, progress: Progress
) -> Predictions:
    """Let the model answer what is left; all predictions, with what was not asked."""
    settings = queries.settings
    queries.check()
    model_and_adapter(settings.model, settings.base_model)
    done = len(begin(out, settings, force=force))
    progress(done, queries.count)

    def answered(n: int) -> None:
        nonlocal done
        done += n
        progress(done, queries.count)

    if done < queries.count:
        count = workers or max(1, gpu_count())
        if count > 1:
            run_workers(out, count, answered)
        else:
            run_worker(out, queries, progress=answered)
    problems = finish(out, queries)
    found = read_predictions(out, settings.task)
    return replace(found, problems=found.problems.joined(problems))


def _short(model: str) -> str:
    parts: Sequence[str] = [part for part in Path(model).parts if part not in ("/", ".", "..")]
    return "-".join(parts[-2:] if parts[-1].startswith("checkpoint") else parts[-1:])
