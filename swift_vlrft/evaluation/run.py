"""A run of `vlrft eval` on disk: what was asked for, what is answered, what is left.

    OUT/run.json              settings, versions, problems of the data set
    OUT/parts/part-0.jsonl    answers as they come, one file per process
    OUT/predictions.jsonl     all of them, in the order of the questions
    OUT/summary.json

A run that was killed goes on: rows with a whole line in a part are not asked again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from zlib import crc32

from swift_vlrft.evaluation.predictions import EvaluationError, Problems
from swift_vlrft.evaluation.questions import Question, Settings, questions

PACKAGES = ("swift-vlrft", "ms-swift", "transformers", "torch", "vllm", "faster-coco-eval")


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def begin(folder: Path, settings: Settings, *, force: bool = False) -> dict[str, str]:
    """Make the folder ready, or ready to go on; the lines of answers that it holds, by id.

    EvaluationError where it holds a run with other settings; ``force`` moves that one aside.
    """
    manifest = folder / "run.json"
    files = {
        what: stamp
        for what, path, kinds in (
            ("model", Path(settings.model), WEIGHTS),
            ("dataset", settings.dataset, ROWS),
        )
        if (stamp := file_stamp(path, kinds)) is not None
    }
    if manifest.exists():
        try:
            before = json.loads(manifest.read_text(encoding="utf-8"))
            same = before.get("identity") == settings.identity()
            changed = sorted(k for k, v in before.get("files", {}).items() if v != files.get(k))
        except (OSError, ValueError, AttributeError):
            before, same, changed = {}, False, []
        if not same or changed:
            if not force:
                raise EvaluationError(_other_run(folder, before, settings, changed))
            _move_aside(folder)
    elif any((folder / name).exists() for name in ("predictions.jsonl", "summary.json")):
        if not force:
            raise EvaluationError(
                f"{folder} holds results that no run.json describes; give another --out, or "
                "--force to move them aside"
            )
        _move_aside(folder)
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    record = {
        "identity": settings.identity(),
        "settings": settings.as_dict(),
        "files": files,
        "versions": versions(),
    }
    _write(manifest, json.dumps(record, indent=2) + "\n")
    return answered(folder)


WEIGHTS = (".safetensors", ".bin")
ROWS = (".parquet", ".arrow", ".jsonl", ".json", ".csv")


def file_stamp(path: Path, kinds: tuple[str, ...]) -> str | None:
    """Sizes and times of the files that answers depend on; None where ``path`` is on no disk.

    A checkpoint that was trained anew at the same place is another one.
    """
    if not path.exists():
        return None
    found = [path] if path.is_file() else [*path.glob("*"), *path.glob("data/*")]
    stats = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(found)
        if file.suffix in kinds and not file.name.startswith("cache-")  # written by datasets
    ]
    return sha256(json.dumps(stats).encode()).hexdigest()[:16]


def _other_run(folder: Path, before: dict[str, Any], settings: Settings, changed: list[str]) -> str:
    old, new = before.get("settings") or {}, settings.as_dict()
    differ = [f"{k} {old.get(k)!r}, now {new[k]!r}" for k in new if old.get(k) != new[k]]
    differ += [f"the files of {new[k]} have changed since" for k in changed]
    return (
        f"{folder} holds the predictions of another run ({'; '.join(differ[:3])}). Give another "
        "--out, or --force to move them aside"
    )


def _move_aside(folder: Path) -> None:
    """Nothing on disk is lost: what lies there gets the next free number."""
    number = 1
    while (folder / f"before-{number}").exists():
        number += 1
    aside = folder / f"before-{number}"
    aside.mkdir(parents=True)
    for name in ("run.json", "parts", "predictions.jsonl", "summary.json"):
        if (folder / name).exists():
            (folder / name).rename(aside / name)


def answered(folder: Path) -> dict[str, str]:
    """The whole lines of every part by id; half a line, of a kill, is not one."""
    found: dict[str, str] = {}
    for part in sorted((folder / "parts").glob("part-*.jsonl")):
        with part.open(encoding="utf-8") as file:
            for line in file:
                try:
                    key = json.loads(line)["id"] if line.endswith("\n") else None
                except (ValueError, KeyError, TypeError):
                    continue
                if isinstance(key, str):
                    found.setdefault(key, line)
    return found


def new_part(folder: Path) -> Path:
    """A part that no other process writes."""
    number = 0
    while True:
        path = folder / "parts" / f"part-{number}.jsonl"
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1


def pending(
    settings: Settings,
    done: dict[str, str],
    problems: Problems,
    worker: int = 0,
    workers: int = 1,
) -> Iterator[Question]:
    """The questions of one worker that no part answers yet."""
    for question in questions(settings, problems):
        # By the id alone, so that no worker's share depends on what another has answered.
        if crc32(question.id.encode()) % workers == worker and question.id not in done:
            yield question


def answer_line(
    question: Question,
    task: str,
    completion: str,
    *,
    image_id: str,
    size: tuple[int, int],
    tokens: int | None,
    finish: str | None,
    seen: tuple[int, int] | None = None,
) -> str:
    """``size`` is the picture's; ``seen`` what boxes in pixels are measured in where it differs."""
    record: dict[str, Any] = {
        "id": question.id,
        "task": task,
        "completion": completion,
        "solution": question.solution,
        "prompt": question.problem,
        "image_id": question.image_id or image_id,
        "category": question.category,
        "frame": question.frame,
        "width": size[0],
        "height": size[1],
        "seen": seen,
        "tokens": tokens,
        "finish": finish,
        "row": question.row,
        "aliases": question.aliases,
    }
    if question.image.get("bytes") is None:
        record["image"] = question.image.get("path")
    kept = {key: value for key, value in record.items() if value is not None}
    return json.dumps(kept, default=str) + "\n"  # ASCII: a lone surrogate cannot break the file


def finish(folder: Path, settings: Settings) -> tuple[Path, Problems]:
    """Write predictions.jsonl, whole, in the order of the questions; count what is missing."""
    done = answered(folder)
    problems = Problems()
    half = folder / f".predictions.{os.getpid()}"
    with half.open("w", encoding="ascii") as file:
        for question in questions(settings, problems):
            line = done.get(question.id)
            if line is None:
                problems.add("questions without an answer", question.id)
            else:
                file.write(line)
    target = folder / "predictions.jsonl"
    half.replace(target)
    return target, problems


def _write(path: Path, text: str) -> None:
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
