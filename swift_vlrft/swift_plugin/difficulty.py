"""``vlrft data difficulty`` as a function: a model answers every row of a set several times.

measure("runs/sft/checkpoint-100", "data/my_set", out="runs/difficulty/my_set", samples=8)

    OUT/run.json, parts/, predictions.jsonl     every answer, as `vlrft eval` writes them
    OUT/ranking.jsonl                           a row per line, the likeliest wrong gold first
    OUT/summary.json, difficulty.html
    OUT/set, or OUT/keep_0.1_0.9                the set with pass_rate, reward_mean, reward_std
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.box_format import split_box_format
from swift_vlrft.datasets.convert import image_base, item_of
from swift_vlrft.datasets.opening import file_notes, rename_notes
from swift_vlrft.datasets.pass_rates import COLUMNS, Share, check_outside
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.writer import check_storable
from swift_vlrft.evaluation.difficulty import checked_rewards, rewards_of
from swift_vlrft.evaluation.difficulty_files import write_ranking, write_set, written_sets
from swift_vlrft.evaluation.predictions import EvaluationError
from swift_vlrft.evaluation.queries import Settings
from swift_vlrft.evaluation.run import RESULTS, answered
from swift_vlrft.evaluation.sampled import SampledSet
from swift_vlrft.evaluation.set_difficulty import Difficulty, difficulty_of, score_set, unreadable
from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.records import write_record
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.parsing.answers import read
from swift_vlrft.report.difficulty_page import difficulty_page
from swift_vlrft.swift_plugin.evaluate import PathLike, Progress, answer_all, output_folder
from swift_vlrft.swift_plugin.inference import model_and_adapter

EARLY = 256
"""Answers after which a model that answers in no readable form is stopped."""


def measure(
    model: PathLike,
    dataset: PathLike,
    *,
    out: PathLike | None = None,
    samples: int = 8,
    rewards: Sequence[str] = (),
    pass_at: float | None = None,
    keep: str | None = None,
    workers: int | None = None,
    keep_going: bool = False,
    force: bool = False,
    progress: Progress = lambda total, n: None,
    **settings: Any,
) -> Difficulty:
    """Pass rates of ``model`` on the rows of ``dataset``, written to ``out``, by default
    runs/difficulty/MODEL-DATASET; a killed run resumes, and one with other ``rewards``,
    ``pass_at`` or ``keep`` asks nothing again.

    ``dataset``: as of `vlrft data convert`; "PATH:pixels" asks for boxes in pixels. ``rewards``:
    by name, by default the first of each row's task. ``pass_at``: the score from which an answer
    is right, by default ``pass_mark``. ``keep``: "0.1:0.9" writes the rows with such a pass rate.
    ``keep_going`` leaves bad rows out. ``settings``: further fields of ``Settings``.

    ValueError and OSError say what cannot be used, where, and what to do.
    """
    names, share = checked_rewards(rewards), None if keep is None else Share.of(keep)
    if pass_at is not None and not 0 < pass_at <= 1:
        raise EvaluationError(f"--pass-at {pass_at:g}: a score is above 0, and at most 1")
    if settings.get("temperature", 1.0) <= 0:
        raise EvaluationError(
            "--temperature 0: every answer to a row would be the same; GRPO samples at 1.0"
        )
    path, box_format = split_box_format(os.fspath(dataset))
    limits = {name: value for name in RESOLUTION if (value := os.environ.get(name))}
    chosen: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "task": ""} | settings
    chosen |= {"box_format": box_format, "resolution": limits, "samples": samples}
    if root := chosen.get("images"):
        chosen["images"] = Path(root)
    queries = SampledSet(Settings(os.fspath(model), path, **chosen))
    out = Path(out or output_folder(os.fspath(model), dataset, "difficulty"))
    for problem in queries.problems():
        raise EvaluationError(problem)
    check_outside(out, path, "--out")
    if any(path.resolve().is_relative_to((out / name).resolve()) for name in written_sets(out)):
        raise EvaluationError(
            f"{path} lies in --out {out}, where sets of that name are written; give another --out"
        )
    model_and_adapter(queries.settings.model, queries.settings.base_model)
    bad = _check_rows(queries, names, keep_going)
    notes = [*rename_notes(queries.stored()), *file_notes(queries.stored())]
    problems = answer_all(
        queries,
        out,
        workers,
        force,
        _watched(progress, queries, out),
        (*RESULTS, "ranking.jsonl", "difficulty.html", *written_sets(out)),
    )
    scored = score_set(queries, out, names, pass_at)
    found = difficulty_of(scored, queries.settings, problems, notes)
    if bad:
        found.notes.append(f"{bad} rows cannot be trained on: left out")
    write_ranking(scored.rows, out)
    write_atomically(out / "difficulty.html", difficulty_page(found, queries, scored.rows))
    try:
        write_set(found, scored.rows, queries, out, share)
    finally:  # also of rates of which --keep holds none
        write_record(out / "summary.json", found)
    return found


def _check_rows(queries: SampledSet, names: Sequence[str], keep_going: bool) -> int:
    """How many rows cannot be written. DataError names the first, unless ``keep_going``, and where
    no reward scores any row: before a model is loaded.
    """
    settings, bad, scored = queries.settings, 0, 0
    base = image_base(settings.dataset, settings.images)
    tasks: Counter[str] = Counter()

    def good() -> Iterator[dict[str, Any]]:
        nonlocal bad, scored
        for row in queries.rows():
            item = item_of(row, base)
            if isinstance(row, Row) and not isinstance(item, BadRow):
                tasks[str(row.columns.get("task") or row.guess)] += 1
                scored += bool(rewards_of(row, names))
                yield item | dict.fromkeys(COLUMNS, 0.5)
            elif keep_going:
                bad += 1
            else:
                raise DataError(f"{item} (--keep-going leaves such rows out)")

    check_storable(good())
    if not scored:
        listed = (
            ", ".join(f"{count} {task}" for task, count in tasks.items()) or "none that is good"
        )
        raise DataError(
            f"{settings.dataset}: no reward scores any row (its rows: {listed}); name others with "
            "--reward, or state the task with --task"
        )
    return bad


def _watched(progress: Progress, queries: SampledSet, out: Path) -> Progress:
    """``progress``, which ends the run where nothing can be read of the first answers."""
    seen = 0

    def watched(total: int, n: int) -> None:
        nonlocal seen
        progress(total, n)
        before, seen = seen, seen + n
        if before < EARLY <= seen:
            answers = [json.loads(line) for line in answered(out).values()]
            texts = [answer["completion"] for answer in answers]
            if texts and all(read(text).text is None for text in texts):
                cut = sum(answer.get("finish") == "length" for answer in answers)
                why = "no complete answer block after the reasoning"
                model = queries.settings.model
                raise EvaluationError(unreadable(model, len(texts), why, max(texts, key=len), cut))

    return watched
