"""How a run goes on that ended before its last step: the command it was started with, from its
newest complete checkpoint.

    plan = resume_plan(Path("output/qwen2_5_vl_3b_detection"))
    plan.checkpoint      output/qwen2_5_vl_3b_detection/v0-20261122-101500/checkpoint-150
    plan.text            cd /home/me/work && \\ ... swift rlhf \\ ... --resume_from_checkpoint ...
    plan.problems        ["--dataset /data/coins is no longer there"]
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.files.checkpoints import checkpoints, why_not
from swift_vlrft.files.environment import truth
from swift_vlrft.files.jsonl import read_json
from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.flags import flags_of
from swift_vlrft.recipe.gpus import gpus_here
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.record import (
    Record,
    is_running,
    kept_variables,
    own_checkpoints,
    record_of_run,
    versions,
)
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.rules.batches import precision
from swift_vlrft.recipe.rules.resume import RESUME

_VERSION = re.compile(r"v(\d+)-\d{8}-\d{6}")
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_OF_A_NODE = ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What another node, or another start of several, has otherwise: as it is set here."""
_OF_A_RESUME = ("resume_from_checkpoint", "resume_only_model")


class ResumeError(ValueError):
    """Nothing to go on from, or it is not known how: the message says what to do."""


class NoCheckpointError(ResumeError):
    """There is nothing to go on from: a run begins with its first step."""

    exit_code = 3


@dataclass
class Plan:
    """``problems`` would end or change the run here; ``notes`` say what is not as it was."""

    run: Path
    checkpoint: Path
    step: int
    last_step: int
    record: Record
    argv: list[str]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.step >= self.last_step > 0

    @property
    def text(self) -> str:
        """For a shell: a variable and a flag a line."""
        variables = [f"{name}={_quoted(v)}" for name, v in self.record.variables.items()]
        flags = ["    " + " ".join(map(_quoted, f.words)) for f in flags_of(self.argv)]
        lines = [f"cd {_quoted(self.record.folder)} &&", *variables]
        return " \\\n".join([*lines, f"swift {self.record.command}", *flags])

    def environment(self, present: Mapping[str, str]) -> dict[str, str]:
        """``present`` with the run's variables, and without those that it did not have."""
        others = present.keys() - kept_variables(present).keys()
        return {name: present[name] for name in others} | self.record.variables

    def as_dict(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "ended": self.ended,
            "checkpoint": str(self.checkpoint),
            "step": self.step,
            "last_step": self.last_step,
            "folder": self.record.folder,
            "variables": self.record.variables,
            "command": ["swift", self.record.command, *self.argv],
            "problems": self.problems,
            "notes": self.notes,
        }


def _quoted(word: str) -> str:
    """For bash, printable and in one line: what is not is written as bash's escapes."""
    if word.isprintable():
        return shlex.quote(word)
    plain = (c if c.isprintable() and c not in "'\\" else f"\\U{ord(c):08x}" for c in word)
    return f"$'{''.join(plain)}'"


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
    checkpoint = _checkpoint(run, kept, wanted, notes)
    if kept is None or kept.command is None:
        why = "was started from Python, not by `swift`" if kept else "has no vlrft_run.json"
        raise ResumeError(
            f"{run} {why}, so its command is not known: give it again and add "
            f"--resume_from_checkpoint {shlex.quote(str(checkpoint))}"
        )
    here = os.environ
    kept.variables |= {
        name: here[name] for name in _OF_A_NODE if name in here and name in kept.variables
    }
    state = read_json(checkpoint / "trainer_state.json")
    args = read_json(run / "args.json") if (run / "args.json").is_file() else {}
    plan = Plan(
        *(run, checkpoint, int(state["global_step"]), int(state["max_steps"]), kept),
        argv=_argv(kept, checkpoint, args),
        notes=notes,
    )
    plan.problems += _problems(kept)
    plan.notes += _notes(kept, args)
    there = args.get("output_dir")
    if there and not wanted and os.path.realpath(there) != os.path.realpath(run):
        text = f"{run} was moved or copied: the command writes where it was, below {there}"
        plan.notes.append(f"{text}, and the next `vlrft resume` has to be given that")
    recipe = read_text(plan.text, environment={})[0]
    plan.notes += [finding.text for finding in check_recipe(recipe, (*RESUME, precision))]
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


def _checkpoint(run: Path, kept: Record | None, wanted: Path | None, notes: list[str]) -> Path:
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
    begun_at = _value(kept.argv, "resume_from_checkpoint") if kept else None
    if kept and begun_at and not _begun_with_weights(kept):
        before = Path(kept.folder, os.path.expanduser(begun_at))
        if not why_not(before):
            text = f"{run.name} has no complete checkpoint: from the one that it began with"
            notes += [*half, text]
            return before
    what = "; ".join([*half, *other]) or "no checkpoint yet (--save_steps)"
    if kept and kept.ended is not None:
        raise ResumeError(f"{run} ended after step {kept.ended} and has no complete one: {what}")
    text = f"{run}: nothing to go on from: {what}. Start it again from its first step"
    raise NoCheckpointError(text)


def _begun_with_weights(kept: Record) -> bool:
    """Its first step was none of the checkpoint's run."""
    return bool(truth(_value(kept.argv, "resume_only_model") or ""))


def _argv(kept: Record, checkpoint: Path, args: Mapping[str, Any]) -> list[str]:
    """The flags of the run; what made it begin with a checkpoint's weights alone is over."""
    begun_with_weights = _begun_with_weights(kept)
    dropped = (*_OF_A_RESUME, *(["ignore_data_skip"] if begun_with_weights else []))
    last = {flag.name: flag.words for flag in flags_of(kept.argv) if flag.name not in dropped}
    argv = [word for words in last.values() for word in words]
    if begun_with_weights and args.get("ref_model") and _value(argv, "ref_model") is None:
        argv += ["--ref_model", str(args["ref_model"])]  # by default --model, which it replaced
    return [*argv, "--resume_from_checkpoint", str(checkpoint)]


def _value(argv: list[str], flag: str) -> str | None:
    """The last word of a flag; "true" for one without, None if it is not given."""
    found = {given.name: given.values for given in flags_of(argv)}.get(flag)
    return None if found is None else (found or ("true",))[-1] or "true"


def _problems(kept: Record) -> Iterator[str]:
    for flag in kept.left_out:
        if not is_secret_name(flag):
            yield f"{flag} held a secret, so it is not kept: give the printed command with it"
    if not os.path.isdir(kept.folder):
        yield f"the folder {kept.folder}, from which it was started, is no longer there"
    for flag, path in kept.paths:
        if not os.path.exists(path):
            yield f"{flag} {path} is no longer there. Put it back, or link it there"
    if not kept.gpus:
        return
    visible, here = kept.variables.get("CUDA_VISIBLE_DEVICES"), gpus_here()
    ids = [int(name) for name in (visible or "").split(",") if name.strip().isdecimal()]
    if here < kept.gpus or any(number >= here for number in ids):
        yield (
            f"it ran on {kept.gpus} GPUs ({visible or 'all'}), and this machine shows {here}. A "
            "checkpoint keeps a part of its state by process: go on where there are as many"
        )
    elif visible is None and here > kept.gpus:
        kept.variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(kept.gpus)))


def _notes(kept: Record, args: Mapping[str, Any]) -> Iterator[str]:
    now = versions()
    for name, was in kept.versions.items():
        if now.get(name) != was:
            yield f"{name} {was} then, {now.get(name, 'none')} now: the rest may be another run"
    for name in kept_variables(os.environ).keys() - kept.variables.keys():
        yield f"{name} is set here, and was not then: unset {name}"
    if secrets := [flag for flag in kept.left_out if is_secret_name(flag)]:
        yield f"{', '.join(secrets)}: secrets are not kept. Add what is needed"
    if kept.variables.get("NNODES", "1") != "1":
        yield "give it on every node, each with its own NODE_RANK in its environment"
    if args.get("vllm_mode") == "server":
        yield "start `swift rollout` first, as it was started then"
