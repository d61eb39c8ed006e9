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

import msgspec
from msgspec import structs

from swift_vlrft.datasets.box_format import split_box_format
from swift_vlrft.evaluation.annotations import Gold, open_annotations
from swift_vlrft.evaluation.joined import join_gold
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Predictions,
    Problems,
    read_predictions,
)
from swift_vlrft.evaluation.queries import QuerySet, default_split
from swift_vlrft.evaluation.run import begin, finish, gold_of, keep, refuse_others, versions
from swift_vlrft.evaluation.settings import Scoring, Settings
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.families.video import LIMITS
from swift_vlrft.files.records import Record, as_json, write_record
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
    progress: Progress = lambda total, n: None,
    **options: Any,
) -> Summary:
    """Run ``model`` on every query of ``dataset``, or score existing ``predictions``.

    ``dataset``: a set on disk, or COCO or LVIS annotations; "PATH:pixels" asks for boxes in
    pixels, as do unit, yx1000 and native, the model's own. ``options``: those of `vlrft eval`, by
    name; ``Scoring`` (out, predictions, gold, join, workers, bootstrap) and ``Settings``
    (categories, max_queries, seed, split, images, engine, batch_size,
    max_tokens, temperature, samples, max_turns, dtype, base_model, engine_options) describe them.
    Results are written to ``out``, by default runs/eval/MODEL-DATASET for a model; a killed run
    resumes.

    TypeError names an unknown option. ValueError and OSError say what cannot be used, where, and
    what to do.
    """
    scoring = _record(Scoring, options)
    given = os.fspath(scoring.predictions or model or "")
    named = {"model": given, "dataset": scoring.gold or Path(), "task": task or ""}
    settings = _record(Settings, options, **named, frame="norm1000", resolution={})
    if options:
        raise TypeError(f"evaluate() got an unexpected keyword argument {min(options)!r}")
    out, seed = scoring.out, settings.seed
    if scoring.predictions is not None:
        if model is not None:
            raise EvaluationError(f"give {model} or --predictions, not both")
        predictions, gold, settings = _existing(scoring, settings)
        run: dict[str, Any] = {"predictions": given, "gold": scoring.gold and str(scoring.gold)}
        run["split"] = settings.split
    elif model is None or dataset is None or task is None:
        raise EvaluationError(
            "give MODEL, DATASET and --task, or --predictions FILE; "
            "`vlrft eval --help` shows examples"
        )
    elif scoring.gold is not None or scoring.join is not None:
        raise EvaluationError("--gold and --join need --predictions")
    else:
        path, box_format = split_box_format(os.fspath(dataset))
        limits = {name: os.environ[name] for name in LIMITS if os.environ.get(name)}
        settings = structs.replace(settings, dataset=path, box_format=box_format, resolution=limits)
        out = out or output_folder(given, dataset)
        predictions, gold = _run_model(settings, out, scoring.workers, progress)
        run = as_json(settings) | {"engine": chosen_engine(settings.engine), "versions": versions()}
        if gold.annotations is None:
            run["split"] = settings.split or default_split(path)
    run["system_prompts"] = sorted({row.system for row in predictions.rows if row.system})
    run["box_formats"] = sorted({row.box_format for row in predictions.rows if row.box_format})
    summary = summarise(predictions, gold, bootstrap=scoring.bootstrap, seed=seed, run=run)
    if out is not None:
        if scoring.predictions is not None:
            refuse_others(out, scoring.predictions)
        write_record(out / "summary.json", summary)
        if scoring.predictions is not None:
            keep(out, predictions, settings, has_gold=scoring.gold is not None)
    return summary


def _record(kind: type[Record], options: dict[str, Any], **more: Any) -> Record:
    """Take a record's fields out of ``options``; EvaluationError for a value of another kind."""
    names = [name for name in kind.__struct_encode_fields__ if name in options.keys() - more.keys()]
    given = {name: value for name in names if (value := options.pop(name)) is not None}
    try:
        return msgspec.convert(given | more, kind, dec_hook=lambda path, value: path(value))
    except msgspec.ValidationError as error:
        raise EvaluationError(f"evaluate: {error}") from None


def _existing(scoring: Scoring, settings: Settings) -> tuple[Predictions, Gold, Settings]:
    """The predictions of a file, their gold, and the settings with their task."""
    if settings.max_queries:
        raise EvaluationError(
            "--max-queries selects queries for a model; existing predictions are scored as they are"
        )
    file, gold = Path(settings.model), scoring.gold
    predictions = read_predictions(file, settings.task or None)
    settings = structs.replace(settings, task=predictions.task)
    if gold is not None and not gold.exists():
        raise EvaluationError(f"--gold {gold} does not exist (from {Path.cwd()})")
    annotations = None if gold is None else open_annotations(gold)
    if gold is not None and annotations is None:
        if predictions.detections is not None:
            raise EvaluationError(
                f"{file} is a list of boxes, and --gold {gold} is no annotation file; give the "
                "annotation file that they were made on, such as instances_val2017.json"
            )
        if scoring.join != "id":
            raise EvaluationError(
                f"--gold {gold} is a set of rows: give --join id, by which lines of 'id' and "
                "'completion' are joined with them; predictions of `vlrft eval` hold their gold"
            )
        split = settings.split or default_split(gold)
        settings = structs.replace(settings, split=split)
        every = structs.replace(settings, categories=(), samples=1)
        predictions = join_gold(predictions, QuerySet(every))
    elif scoring.join is not None:
        raise EvaluationError("--join needs --gold SET, the rows that the predictions answer")
    return predictions, Gold(annotations, settings.categories), settings


def _run_model(
    settings: Settings, out: Path, workers: int | None, progress: Progress
) -> tuple[Predictions, Gold]:
    """The predictions of a model, which answers what is left; skipped queries are problems."""
    queries = QuerySet(settings)
    for problem in queries.problems():
        raise EvaluationError(problem)
    model_and_adapter(settings.model, settings.base_model)
    done = len(begin(out, settings))
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
