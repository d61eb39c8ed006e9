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
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq

from swift_vlrft.datasets.box_format import split_box_format
from swift_vlrft.datasets.convert import image_base, item_of
from swift_vlrft.datasets.opening import file_notes, rename_notes
from swift_vlrft.datasets.pass_rates import COLUMNS, Share, nothing_kept
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import WORDS
from swift_vlrft.datasets.writer import Item, check_storable, write_folder
from swift_vlrft.evaluation.difficulty import (
    FIRST,
    Difficulty,
    Listed,
    RowScores,
    checked_rewards,
    histogram,
    judge,
    pass_mark,
    ranked,
    rewards_of,
    unreadable,
)
from swift_vlrft.evaluation.predictions import EvaluationError, Problems
from swift_vlrft.evaluation.queries import Settings
from swift_vlrft.evaluation.run import RESULTS, answered, move_aside
from swift_vlrft.evaluation.sampled import SampledSet
from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.completions import read_completions
from swift_vlrft.files.records import as_json, write_record
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.parsing.answers import read
from swift_vlrft.report.difficulty_page import difficulty_page
from swift_vlrft.swift_plugin.evaluate import PathLike, Progress, answer_all, output_folder
from swift_vlrft.swift_plugin.inference import model_and_adapter

EARLY = 256
"""Answers after which a model that answers in no readable form is stopped."""


@dataclass
class _Scored:
    """What a pass over the rows found."""

    rows: list[RowScores] = field(default_factory=list)
    rewards: dict[str, float] = field(default_factory=dict)
    total: int = 0
    without_reward: list[str] = field(default_factory=list)
    cut: int = 0
    example: str = ""
    """The first answer."""


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
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        raise EvaluationError(f"--out {out} lies in {path}, of whose rows it would become a part")
    model_and_adapter(queries.settings.model, queries.settings.base_model)
    bad = _check_rows(queries, names, keep_going)
    notes = [*rename_notes(queries.stored()), *file_notes(queries.stored())]
    problems = answer_all(
        queries,
        out,
        workers,
        force,
        _watched(progress, queries, out),
        (*RESULTS, "ranking.jsonl", "difficulty.html", *_written_sets(out)),
    )
    scored = _score(queries, out, names, pass_at)
    found = _difficulty(scored, queries.settings, problems, notes)
    if bad:
        found.notes.append(f"{bad} rows cannot be trained on: left out")
    ranking = ranked(scored.rows)
    _list(found, scored.rows, ranking)
    _write_ranking(scored.rows, ranking, out)
    write_atomically(out / "difficulty.html", difficulty_page(found, queries, scored.rows))
    _write_set(found, scored.rows, queries, out, share)
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


def _score(queries: SampledSet, out: Path, names: Sequence[str], pass_at: float | None) -> _Scored:
    """Every row with its answers, which stand in the order of the rows."""
    found, notes = _Scored(), list[str]()
    lines = read_completions(out / "predictions.jsonl", notes)
    groups = ((n, [one.row for one in of]) for n, of in groupby(lines, lambda one: one.row["row"]))
    number, answers = next(groups, (-1, []))
    for index, row in enumerate(queries.rows()):
        found.total += 1
        if index != number or isinstance(row, BadRow):
            continue
        rewards = rewards_of(row, names)
        scores = judge(row, index, answers, rewards, pass_at) if rewards else None
        if scores is None:
            found.without_reward.append(str(row.place))
        else:
            found.rows.append(scores)
            marks = ((name, pass_mark(name) if pass_at is None else pass_at) for name in rewards)
            found.rewards |= dict(marks)
            found.cut += sum(answer.get("finish") == "length" for answer in answers)
            texts = [answer["completion"] for answer in answers]
            found.example = found.example or max(texts, key=len)
        number, answers = next(groups, (-1, []))
    return found


def _difficulty(
    scored: _Scored, settings: Settings, problems: Problems, notes: list[str]
) -> Difficulty:
    rows = scored.rows
    if not rows:
        raise EvaluationError(f"no row of {settings.dataset} was scored: {problems}")
    answers = sum(row.samples for row in rows)
    readable = sum(row.readable for row in rows)
    if not readable:
        reasons = sum((Counter(row.reasons) for row in rows), Counter[str]())
        why = reasons.most_common(1)[0][0]
        text = unreadable(settings.model, answers, why, scored.example, scored.cut)
        raise EvaluationError(text)
    rates = [row.pass_rate for row in rows]
    equal = sum(row.reward_std < 1e-9 for row in rows)
    found = Difficulty(
        model=settings.model,
        dataset=str(settings.dataset),
        split=settings.split or "train",
        rows=scored.total,
        scored=len(rows),
        samples=settings.samples,
        temperature=settings.temperature,
        rewards=scored.rewards,
        pass_rate=fmean(rates),
        reward_mean=fmean(row.reward_mean for row in rows),
        readable=readable / answers,
        zero_variance=equal,
        histogram=histogram(rates, settings.samples),
        always_right=Listed(0),
        never_right=Listed(0),
        suspects=[],
        notes=notes,
        problems=dict(problems.counts),
    )
    if min(rates) == 1:
        found.flags.append(
            f"every answer to every row is right: {settings.model} learns nothing from this set. "
            "Take harder rows, or a reward that asks for more (--reward, --pass-at)"
        )
    elif max(rates) == 0:
        found.flags.append(
            "no answer to any row is right: begin with supervised fine-tuning or easier rows, and "
            "see with `vlrft data show` whether prompt and gold fit together"
        )
    if found.readable < 0.5:
        found.flags.append(
            f"only {found.readable:.0%} of {answers} answers can be read: pass rates say more of "
            "the form of the answers than of the rows"
        )
    if scored.cut > 0.1 * answers:
        found.notes.append(
            f"{scored.cut} of {answers} answers were cut off at {settings.max_tokens} tokens "
            "(--max-tokens)"
        )
    if settings.samples == 1:
        found.notes.append(
            "with one answer per row, a pass rate is 0 or 1, and rows cannot be ranked by how far "
            "answers agree: --samples 8 can"
        )
    if scored.without_reward:
        named = ", ".join(scored.without_reward[:3])
        found.notes.append(
            f"{len(scored.without_reward)} rows are scored by no reward that is named: {named}"
        )
    return found


def _list(found: Difficulty, rows: list[RowScores], ranking: list[RowScores]) -> None:
    """The rows of both ends."""
    right = [row for row in rows if row.pass_rate == 1]
    placed = {row.number for row in ranking}
    wrong = [row for row in ranking if row.pass_rate == 0]
    wrong += [row for row in rows if row.pass_rate == 0 and row.number not in placed]
    found.always_right = Listed(len(right), right[:FIRST])
    found.never_right = Listed(len(wrong), wrong[:FIRST])
    found.suspects = [row for row in ranking[:FIRST] if (row.suspicion or 0) > 0]


# ---- the set ---------------------------------------------------------------------------------


def _written_sets(out: Path) -> list[str]:
    return [p.name for p in out.glob("*") if p.name == "set" or p.name.startswith("keep_")]


def _write_ranking(rows: list[RowScores], ranking: list[RowScores], out: Path) -> None:
    """Write every row's scores; sets that were written with others are moved aside."""
    placed = {row.number for row in ranking}
    rest = [row for row in rows if row.number not in placed]
    text = "".join(json.dumps(as_json(row)) + "\n" for row in [*ranking, *rest])
    file, sets = out / "ranking.jsonl", _written_sets(out)
    if sets and not (file.exists() and file.read_text() == text):
        move_aside(out, sets)
    write_atomically(file, text)


def _write_set(
    found: Difficulty, rows: list[RowScores], queries: SampledSet, out: Path, keep: Share | None
) -> None:
    """The rows as they were read, with the columns; one that is there has the same scores."""
    folder = out / ("set" if keep is None else f"keep_{keep}".replace(":", "_"))
    by_number, dataset = {row.number: row for row in rows}, queries.settings.dataset
    if keep is not None and not any(keep.holds(row.pass_rate) for row in rows):
        there = ", ".join(f"{one.rows} with {one.low:g}" for one in found.histogram if one.rows)
        raise DataError(f"{nothing_kept(dataset, keep, len(rows))} (there are {there})")
    base = image_base(dataset, queries.settings.images)

    def items() -> Iterator[Item]:
        for number, row in enumerate(queries.rows()):
            item, of = item_of(row, base), by_number.get(number)
            if isinstance(item, BadRow):
                yield item
            elif keep is None or (of is not None and keep.holds(of.pass_rate)):
                rates = (of.pass_rate, of.reward_mean, of.reward_std) if of else (None,) * 3
                yield item | dict(zip(COLUMNS, rates, strict=True))

    which = "" if keep is None else f" with a pass rate of {keep.low:g} to {keep.high:g}"
    if not folder.exists():
        write_folder(
            folder,
            {WORDS.get(found.split.lower(), found.split): items()},
            about=f"The rows of `{dataset.name}`{which}, by `vlrft data difficulty`: `pass_rate`, "
            f"`reward_mean` and `reward_std` are those of {found.samples} answers per row at "
            f"temperature {found.temperature:g}, of {Path(found.model).name}.",
        )
    found.folder = str(folder)
    found.written = sum(pq.read_metadata(f).num_rows for f in folder.glob("data/*.parquet"))
