"""Keep a run of `vlrft eval` on disk: settings, answers so far, predictions.

    OUT/run.json              settings, versions, stamps of the files that answers depend on
    OUT/parts/part-*.jsonl    answers as they come, one file per process
    OUT/predictions.jsonl     all answers, in the order of the queries; or those that were given,
    OUT/predictions.json      which may be a list of boxes
    OUT/summary.json

A killed run resumes: rows with a complete line in a part are not asked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from shutil import copyfile
from typing import Any
from uuid import uuid4
from zlib import crc32

import msgspec

from swift_vlrft.evaluation.annotations import GOLD_OF_ROWS, Annotations, Gold, open_annotations
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
    file_of_run,
    read_predictions,
)
from swift_vlrft.evaluation.queries import Query, QuerySet
from swift_vlrft.evaluation.settings import Settings
from swift_vlrft.files.jsonl import LineError, read_json
from swift_vlrft.files.records import as_json, read_record, write_record
from swift_vlrft.files.writing import beside
from swift_vlrft.geometry.box_format import Size

PACKAGES = (
    *("swift-vlrft", "ms-swift", "transformers", "trl", "peft", "torch", "deepspeed", "vllm"),
    "faster-coco-eval",
)
ANOTHER = "Give another --out, or remove this one"
RESULTS = ("run.json", "parts", "predictions.jsonl", "predictions.json", "summary.json")


class Manifest(msgspec.Struct):
    """Holds ``run.json``; ``settings.model`` may be a file of predictions."""

    settings: Settings
    files: dict[str, str] = {}
    versions: dict[str, str] = {}


def versions() -> dict[str, str]:
    """Return the versions of the packages that answers depend on, if they are installed."""
    installed = {name: [*metadata.distributions(name=name)] for name in PACKAGES}
    return {name: copies[0].version for name, copies in installed.items() if copies}


def begin(folder: Path, settings: Settings) -> dict[str, str]:
    """Prepare a folder to start or resume a run, and return its answer lines by id.

    EvaluationError if it has a run with other settings.
    """
    manifest = Manifest(settings, stamps(settings), versions())
    if held := _other_results(folder, manifest):
        raise EvaluationError(f"{folder} holds {held}. {ANOTHER}")
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    write_record(folder / "run.json", manifest)
    return answered(folder)


def _other_results(folder: Path, manifest: Manifest) -> str | None:
    """What the folder holds of another run, in words; None if nothing."""
    if not (folder / "run.json").exists():
        names = [name for name in RESULTS[2:] if (folder / name).exists()]
        return "results that no run.json describes" if names else None
    try:
        before = read_record(folder / "run.json", Manifest)
    except (OSError, LineError) as error:
        return f"predictions of another run ({error})"
    old, new = before.settings.decisive(), manifest.settings.decisive()
    differ = [f"{k} {old.get(k)!r}, now {new[k]!r}" for k in new if old.get(k) != new[k]]
    stale = [k for k, stamp in before.files.items() if manifest.files.get(k) != stamp]
    differ += [f"the files of {new[k]} have changed since" for k in stale]
    return f"the predictions of another run ({'; '.join(differ[:3])})" if differ else None


WEIGHTS = {".safetensors", ".bin"}
ROWS = {".parquet", ".arrow", ".jsonl", ".json", ".csv"}


def stamps(settings: Settings) -> dict[str, str]:
    """Return a hash of the sizes and times of the model's and the set's files."""
    hashes = {}
    of = {"model": (Path(settings.model), WEIGHTS), "dataset": (settings.dataset, ROWS)}
    for what, (path, kinds) in of.items():
        if path.exists():
            # Of other folders no JSON: they may hold runs, as runs/eval does.
            below = ("*", "data/*", "*/*.parquet", "*/*.arrow")
            paths = [path] if path.is_file() else list({f for p in below for f in path.glob(p)})
            # cache-* is written by the library datasets
            used = [f for f in paths if f.suffix in kinds and not f.name.startswith("cache-")]
            stats = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(used)]
            hashes[what] = sha256(json.dumps(stats).encode()).hexdigest()[:16]
    return hashes


def answered(folder: Path) -> dict[str, str]:
    """Return the complete lines of all parts by id, without half a line of a killed run."""
    lines: dict[str, str] = {}
    for part in sorted((folder / "parts").glob("part-*.jsonl")):
        for line in part.read_text(encoding="utf-8").splitlines(keepends=True):
            with suppress(ValueError, KeyError, TypeError):
                if line.endswith("\n") and isinstance(key := json.loads(line)["id"], str):
                    lines.setdefault(key, line)
    return lines


def new_part(folder: Path) -> Path:
    """Return the path of a new part for this process alone."""
    return folder / "parts" / f"part-{uuid4().hex[:12]}.jsonl"


def pending(
    queries: QuerySet, done: dict[str, str], problems: Problems, worker: int = 0, workers: int = 1
) -> Iterator[Query]:
    """Yield the queries of one worker that are not answered yet."""
    for query in queries.read(problems):
        # By the id alone, so that no worker's share depends on what another has answered.
        if crc32(query.id.encode()) % workers == worker and not done.keys() >= {*query.answer_ids}:
            yield query


def answer_line(
    query: Query, completion: str, *, image_id: str, size: Size, sample: int = 0, **more: Any
) -> str:
    """Return the line of a prediction.

    ``size`` is the image's; ``image_id`` identifies it if the row does not; ``sample`` numbers
    several answers; ``more``: further fields of the prediction.
    """
    image = {"image_id": query.column("image_id") or image_id, "width": size[0], "height": size[1]}
    asked = query.unanswered(sample)
    prediction = msgspec.structs.replace(asked, completion=completion, **image, **more)
    return json.dumps(as_json(prediction)) + "\n"  # ASCII: a lone surrogate cannot break the file


def finish(folder: Path, queries: QuerySet) -> Problems:
    """Write predictions.jsonl in the order of the queries; count what is missing."""
    done, problems = answered(folder), Problems()
    with beside(folder / "predictions.jsonl") as path, path.open("w", encoding="ascii") as file:
        for query in queries.read(problems):
            if done.keys() >= {*query.answer_ids}:
                file.writelines(done[key] for key in query.answer_ids)
            else:
                problems.add("queries without an answer", query.id)
    return problems


def gold_of(settings: Settings, annotations: Annotations | None) -> Gold:
    """Return the gold of a run's predictions; for a set of rows, the chosen rows' gold."""
    if annotations is None:
        return GOLD_OF_ROWS
    return Gold(annotations, settings.categories)


# ---- predictions that were given -------------------------------------------------------------


def refuse_others(folder: Path, file: Path) -> None:
    """Raise EvaluationError if the folder holds results of others than the file's."""
    of = None
    with suppress(OSError, ValueError, LookupError, TypeError):
        of = read_json(folder / "summary.json")["run"]["predictions"]
    others = of != str(file) and not _is_held(file, folder)
    if others and any((folder / name).exists() for name in RESULTS):
        raise EvaluationError(
            f"{folder} holds results of {of or 'a model'}, not of {file}. {ANOTHER}"
        )


def keep(folder: Path, predictions: Predictions, settings: Settings, *, has_gold: bool) -> None:
    """Write the predictions of the file ``settings.model`` into the folder, with their rows.

    ``has_gold`` says which gold they answer: `vlrft compare` and `report` read the folder as a run.
    """
    source = file_of_run(Path(settings.model))
    if _is_held(source, folder):
        return
    for name in ("run.json", "predictions.jsonl", "predictions.json"):
        (folder / name).unlink(missing_ok=True)
    if predictions.detections is not None:
        copyfile(source, folder / "predictions.json")
    else:
        with beside(folder / "predictions.jsonl") as path, path.open("w", encoding="ascii") as file:
            file.writelines(_kept(row, predictions.task) for row in predictions.rows)
    if has_gold:
        write_record(folder / "run.json", Manifest(settings))


def _is_held(file: Path, folder: Path) -> bool:
    return folder.resolve() in (file.resolve(), file.resolve().parent)


def _kept(row: Prediction, task: str) -> str:
    """The line of a row, with the id that it had, by which `vlrft compare` joins."""
    key = row.own_id if row.row is None else row.id
    fresh = {"place": "", "own_id": None}
    return (
        json.dumps(as_json(msgspec.structs.replace(row, task=task, **fresh)) | {"id": key}) + "\n"
    )


# ---- existing runs ---------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedRun:
    """Holds predictions, and the manifest of the run that made them; None for a single file."""

    predictions: Predictions
    manifest: Manifest | None = None
    gold: Gold = GOLD_OF_ROWS


def open_runs(paths: Sequence[Path], task: str | None = None) -> list[SavedRun]:
    """Open files of predictions, or folders of runs."""
    runs = []
    for path in paths:
        manifest_file = (path if path.is_dir() else path.parent) / "run.json"
        of_run = path.is_dir() or path.stem == "predictions"
        if not of_run or not manifest_file.is_file():
            runs.append(SavedRun(read_predictions(path, task)))
            continue
        manifest = read_record(manifest_file, Manifest)
        settings = manifest.settings
        predictions = read_predictions(path, task or settings.task or None)
        # Only queries of annotations have no row number.
        numbered = all(row.row is not None for row in predictions.rows)
        if not (numbered or settings.dataset.exists()):
            raise EvaluationError(
                f"{path} was made on annotations that do not exist (from {Path.cwd()}): "
                f"{settings.dataset}; score it with them: `vlrft eval --predictions {path} --gold "
                "FILE --out DIR`"
            )
        gold = gold_of(settings, open_annotations(settings.dataset))
        runs.append(SavedRun(predictions, manifest, gold))
    return runs
