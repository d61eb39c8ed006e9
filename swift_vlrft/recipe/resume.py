"""Resume a run that ended before its last step: by its resume.sh, from its newest complete
checkpoint.

    plan = resume_plan(Path("output/qwen2_5_vl_3b_detection"))
    plan.checkpoint      output/qwen2_5_vl_3b_detection/v0-20261122-101500/checkpoint-150
    plan.text            cd /home/me/work ... swift rlhf ... --resume_from_checkpoint ...
    plan.problems        ["--dataset /data/coins is no longer there"]
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from swift_vlrft.files.checkpoints import checkpoints, why_not
from swift_vlrft.files.jsonl import read_json
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.gpus import gpus_here
from swift_vlrft.recipe.reader import Recipe, read_text
from swift_vlrft.recipe.record import (
    FILE,
    GIVEN,
    NODE_VARIABLES,
    Record,
    is_running,
    kept_variables,
    own_checkpoints,
    quoted,
    record_of_run,
    versions,
)
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.batches import precision
from swift_vlrft.recipe.rules.resume import RESUME
from swift_vlrft.recipe.run import resolve

_VERSION = re.compile(r"v(\d+)-\d{8}-\d{6}")
_CHECKPOINT = re.compile(r"checkpoint-\d+")


class ResumeError(ValueError):
    """The run cannot be resumed: the message says why and what to do."""


class NoCheckpointError(ResumeError):
    """No checkpoint can be resumed: start the run again from its first step."""

    exit_code = 3


class Plan(msgspec.Struct):
    """``text`` is for bash. ``problems`` would end or change the run here; ``notes`` say what
    differs from the first start.
    """

    run: Path
    checkpoint: Path
    step: int
    last_step: int
    ended: bool
    text: str
    problems: list[str]
    notes: list[str]


def environment(present: Mapping[str, str]) -> dict[str, str]:
    """Drop the variables that a run depends on from ``present``: the script sets its own."""
    dropped = kept_variables(present).keys() - {*NODE_VARIABLES}
    return {name: value for name, value in present.items() if name not in dropped}


def resume_plan(folder: Path) -> Plan:
    """Plan how to resume an --output_dir, a run in it (v0-...), or a checkpoint of a run.

    ResumeError: still running, no record of how it was started; NoCheckpointError: no run, or no
    complete checkpoint.
    """
    folder = Path(os.path.realpath(folder))
    if not folder.is_dir():
        raise NoCheckpointError(f"{folder}: no such folder")
    notes: list[str] = []
    chosen = _CHECKPOINT.fullmatch(folder.name)
    run = folder.parent if chosen else _newest_run(folder, notes)
    record = record_of_run(run)
    if record and is_running(record):
        raise ResumeError(f"{run} is still running (process {record.pid} of {record.host})")
    checkpoint = folder if chosen else _checkpoint(run, record, notes)
    if why := why_not(checkpoint):
        raise ResumeError(f"{checkpoint} is not complete: {why}")
    more = f"--resume_from_checkpoint {quoted(str(checkpoint))}"
    if not record or GIVEN not in record.script:
        why = "was not started by `swift`" if record else f"has no {FILE}"
        raise ResumeError(f"{run} {why}, so its command is not known: run it again with {more}")
    before, _, after = record.script.rpartition(GIVEN)
    text = f"{before}{more}{after}"
    recipe = read_text(text, environment={})[0]
    notes += _notes(record, recipe)
    notes += [finding.text for finding in check_recipe(resolve(recipe), (*RESUME, precision))]
    state = read_json(checkpoint / "trainer_state.json")
    step, last = int(state["global_step"]), int(state["max_steps"])
    problems = [*_problems(record, recipe)]
    return Plan(run, checkpoint, step, last, step >= last > 0, text, problems, notes)


def _newest_run(folder: Path, notes: list[str]) -> Path:
    """Return the folder itself, or the newest folder v0-..., v1-... below it that has begun."""
    if (folder / "args.json").is_file() or checkpoints(folder):
        return folder
    matches = ((match, f) for f in folder.iterdir() if (match := _VERSION.fullmatch(f.name)))
    runs = [run for _, run in sorted((int(match[1]), run) for match, run in matches)]
    begun = [run for run in runs if (run / FILE).is_file() or checkpoints(run)]
    if not begun:
        raise NoCheckpointError(
            f"{folder}: no run of `swift` has begun here (args.json, checkpoint-N, or folders "
            "v0-DATE-TIME with them). Give the run's --output_dir"
        )
    if runs[-1] != begun[-1]:
        notes.append(f"{runs[-1].name} ended before its first step: {begun[-1].name} goes on")
    return begun[-1]


def _checkpoint(run: Path, record: Record | None, notes: list[str]) -> Path:
    """Return the newest complete checkpoint of a run, or the checkpoint that it began with."""
    own = own_checkpoints(run, record)
    if other := [folder.name for folder in checkpoints(run) if folder not in own]:
        notes.append(f"an earlier run in the same folder made {', '.join(other)}")
    for checkpoint in reversed(own):
        if not (why := why_not(checkpoint)):
            return checkpoint
        notes.append(f"{checkpoint.name} is not complete: {why}")
    if record and record.begun_at and not why_not(Path(record.begun_at)):
        notes.append(f"{run.name} has no complete checkpoint: it starts again where it began")
        return Path(record.begun_at)
    what = "; ".join(notes) or "no checkpoint yet (--save_steps)"
    if record and record.ended is not None:
        raise ResumeError(f"{run} ended after step {record.ended} without a checkpoint: {what}")
    text = f"{run}: nothing to go on from: {what}. Start it again from its first step"
    raise NoCheckpointError(text)


def _problems(record: Record, recipe: Recipe) -> Iterator[str]:
    for flag in record.left_out:
        if not is_secret_name(flag):
            yield f"{flag} held a secret, so it is not kept: give the printed command with it"
    for flag, path in record.paths:
        if not os.path.exists(path):
            yield f"{flag} {path} is no longer there. Put it back, or link it there"
    visible, here = recipe.environment.get("CUDA_VISIBLE_DEVICES", ""), gpus_here()
    ids = [int(name) for name in visible.split(",") if name.strip().isdecimal()]
    if record.gpus and (here < record.gpus or any(number >= here for number in ids)):
        yield (
            f"the run had {record.gpus} GPUs ({visible}), and this machine shows {here}. Each "
            "process keeps its part of a checkpoint: go on where there are as many GPUs"
        )


def _notes(record: Record, recipe: Recipe) -> Iterator[str]:
    now = versions()
    for name, was in record.versions.items():
        if now.get(name) != was:
            yield f"{name} was {was} and is {now.get(name, 'missing')} now: results may differ"
    for name in kept_variables(os.environ).keys() - recipe.environment.keys():
        yield f"{name} is set now and was not then: unset {name}"
    if secrets := [flag for flag in record.left_out if is_secret_name(flag)]:
        yield f"{', '.join(secrets)}: secrets are not kept. Add what is needed"
    if recipe.environment.get("NNODES", "1") != "1":
        yield "run this on every node, each with its own NODE_RANK in its environment"
