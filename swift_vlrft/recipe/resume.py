"""How a run goes on that ended before its last step: its resume.sh, from its newest complete
checkpoint.

    plan = resume_plan(Path("output/qwen2_5_vl_3b_detection"))
    plan.checkpoint      output/qwen2_5_vl_3b_detection/v0-20261122-101500/checkpoint-150
    plan.text            cd /home/me/work ... swift rlhf ... --resume_from_checkpoint ...
    plan.problems        ["--dataset /data/coins is no longer there"]
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.files.checkpoints import checkpoints, why_not
from swift_vlrft.files.environment import truth
from swift_vlrft.files.jsonl import read_json
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.gpus import gpus_here
from swift_vlrft.recipe.reader import Recipe, read_text
from swift_vlrft.recipe.record import (
    FILE,
    OF_A_NODE,
    Record,
    is_running,
    kept_variables,
    own_checkpoints,
    quoted,
    record_of_run,
)
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.batches import precision
from swift_vlrft.recipe.rules.resume import RESUME

_VERSION = re.compile(r"v(\d+)-\d{8}-\d{6}")
_CHECKPOINT = re.compile(r"checkpoint-\d+")


class ResumeError(ValueError):
    """Nothing to go on from, or it is not known how: the message says what to do."""


class NoCheckpointError(ResumeError):
    """There is nothing to go on from: a run begins with its first step."""

    exit_code = 3


@dataclass
class Plan:
    """``text``: for bash. ``problems`` would end or change the run here; ``notes`` say what is not
    as it was.
    """

    run: Path
    checkpoint: Path
    step: int
    last_step: int
    text: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.step >= self.last_step > 0

    def as_dict(self) -> dict[str, Any]:
        paths = {"run": str(self.run), "checkpoint": str(self.checkpoint)}
        return asdict(self) | paths | {"ended": self.ended}


def environment(present: Mapping[str, str]) -> dict[str, str]:
    """``present`` without the variables that a run depends on: the script sets those it had."""
    others = present.keys() - kept_variables(present).keys()
    return {name: present[name] for name in others | (present.keys() & {*OF_A_NODE})}


def resume_plan(folder: Path) -> Plan:
    """Of an --output_dir, of one of its runs (v0-...), or of one checkpoint of a run.

    ResumeError: still running, no record of how it was started; NoCheckpointError: no run, or no
    complete checkpoint.
    """
    folder = Path(os.path.realpath(folder) if folder.is_symlink() else os.path.abspath(folder))
    if not folder.is_dir():
        raise NoCheckpointError(f"{folder}: no such folder")
    wanted = folder if _CHECKPOINT.fullmatch(folder.name) else None
    runs = [folder.parent] if wanted else _runs(folder)
    notes: list[str] = []
    while len(runs) > 1 and not checkpoints(runs[-1]) and record_of_run(runs[-1]) is None:
        notes.append(f"{runs[-1].name} ended before its first step: {runs[-2].name} goes on")
        runs.pop()
    run = runs[-1]
    kept = record_of_run(run)
    if kept is not None and is_running(kept):
        raise ResumeError(f"{run} is still running (process {kept.pid} of {kept.host})")
    recipe = read_text(kept.script, environment={})[0] if kept and kept.script else None
    checkpoint = _checkpoint(run, kept, recipe, wanted, notes)
    if kept is None or recipe is None:
        why = "was started from Python, not by `swift`" if kept else f"has no {FILE}"
        raise ResumeError(
            f"{run} {why}, so its command is not known: give it again and add "
            f"--resume_from_checkpoint {shlex.quote(str(checkpoint))}"
        )
    state = read_json(checkpoint / "trainer_state.json")
    args = read_json(run / "args.json") if (run / "args.json").is_file() else {}
    text = _text(kept, recipe, checkpoint, args)
    steps = int(state["global_step"]), int(state["max_steps"])
    plan = Plan(run, checkpoint, *steps, text, [*_problems(kept, recipe)], notes)
    plan.notes += _notes(kept, recipe, args)
    again = read_text(plan.text, environment={})[0]
    plan.notes += [finding.text for finding in check_recipe(again, (*RESUME, precision))]
    return plan


def _runs(folder: Path) -> list[Path]:
    """The folder itself, or the folders v0-..., v1-... below it, the newest last."""
    if (folder / "args.json").is_file() or checkpoints(folder):
        return [folder]
    found = [(match, f) for f in folder.iterdir() if (match := _VERSION.fullmatch(f.name))]
    if not found:
        raise NoCheckpointError(
            f"{folder}: no run of `swift` (args.json, checkpoint-N, or folders v0-DATE-TIME with "
            "them). Give the run's --output_dir"
        )
    return [f for _, f in sorted(found, key=lambda one: (int(one[0][1]), one[1].name))]


def _checkpoint(
    run: Path, kept: Record | None, recipe: Recipe | None, wanted: Path | None, notes: list[str]
) -> Path:
    """The newest complete one of a run, or the one from which the run was begun."""
    if wanted:
        if problem := why_not(wanted):
            raise ResumeError(f"{wanted} is not complete: {problem}")
        return wanted
    own = own_checkpoints(run, kept)
    half: list[str] = []
    names = ", ".join(one.name for one in checkpoints(run) if one not in own)
    other = [f"{names}: of an earlier run in the same folder, not of this one"] if names else []
    notes += other
    for checkpoint in reversed(own):
        if not (problem := why_not(checkpoint)):
            notes += [f"{text}; {checkpoint.name} is" for text in half]
            return checkpoint
        half.append(f"{checkpoint.name} is not complete: {problem}")
    begun_at = recipe.get("resume_from_checkpoint") if recipe else None
    if recipe and begun_at and recipe.folder and not _begun_with_weights(recipe):
        before = recipe.folder / os.path.expanduser(begun_at)
        if not why_not(before):
            text = f"{run.name} has no complete checkpoint: from the one that it began with"
            notes += [*half, text]
            return before
    what = "; ".join([*half, *other]) or "no checkpoint yet (--save_steps)"
    if kept and kept.ended is not None:
        raise ResumeError(f"{run} ended after step {kept.ended} and has no complete one: {what}")
    text = f"{run}: nothing to go on from: {what}. Start it again from its first step"
    raise NoCheckpointError(text)


def _begun_with_weights(recipe: Recipe) -> bool:
    """Its first step was none of the checkpoint's run."""
    flag = recipe.flag("resume_only_model")
    return flag is not None and bool(truth((*flag.values, "true")[0]))


def _text(kept: Record, recipe: Recipe, checkpoint: Path, args: Mapping[str, Any]) -> str:
    """The script of the run; what made it begin with a checkpoint's weights alone is over."""
    over, more = "resume_from_checkpoint|resume_only_model", ""
    if _begun_with_weights(recipe):
        over += "|ignore_data_skip"
        if args.get("ref_model") and not recipe.flag("ref_model"):
            # By default --model, which the checkpoint replaced.
            more = f"--ref_model {quoted(str(args['ref_model']))} \\\n    "
    text = re.sub(rf"(?m)^    --?(?:{over.replace('_', '[-_]')})(?:[= ].*)?\n", "", kept.script)
    visible = "CUDA_VISIBLE_DEVICES" in recipe.environment
    if kept.gpus and not visible and gpus_here() > kept.gpus:
        numbers = ",".join(map(str, range(kept.gpus)))
        text = text.replace("\nswift ", f"\nexport CUDA_VISIBLE_DEVICES={numbers}\nswift ", 1)
    end = f"{more}--resume_from_checkpoint {quoted(str(checkpoint))}"
    return text.removesuffix('"$@"\n') + end


def _problems(kept: Record, recipe: Recipe) -> Iterator[str]:
    for flag in kept.left_out:
        if not is_secret_name(flag):
            yield f"{flag} held a secret, so it is not kept: give the printed command with it"
    if recipe.folder is None:
        yield "the folder from which it was started is no longer there"
    visible, here = recipe.environment.get("CUDA_VISIBLE_DEVICES"), gpus_here()
    ids = [int(name) for name in (visible or "").split(",") if name.strip().isdecimal()]
    if kept.gpus and (here < kept.gpus or any(number >= here for number in ids)):
        yield (
            f"it ran on {kept.gpus} GPUs ({visible or 'all'}), and this machine shows {here}. A "
            "checkpoint keeps a part of its state by process: go on where there are as many"
        )


def _notes(kept: Record, recipe: Recipe, args: Mapping[str, Any]) -> Iterator[str]:
    for name in kept_variables(os.environ).keys() - recipe.environment.keys():
        yield f"{name} is set here, and was not then: unset {name}"
    if secrets := [flag for flag in kept.left_out if is_secret_name(flag)]:
        yield f"{', '.join(secrets)}: secrets are not kept. Add what is needed"
    if recipe.environment.get("NNODES", "1") != "1":
        yield "give it on every node, each with its own NODE_RANK in its environment"
    if args.get("vllm_mode") == "server":
        yield "start `swift rollout` first, as it was started then"
