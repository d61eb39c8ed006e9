"""A trial takes a data set through a whole run to a verdict, on a CPU or one GPU.

    OUT/trial.json           what was asked: an interrupted trial goes on after its last whole stage
    OUT/data                 the rows that are fit to train on, split by picture: train and test
    OUT/start                a tiny model of the family that writes the format and guesses
    OUT/grpo                 what `swift rlhf` wrote; what it printed is in grpo.log
    OUT/eval/before, after   `vlrft eval` of both on the held-out pictures; with several tasks, a
                             folder for each
    OUT/{summary.json, report.html}

It shows that data, prompts and rewards work together, not what a real model will reach.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.demo.card import Card
from swift_vlrft.demo.split import Halves, write_halves
from swift_vlrft.demo.training import TrialError, flags_of, training
from swift_vlrft.demo.warm_start import RECORD, Progress, WarmStart, write_warm_start
from swift_vlrft.families import known_family
from swift_vlrft.files.records import as_json, read_record, write_record
from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.report.curves import ends
from swift_vlrft.report.run_log import Series, read_run
from swift_vlrft.tiny.compact import compact

FORMAT = "vlrft_format"
SPARE = 8
"""Tokens that an answer may take beyond the longest gold answer."""
FOLDERS = ("data", "start", "start.making", "grpo", "eval")
FILES = ("grpo.log", "summary.json", "report.html", "trial.json")


class TrialConfig(msgspec.Struct, frozen=True):
    """Settings of a trial: ``warm_steps`` and ``warm_rate`` are of the supervised warm start,
    ``steps`` and ``learning_rate`` of GRPO; the model sees images of about ``side`` x ``side``.
    """

    data: str
    family: str = "internvl"
    side: int = 112
    warm_steps: int = 400
    warm_rate: float = 2e-3
    steps: int = 60
    learning_rate: float = 2e-4
    seed: int = 0
    device: str = "cpu"
    """The name of the GPU, if it is trained on one."""


class _Begun(msgspec.Struct):
    config: TrialConfig
    halves: Halves


def run_trial(config: TrialConfig, folder: Path, card: Card | None = None) -> dict[str, Any]:
    """Run a trial in ``folder``; return what summary.json holds. DataError says what is wrong with
    the set before anything is trained, TrialError which stage failed.
    """
    from swift_vlrft.report.page import write_report

    started = time.monotonic()
    halves = begin_trial(config, folder)
    tasks = halves.rewards()
    # As the tiny model sees images, and frames: 16 of a video.
    sizes = ("MAX_PIXELS", "VIDEO_MAX_PIXELS", "VIDEO_MIN_PIXELS")
    os.environ |= dict.fromkeys(sizes, str(config.side**2)) | {"FPS_MAX_FRAMES": "16"}
    os.environ.update(card.variables if card else {"CUDA_VISIBLE_DEVICES": ""})
    names = [*tasks.values()]
    start = _warm_start(config, folder, card)
    _train(config, folder, names, halves.test, start.longest + SPARE, card)
    last = folder / "grpo" / f"checkpoint-{config.steps}"
    _evaluate(config, folder, "before", folder / "start", halves.test, start.longest + SPARE)
    _evaluate(config, folder, "after", last, halves.test, start.longest + SPARE)
    # A page shows one evaluation before and after; several tasks have curves each.
    sides = [folder / "eval" / side for side in ("before", "after")]
    write_report(folder / "grpo", sides if len(tasks) == 1 else [], folder / "report.html")
    logged = read_run(folder / "grpo").series
    means = {name: _ends(logged[f"rewards/{name}/mean"]) for name in (*names, FORMAT)}
    too_long = f"rows whose answers are too long for a tiny model to learn: {start.left_out}"
    summary: dict[str, Any] = {
        **as_json(config),
        "train": halves.train,
        "test": halves.test,
        "notes": halves.notes + [too_long] * (start.left_out > 0),
        "format": means[FORMAT],
        "tasks": {
            task: {
                "reward": name,
                **means[name],
                "rows": halves.test[task],
                **_compared([_of_task(side, task, tasks) for side in sides], name),
            }
            for task, name in tasks.items()
        },
        "seconds": round(time.monotonic() - started, 1),
    }
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary


def remove_trial(folder: Path) -> None:
    """Remove what an earlier trial wrote, and nothing else."""
    if (folder / "trial.json").exists():
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in FILES:
            (folder / name).unlink(missing_ok=True)


def begin_trial(config: TrialConfig, folder: Path) -> Halves:
    """Return the halves of the set: written now, or by an earlier trial."""
    stamp, data = folder / "trial.json", Path(config.data)
    another = "name another folder with --out"
    if stamp.exists():
        begun = read_record(stamp, _Begun)
        if begun.config != config:
            raise TrialError(
                f"{folder} holds the trial of {begun.config.data} with other settings; {another}, "
                "or remove this folder"
            )
        if _newest(data) > stamp.stat().st_mtime_ns:
            raise TrialError(
                f"{data} has changed since {folder} was begun; {another}, or remove this folder"
            )
        return begun.halves
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TrialError(f"{folder} is no empty folder; {another}")
    if folder.resolve().is_relative_to(data.resolve()):
        raise TrialError(
            f"{folder} lies inside {data}: what is written would look like rows of the set; "
            f"{another}"
        )
    if marks := [mark for mark in ":#" if mark in str(folder)]:
        raise TrialError(
            f"{folder} has {marks[0]!r} in its name, after which ms-swift expects a subset or a "
            f"number of rows; {another}"
        )
    compact(family := known_family(config.family), config.side)  # a ValueError lists the families
    halves = write_halves(data, folder / "data", config.seed, family.box_format or "norm1000")
    if halves.of_videos and not (family.has_videos and config.device == "cpu"):
        raise TrialError(
            f"{data} is of videos: give --family qwen2_5_vl (any Qwen-VL), --device cpu"
        )
    write_record(stamp, _Begun(config, halves))
    return halves


def _newest(data: Path) -> int:
    """Return when the set last changed, in nanoseconds; 0 for a set that is gone."""
    return max(
        (path.stat().st_mtime_ns for path in (data, *data.rglob("*")) if path.is_file()), default=0
    )


def _warm_start(config: TrialConfig, folder: Path, card: Card | None) -> WarmStart:
    """Train the start model, unless an earlier trial did."""
    if (folder / "start").exists():
        return read_record(folder / "start" / RECORD, WarmStart)
    return write_warm_start(
        config.family,
        folder / "data",
        folder / "start",
        steps=config.warm_steps,
        rate=config.warm_rate,
        side=config.side,
        card=card,
        seed=config.seed,
        progress=_progress("swift sft: the format, and a guess", config.warm_steps),
    )


def _train(
    config: TrialConfig,
    folder: Path,
    rewards: list[str],
    rows: Mapping[str, int],
    max_tokens: int,
    card: Card | None,
) -> None:
    """Train the start model by recipes/demo_cpu.sh or demo_gpu.sh, unless an earlier trial did. On
    a CPU it is evaluated in the meantime.
    """
    out, start = folder / "grpo", folder / "start"
    last = out / f"checkpoint-{config.steps}"
    if last.is_dir():
        return
    flags: dict[str, object] = {
        "max_steps": config.steps,
        "learning_rate": config.learning_rate * (card.rate if card else 1),
        "max_completion_length": max_tokens,
    }
    variables = {
        "MODEL": str(start),
        "DATASET": f"{folder / 'data'}:native",
        "OUTPUT_DIR": str(out),
        "REWARDS": " ".join(rewards),
        "VLRFT_TRACK_MEMORY": "1",  # where a step's time goes, for the report
    }
    script = shipped_file("recipes", "demo_gpu.sh" if card else "demo_cpu.sh")
    with training(["bash", str(script), *flags_of(flags)], out, **variables) as logged:
        if card is None:
            _evaluate(config, folder, "before", start, rows, max_tokens)
        advance = _progress("swift rlhf --rlhf_type grpo", config.steps)
        for metrics in logged:
            means = {name: metrics.get(f"rewards/{name}/mean") for name in (*rewards, FORMAT)}
            advance(1, " ".join(f"{name} {v:.2f}" for name, v in means.items() if v is not None))
    if not last.is_dir():
        raise TrialError(f"{out} holds no {last.name}; see {out}.log")


def _evaluate(
    config: TrialConfig,
    folder: Path,
    side: str,
    checkpoint: Path,
    rows: Mapping[str, int],
    max_tokens: int,
) -> None:
    """Write greedy answers on the held-out pictures into OUT/eval, those that are not there."""
    from swift_vlrft.swift_plugin.evaluate import evaluate

    advance = _progress(f"held-out images, {side}", sum(rows.values()))
    for task in rows:
        out = _of_task(folder / "eval" / side, task, rows)
        if (out / "summary.json").exists():
            continue
        evaluate(
            checkpoint,
            f"{folder / 'data'}:native",
            task,
            out=out,
            split="test",
            engine="transformers",
            batch_size=64,
            dtype="float32" if config.device == "cpu" else "bfloat16",
            max_tokens=max_tokens,
            workers=1,
            progress=lambda total, n: advance(n, ""),
        )


def _of_task(folder: Path, task: str, tasks: Mapping[str, Any]) -> Path:
    return folder / task if len(tasks) > 1 else folder


def _ends(points: Series) -> dict[str, float]:
    return dict(zip(("first", "last"), ends([value for _, value in points]), strict=True))


def _compared(sides: list[Path], reward: str) -> dict[str, Any]:
    """Compare two evaluations by headline metric, and by the reward where it differs from that."""
    from swift_vlrft.evaluation.compare import compare_runs

    compared = compare_runs(*sides)
    held_out: list[dict[str, Any]] = []
    for name in dict.fromkeys((compared.headline, reward)):
        of = compared.metrics[name]
        values = {
            "before": of.a or 0.0,
            "after": of.b or 0.0,
            "difference_95": [of.low, of.high],  # of after - before, over the same rows
        }
        if not held_out or values != {key: held_out[0][key] for key in values}:
            held_out.append({"metric": name, **values})
    verdict = compared.verdict
    return {"verdict": verdict.word, "why": verdict.why, "held_out": held_out}


def _progress(stage: str, total: int) -> Progress:
    """Return a function that says where a stage is, at every tenth of its steps."""
    done = 0

    def advance(steps: int, note: str) -> None:
        nonlocal done
        done += steps
        if done % max(1, total // 10) == 0 or done == total:
            print(f"{stage}: {done}/{total} {note}", file=sys.stderr, flush=True)

    return advance
