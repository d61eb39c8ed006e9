"""The road leads from a data set to a verdict, on a CPU and in minutes.

    OUT/road.json            what was asked: an interrupted road goes on behind its last whole stage
    OUT/data                 the rows that are fit to train on, split by picture: train and test
    OUT/start                a tiny model of the family that writes the format and guesses
    OUT/grpo                 what `swift rlhf` wrote; what it printed is in grpo.log
    OUT/eval/before, after   `vlrft eval` of both on the held-out pictures; with several tasks, a
                             folder for each
    OUT/{summary.json, reward.png, report.html}

It shows that data, prompts and rewards work together, not what a real model will reach.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.demo.grpo import FORMAT, RoadError, training
from swift_vlrft.demo.grpo import curves as curves_of
from swift_vlrft.demo.split import Halves, write_halves
from swift_vlrft.families import known_family
from swift_vlrft.files.environment import errors_only
from swift_vlrft.files.records import as_json, read_record, write_record
from swift_vlrft.files.writing import beside, write_atomically
from swift_vlrft.report.curves import ends
from swift_vlrft.report.reward_picture import draw_rewards
from swift_vlrft.tiny.start import Start

COVER = "vlrft_zoom_cover"
SPARE = 8
"""Tokens that an answer may take beyond the longest gold answer."""

Advance = Callable[[int, str], None]
"""A function of the steps done, and a note."""


class Road(msgspec.Struct, frozen=True):
    """A road has these settings: ``warm_steps`` and ``warm_rate`` are of the start model's
    supervised training, ``steps`` and ``learning_rate`` of GRPO; the tiny model sees images of
    about ``side`` x ``side`` pixels.
    """

    data: str
    family: str = "internvl"
    side: int = 112
    warm_steps: int = 400
    warm_rate: float = 2e-3
    steps: int = 60
    learning_rate: float = 2e-4
    seed: int = 0
    max_turns: int = 1
    """Above 1 the model may look closer at the picture before it answers."""


class _Begun(msgspec.Struct):
    road: Road
    halves: Halves
    state: str = ""
    """What ``_state`` said of the set when it was read."""


def take_road(road: Road, folder: Path) -> dict[str, Any]:
    """Go the whole road in ``folder``; return what summary.json holds. DataError says what is
    wrong with the set before anything is trained, RoadError which part failed.
    """
    started = time.monotonic()
    halves = _begin(road, folder)
    tasks = halves.rewards()
    os.environ["MAX_PIXELS"] = str(road.side**2)  # as the tiny model sees them
    with _stages() as begin:
        from swift_vlrft.report.page import write_report

        with _environment_kept():
            start = _start(road, folder, begin)

        def evaluated(name: str, checkpoint: Path) -> None:
            advance = begin(f"held-out images, {name}", sum(halves.test.values()))
            out = folder / "eval" / name
            with _environment_kept():
                _evaluate(road, checkpoint, out, list(tasks), start.longest, advance)

        last = folder / "grpo" / f"checkpoint-{road.steps}"
        rewards = [*tasks.values(), *[COVER] * (road.max_turns > 1)]
        if last.is_dir():
            evaluated("before", folder / "start")
        else:
            flags: dict[str, Any] = {
                "max_steps": road.steps,
                "learning_rate": road.learning_rate,
                "max_completion_length": start.longest + SPARE,
            }
            if road.max_turns > 1:
                flags |= {"multi_turn_scheduler": "vlrft_zoom", "max_turns": road.max_turns}
            with training(folder, rewards, **flags) as run:
                evaluated("before", folder / "start")
                advance = begin("swift rlhf --rlhf_type grpo", road.steps)
                for step, logged in run:
                    advance(step, " ".join(f"{name} {v:.2f}" for name, v in logged.items()))
        if not last.is_dir():
            raise RoadError(f"{folder / 'grpo'} holds no {last.name}; see {folder / 'grpo.log'}")
        evaluated("after", last)
        # A page shows one evaluation before and after; several tasks have curves each.
        sides = [folder / "eval" / name for name in ("before", "after")]
        write_report(folder / "grpo", sides if len(tasks) == 1 else [], folder / "report.html")
    curves = curves_of(folder, rewards)
    summary: dict[str, Any] = {
        **as_json(road),
        "train": halves.train,
        "test": halves.test,
        "notes": halves.notes + _too_long(start),
        "format": _ends(curves[FORMAT]),
        **({"cover": _ends(curves[COVER])} if COVER in curves else {}),
        "tasks": {
            task: {
                "reward": name,
                **_ends(curves[name]),
                "rows": halves.test[task],
                **_compared(folder, task if len(tasks) > 1 else "", name),
            }
            for task, name in tasks.items()
        },
        "seconds": round(time.monotonic() - started, 1),
    }
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    with beside(folder / "reward.png") as unfinished:
        draw_rewards(curves, unfinished)
    return summary


@contextmanager
def _environment_kept() -> Iterator[None]:
    """A template that is loaded writes limits of images into the environment, and evaluations with
    other limits are other evaluations, also for a road that is taken up again.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def remove_road(folder: Path) -> None:
    """Remove what an earlier road wrote, and nothing else."""
    if not (folder / "road.json").exists():
        return
    for name in ("data", "start", "grpo", "eval"):
        shutil.rmtree(folder / name, ignore_errors=True)
    files = ("start.json", "grpo.log", "summary.json", "reward.png", "report.html", "road.json")
    for name in files:
        (folder / name).unlink(missing_ok=True)


def _begin(road: Road, folder: Path) -> Halves:
    """The halves of the set: written now, or by an earlier road that has its start model."""
    stamp = folder / "road.json"
    if stamp.exists():
        begun = read_record(stamp, _Begun)
        if begun.road != road:
            raise RoadError(
                f"{folder} holds the road of {begun.road.data} with other settings; name another "
                "folder with --out, or remove this folder"
            )
        if (folder / "start.json").exists():
            if _state(Path(road.data)) not in ("", begun.state):  # one that is gone is not needed
                raise RoadError(
                    f"{road.data} has changed since {folder} was begun; name another folder with "
                    "--out, or remove this folder"
                )
            return begun.halves
        remove_road(folder)  # nothing is trained yet, and the set may have been mended since
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RoadError(f"{folder} is no empty folder; name another folder with --out")
    if folder.resolve().is_relative_to(Path(road.data).resolve()):
        raise RoadError(
            f"{folder} lies inside {road.data}: what is written would look like rows of the set; "
            "name a folder elsewhere with --out"
        )
    if marks := [mark for mark in ":#" if mark in str(folder)]:
        raise RoadError(
            f"{folder} has {marks[0]!r} in its name, after which ms-swift expects a subset or a "
            "number of rows; name another folder with --out"
        )
    from swift_vlrft.tiny.checkpoint import compact

    compact(family := known_family(road.family), road.side)  # a ValueError lists the families
    box_format = family.box_format or "norm1000"
    halves = write_halves(Path(road.data), folder / "data", road.seed, box_format)
    write_record(stamp, _Begun(road, halves, _state(Path(road.data))))
    return halves


def _state(data: Path) -> str:
    """Return number, size and newest change of a set's files; empty for a set that is gone."""
    stats = [path.stat() for path in (data, *data.rglob("*")) if path.is_file()]
    if not stats:
        return ""
    newest = max(stat.st_mtime_ns for stat in stats)
    return f"{len(stats)} files, {sum(stat.st_size for stat in stats)} bytes, {newest} ns"


def _start(road: Road, folder: Path, begin: Callable[[str, int], Advance]) -> Start:
    """The start model: trained now, or there already."""
    stamp = folder / "start.json"
    if not stamp.exists():
        shutil.rmtree(folder / "start", ignore_errors=True)
        advance = begin("warm start: the format, and a guess", road.warm_steps)
        with errors_only():
            from swift_vlrft.swift_plugin.warm_start import write_warm_start

            start = write_warm_start(
                road.family,
                folder / "data",
                folder / "start",
                steps=road.warm_steps,
                rate=road.warm_rate,
                side=road.side,
                seed=road.seed,
                progress=advance,
            )
        write_record(stamp, start)
    return read_record(stamp, Start)


def _too_long(start: Start) -> list[str]:
    if not start.left_out:
        return []
    return [f"rows whose answers are too long for a tiny model to learn: {start.left_out}"]


def _ends(curve: dict[int, float]) -> dict[str, float]:
    return dict(zip(("first", "last"), ends([*curve.values()]), strict=True))


def _compared(folder: Path, kind: str, reward: str) -> dict[str, Any]:
    """The two evaluations by headline metric, and by the reward where it says something else."""
    from swift_vlrft.evaluation.compare import compare_runs

    compared = compare_runs(*(folder / "eval" / side / kind for side in ("before", "after")))
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
    return {
        "verdict": compared.verdict.word,
        "why": compared.verdict.why,
        "held_out": held_out,
    }


def _evaluate(
    road: Road, checkpoint: Path, out: Path, tasks: Sequence[str], longest: int, advance: Advance
) -> None:
    """Greedy answers on the held-out pictures, into ``out``."""
    from swift_vlrft.swift_plugin.evaluate import evaluate

    done = 0

    def answered(total: int, n: int) -> None:
        nonlocal done
        done += n
        advance(done, "")

    for task in tasks:
        evaluate(
            checkpoint,
            f"{out.parents[1] / 'data'}:native",
            task,
            out=out / (task if len(tasks) > 1 else ""),
            split="test",
            engine="transformers",
            batch_size=64,
            dtype="float32",
            max_tokens=longest + SPARE,
            max_turns=road.max_turns,
            workers=1,
            progress=answered,
        )


@contextmanager
def _stages() -> Iterator[Callable[[str, int], Advance]]:
    """``begin(name, steps)`` shows a bar; where there is no terminal, a line for every tenth."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bars:

        def begin(name: str, total: int) -> Advance:
            bar = bars.add_task(name, total=total)

            def advance(done: int, note: str) -> None:
                bars.update(bar, completed=done, description=f"{name} {note}")
                if not console.is_terminal and (done % max(1, total // 10) == 0 or done == total):
                    line = f"{name}: {done}/{total} {note}"
                    console.print(line, highlight=False, soft_wrap=True)

            return advance

        yield begin
