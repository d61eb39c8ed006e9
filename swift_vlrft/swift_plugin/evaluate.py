"""``evaluate`` is `vlrft eval`: run a model on every query of a set and score the answers.

evaluate("runs/grpo/checkpoint-200", "data/held_out", "detection", out="runs/eval/after")
evaluate(predictions="runs/eval/after").metrics["AP50"].value      # scores existing answers
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from swift_vlrft.datasets.box_format import split_box_format
from swift_vlrft.evaluation.annotations import Gold, annotations_of_gold
from swift_vlrft.evaluation.intervals import DRAWS
from swift_vlrft.evaluation.joined import join_gold
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Predictions,
    Problems,
    read_predictions,
)
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.evaluation.run import begin, finish, gold_of, keep, make_room, versions
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.records import as_json, write_record
from swift_vlrft.swift_plugin.inference import (
    chosen_engine,
    gpu_count,
    model_and_adapter,
    run_worker,
    run_workers,
)

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]
"""Takes the number of rows, and how many more of them are answered."""


def evaluate(
    model: PathLike | None = None,
    dataset: PathLike | None = None,
    task: str | None = None,
    *,
    predictions: PathLike | None = None,
    gold: PathLike | None = None,
    join: str | None = None,
    out: PathLike | None = None,
    workers: int | None = None,
    bootstrap: int = DRAWS,
    force: bool = False,
    progress: Progress = lambda total, n: None,
    **settings: Any,
) -> Summary:
    """Run ``model`` on every query of ``dataset``, or score existing ``predictions``.

    ``dataset``: a set on disk, or COCO or LVIS annotations; "PATH:pixels" asks for boxes in
    pixels, as do unit, yx1000 and native, the model's own.
    ``gold``: the annotations or the data set that ``predictions`` were made on. ``join``: "id" for
    predictions of other programs, whose ids are its rows'. ``out``: the folder to write to, by
    default runs/eval/MODEL-DATASET for a model; a killed run resumes. ``workers``: processes with a
    full copy of the model each, one per GPU by default.
    ``bootstrap``: resamples for AP's intervals, 0: no intervals. ``force`` moves results of
    another run, or of other predictions, aside. ``settings``: further fields of ``Settings``:
    split, images, protocol, categories, existence_map, max_queries, seed, max_tokens, temperature,
    engine, base_model, batch_size, dtype, engine_options, samples.

    ValueError and OSError say what cannot be used, where, and what to do.
    """
    paths = {key: Path(path) for key in ("images", "existence_map") if (path := settings.get(key))}
    settings |= paths | {"categories": tuple(settings.get("categories") or ())}
    if predictions is not None:
        if model is not None:
            raise EvaluationError(f"give {model} or --predictions, not both")
        scored, run_settings = _existing(Path(predictions), gold, join, task, settings)
        run: dict[str, Any] = {"predictions": str(predictions)}
    elif model is None or dataset is None or task is None:
        raise EvaluationError(
            "give MODEL, DATASET and --task, or --predictions FILE; "
            "`vlrft eval --help` shows examples"
        )
    elif gold is not None or join is not None:
        raise EvaluationError("--gold and --join need --predictions")
    else:
        path, box_format = split_box_format(os.fspath(dataset))
        limits = {name: value for name in RESOLUTION if (value := os.environ.get(name))}
        settings |= {"box_format": box_format, "resolution": limits}
        run_settings = Settings(os.fspath(model), path, task, **settings)
        out = Path(out or output_folder(run_settings.model, dataset))
        scored = _run_model(run_settings, out, workers, force, progress)
        run = as_json(run_settings) | {
            "engine": chosen_engine(run_settings.engine),
            "versions": versions(),
        }
    summary = summarise(*scored, bootstrap=bootstrap, seed=settings.get("seed", 0), run=run)
    if out is not None:
        if predictions is not None:
            make_room(Path(out), Path(predictions), force=force)
        write_record(Path(out) / "summary.json", summary)
        if predictions is not None:
            keep(Path(out), scored[0], run_settings, has_gold=gold is not None)
    return summary


def _existing(
    file: Path,
    gold: PathLike | None,
    join: str | None,
    task: str | None,
    settings: dict[str, Any],
) -> tuple[tuple[Predictions, Gold], Settings]:
    if settings.get("existence_map") or settings.get("max_queries"):
        raise EvaluationError(
            "--exist-map and --max-queries select queries for a model; existing predictions "
            "are scored as they are"
        )
    predictions = read_predictions(file, task)
    names = ("split", "images", "protocol", "categories")
    options: Any = {key: settings.get(key) for key in names}
    of_gold = Settings(str(file), Path(gold or ""), predictions.task, **options)
    annotations = annotations_of_gold(None if gold is None else Path(gold))
    if gold is not None and annotations is None:
        if predictions.detections is not None:
            raise EvaluationError(
                f"{file} is a list of boxes, and --gold {gold} is no annotation file; give the "
                "annotation file that they were made on, such as instances_val2017.json"
            )
        every = structs.replace(of_gold, protocol=None, categories=())
        predictions = join_gold(predictions, QuerySet(every), join)
    elif join is not None:
        raise EvaluationError("--join needs --gold SET, the rows that the predictions answer")
    return (predictions, Gold(annotations, of_gold.categories, of_gold.protocol)), of_gold


def _run_model(
    settings: Settings, out: Path, workers: int | None, force: bool, progress: Progress
) -> tuple[Predictions, Gold]:
    """Let the model answer what is left; all predictions, with the queries that were skipped.
    ``force`` moves the results of another run aside.
    """
    queries = QuerySet(settings)
    for problem in queries.problems():
        raise EvaluationError(problem)
    model_and_adapter(settings.model, settings.base_model)
    done = len(begin(out, settings, force=force))
    progress(queries.count, done)
    answered = partial(progress, queries.count)
    skipped = Problems()
    if done < queries.count and (count := workers or gpu_count()) > 1:
        skipped = run_workers(out, count, answered)
    elif done < queries.count:
        skipped = run_worker(out, queries, progress=answered)
    problems = skipped.joined(finish(out, queries))
    if not (out / "predictions.jsonl").stat().st_size:
        raise EvaluationError(f"the model answered no query of {settings.dataset}: {problems}")
    predictions = read_predictions(out, settings.task)
    predictions = replace(predictions, problems=predictions.problems.joined(problems))
    return predictions, gold_of(settings, queries.annotations)


def output_folder(model: str, dataset: PathLike) -> Path:
    """Return the default of ``out``: runs/eval/MODEL-DATASET."""
    parts = Path(os.path.abspath(model)).parts
    name = "-".join(parts[-2:] if parts[-1].startswith("checkpoint") else parts[-1:])
    data = os.path.abspath(split_box_format(os.fspath(dataset))[0])
    return Path("runs", "eval", f"{name}-{Path(data).stem}")
