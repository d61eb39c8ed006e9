"""Check the model, its checkpoint and plugin files: do they exist, what do they run?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.syntax import is_a_path
from swift_vlrft.datasets.validate import named_tasks
from swift_vlrft.families import family_of
from swift_vlrft.families.family import Family
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.files.checkpoints import good_checkpoints, why_not
from swift_vlrft.files.jsonl import LineError, read_json
from swift_vlrft.recipe.plugins import clash, read_plugin
from swift_vlrft.recipe.rules.finding import PLACEHOLDER, Finding, left_out, note, problem
from swift_vlrft.recipe.run import Run
from swift_vlrft.rewards import TASK_NAMES

RESUME = "resume_from_checkpoint"
PLUGINS = ("external_plugins", "custom_register_path")
SHADOWS = ("datasets", "swift", "json", "torch", "transformers", "vllm", "trl", "peft", "typing")


def no_such_path(
    run: Run, flag: str, rule: str, name: str, why: str = "does not exist"
) -> Iterator[Finding]:
    """Report a path that does not exist, in a note where the script may make it."""
    path = run.recipe.at(name)
    if path is None or path.exists() or PLACEHOLDER.search(name):
        return
    if run.recipe.made:
        text = f"--{flag} {name} does not exist yet; an earlier command may make it"
        yield note(run, flag, rule, text)
    else:
        yield problem(run, flag, rule, f"--{flag} {name} {why} (from {run.recipe.folder})")


def family(run: Run) -> Family | None:
    """Return the model's family by --model_type, its folder, or its name. A run that resumes a
    checkpoint may name that alone.
    """
    name = run.text("model") or run.text("resume_from_checkpoint") or ""
    return family_of(model_type=run.text("model_type"), name=_known_folder(run, name))


def _known_folder(run: Run, name: str) -> str:
    """Return the path of the folder of that name, if there is one, else the name."""
    folder = run.recipe.at(name) if name else None
    return str(folder) if folder is not None and folder.is_dir() else name


def resize_of(run: Run, known: Family | None) -> ImageResize | None:
    """Return how the family resizes images under the run's limits; None if it is not known."""
    if known is None or known.images is None:
        return None
    name = run.text("model") or run.text("resume_from_checkpoint") or ""
    limits = run.recipe.environment | run.limits_in_kwargs
    low, high = known.images.limits(_known_folder(run, name), limits)
    return ImageResize(known.name, low, high, run.optional("max_pixels"))


def checkpoint_arguments(run: Run) -> dict[str, Any]:
    """Return the args.json of the model's folder, which a training of ms-swift has written."""
    folder = run.recipe.at(name) if (name := run.text("model")) else None
    try:
        arguments = read_json(folder / "args.json") if folder else {}
    except (OSError, LineError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def model(run: Run) -> Iterator[Finding]:
    if not run.trains:
        return
    if run.omits("model", "resume_from_checkpoint"):
        yield problem(run, "model", "model", "--model is missing")
    name = run.text("model")
    if name == "":
        yield problem(run, "model", "model", "--model has no value")
    told, its = family(run), family_of(name=_known_folder(run, name or ""))
    if told and its and told is not its:
        text = f"--model_type {run.text('model_type')} is not the family of {name}, {its.name}: "
        text += "boxes and images may be taken for another's. Leave it out"
        yield note(run, "model_type", "model", text)
    named = [("model", name or ""), *(("adapters", path) for path in run.texts("adapters"))]
    for flag, path in named:
        if is_a_path(path):
            yield from no_such_path(run, flag, "model", path)


def hub_ids(run: Run) -> Iterator[Finding]:
    """Find ids that are almost those of models that ms-swift registers: a slip of two letters, in
    which no digit changes (that would be another version or size).
    """
    known = {name.lower(): name for name in run.facts.models}
    for flag in ("model", "ref_model", "reward_model", "teacher_model"):
        for name in run.texts(flag) or filter(None, [run.text(flag)]):
            folder = run.recipe.at(name)
            if is_a_path(name) or name.lower() in known or (folder and folder.exists()):
                continue
            owner, _, model = name.lower().rpartition("/")
            alike = [key for key in known if abs(len(key) - len(name)) <= 2 and owner]
            alike = [k for k in alike if re.findall(r"\d", k) == re.findall(r"\d", name)]
            alike = [k for k in alike if difflib.get_close_matches(owner, [k.partition("/")[0]])]
            alike = difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.92)
            bare = [key for key in known if key.rpartition("/")[2] == model and not owner]
            if near := alike or bare:
                text = f"--{flag} {name}: no model of this name is known; did you mean "
                yield problem(run, flag, "model", f"{text}{known[near[0]]}?")


def checkpoint(run: Run) -> Iterator[Finding]:
    """Check a run that resumes a checkpoint: is it there, and complete?"""
    name = run.text(RESUME)
    if not run.trains or not name:
        return
    yield from no_such_path(run, RESUME, "resume", name)
    folder = run.recipe.at(name)
    if folder is None or not folder.is_dir() or run.true("resume_only_model"):
        return
    if why := why_not(folder):
        good = good_checkpoints(folder) or good_checkpoints(folder.parent)
        instead = f"Give {good[-1]}" if good else "No other in or beside it is complete: begin anew"
        text = f"--{RESUME} {name} is not complete: {why}. {instead}"
        yield problem(run, RESUME, "resume", text)
    elif not any(folder.glob("rng_state*.pth")):
        text = f"--{RESUME} {name} has only weights (--save_only_model): all else begins anew"
        yield note(run, RESUME, "resume", text)


def of_videos(run: Run) -> bool:
    """Tell whether a reward of the run scores rows of videos."""
    return run.grpo and any(TASK_NAMES[t].has_spans for t in named_tasks(run.texts("reward_funcs")))


def liger(run: Run) -> Iterator[Finding]:
    known = family(run) if run.trains else None
    if known and not known.memory.liger and run.true("use_liger_kernel"):
        text = f"--use_liger_kernel: liger has no kernels for {known.name}: GRPO stops, or its "
        text += "loss is wrong"
        flag = run.given["use_liger_kernel"]
        yield problem(run, flag, "liger", text, left_out(run.recipe.text, flag))


def given_plugins(run: Run) -> list[tuple[str, str, Path | None]]:
    """Return each plugin file that a flag names, with the flag, and its path if known."""
    named = [(name, value) for name in PLUGINS for value in run.texts(name)]
    return [(name, value, run.recipe.at(value)) for name, value in named]


def plugins(run: Run) -> Iterator[Finding]:
    for name, value, path in given_plugins(run):
        why = None
        if path is None:
            continue
        if path.is_dir():
            why = f"it is a folder; ms-swift takes a file, as {value.rstrip('/')}/__init__.py"
        elif not path.is_file():
            why = "is no file; ms-swift's wheel has no examples"
            why += '. Ours is "$(vlrft plugin)"' if path.name == "vlrft.py" else ""
            yield from no_such_path(run, name, "plugin", value, why)
            continue
        elif path.stem in SHADOWS:
            why = f"Python would find it in place of the package {path.stem}. Rename it"
        else:
            read = read_plugin(path)
            why = f"Python cannot read it: {read.fault}" if read.fault else clash(read)
        if why:
            yield problem(run, name, "plugin", f"--{name} {value}: {why}")


MODEL = (plugins, model, hub_ids, liger)
