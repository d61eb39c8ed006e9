"""Check single flags: names, values, placeholders, secrets.

--tuner_typ lora         unknown; did you mean --tuner_type?
--num_generations many   a whole number is needed, 1 or more
--scale_rewards sum      known are group, batch, none, gdpo
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from contextlib import suppress

from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.plugins import read_plugin
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules.finding import (
    NOTE,
    PLACEHOLDER,
    PROBLEM,
    Edit,
    Finding,
    note,
    problem,
)
from swift_vlrft.recipe.rules.history import old_value
from swift_vlrft.recipe.rules.model import given_plugins
from swift_vlrft.recipe.run import NoValue, Run, scalar, typed, written

CLOSED = ("deepspeed", "fsdp", "attn_impl", "lr_scheduler_type", "report_to")
"""Flags whose names no plugin adds to."""
MEANT = {
    ("loss_type", "gspo"): "GSPO is --importance_sampling_level sequence, under any loss",
    ("report_to", "None"): "write none",
}
ELSEWHERE = re.compile(r"[/{,]|\.json$")
"""A file, JSON, an id of a hub (--attn_impl kernels-community/flash-attn), or several at once."""
LISTED = re.compile(r"[\w./:#-]+(?:,[\w./:#-]+)+")
PRODUCT = re.compile(r"\d+(?:\s*[*+/-]\s*\d+)+")
READ = (
    *("CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "ROOT_IMAGE_DIR", "HF_ENDPOINT", "HF_HOME"),
    *("MODELSCOPE_CACHE", "SWIFT_SINGLE_DEVICE_MODE", "HF_TOKEN"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOG_LEVEL"),
)
"""Variables of a run that hold neither a number nor a switch."""
ASSIGNS = re.compile(r"[A-Z_][A-Z0-9_]*=")
QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
VARIABLE = re.compile(r"^\s*(?:export\s+)?([A-Z_]+)=[\"']?([^\s\"'$]+)")


def not_read(run: Run) -> Iterator[Finding]:
    for remark in run.recipe.notes:
        level = NOTE if remark.kind in ("unread", "needed") else PROBLEM
        yield problem(run, remark.line, remark.kind, remark.text, level=level)
    if run.facts.note:
        yield note(run, run.recipe.line, "ms-swift", run.facts.note)


def names(run: Run) -> Iterator[Finding]:
    """Find flags that ms-swift does not have, as argparse reads names."""
    for flag in run.recipe.flags:
        if not flag.name and flag.known:
            text = f"{' '.join(flag.values)} belongs to no flag"
            if ASSIGNS.match(flag.values[0]):
                text += ": write a variable in front of the command"
            yield problem(run, flag.line, "stray-word", text)
        if not flag.name or not run.flags or flag.name in {*run.flags, *run.old_flags}:
            continue
        name = run.current_name(flag.name)
        if name != flag.name:
            text = f"--{flag.name} is taken for --{name}; write it out"
            edit = Edit(flag.name, flag.line, name=name)
            yield note(run, flag.line, "abbreviated-flag", text, edit)
        elif not run.is_negated(flag.name):
            # A slip of a letter; num_epochs is no slip of num_ppo_epochs.
            near = difflib.get_close_matches(flag.name, run.flags, n=1, cutoff=0.9)
            version = run.facts.versions["ms-swift"]
            text = f"`{run.recipe.command[0]} {run.command}` of ms-swift {version} has no "
            text += f"--{flag.name}" + (f". Did you mean --{near[0]}?" if near else "")
            yield problem(run, flag.line, "unknown-flag", text)


def values(run: Run) -> Iterator[Finding]:
    """Find values that ms-swift's parser would reject, or took in an older version."""
    for flag in run.recipe.flags:
        if now := old_value(flag):
            text = f"--scale_rewards {flag.values[0]} is `{now}` since ms-swift 3.10.0"
            edit = Edit(flag.name, flag.line, value=now)
            yield problem(run, flag.line, "removed-value", text, edit)
            continue
        fact = run.flags.get(flag.name)
        if fact is None or not flag.known or _is_placeholder(flag):
            continue
        try:
            if fact.kind == "json" and flag.values and flag.values[0].lstrip().startswith("{"):
                json.loads(flag.values[0])
            typed(fact, flag.values, run.facts.bounds.get(flag.name))
        except json.JSONDecodeError as error:  # often, bash took its quotes and cut it at blanks
            what = f"--{flag.name} is no JSON ({error.msg} at character {error.pos + 1})"
            text = f"{what}: {error.doc} arrives; write single quotes, as '{{\"image\": 2}}'"
            yield problem(run, flag.line, "json", text)
        except ValueError as error:
            yield problem(run, flag.line, "value", f"{written(flag)}{error}")


def named_values(run: Run) -> Iterator[Finding]:
    """Find names that no registry of the installed packages has; a user's plugin may add some."""
    kind, plugins = run.text("rlhf_type") if run.command == "rlhf" else None, given_plugins(run)
    own = any(not path or path.is_file() and not read_plugin(path).ours for *_, path in plugins)
    for name, flag in run.given.items():
        kinded = f"{name} {kind}" if kind and name == "loss_type" else name
        known = run.facts.names.get(kinded, [])
        listed = name in run.flags and run.flags[name].choices  # which argparse compares
        if not known or listed or not flag.known or (own and name not in CLOSED):
            continue
        for value in flag.values:
            if value not in known and not ELSEWHERE.search(value):
                near = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
                all_of_them = "known are " + ", ".join(known) if len(known) < 40 else ""
                meant = f"did you mean {near[0]}?" if near else all_of_them
                text = f"--{name} {value}: ms-swift {run.facts.versions['ms-swift']} has no such "
                text += f"name; {MEANT.get((name, value)) or meant}".removesuffix("; ")
                yield problem(run, name, "value", text)


def commas(run: Run) -> Iterator[Finding]:
    """argparse takes `a,b` for one name."""
    for name, flag in run.given.items():
        fact = run.flags.get(name)
        for value in flag.values if fact and fact.kind == "strs" and flag.known else ():
            path = run.recipe.at(value)
            if LISTED.fullmatch(value) and name != "stop_words" and not (path and path.exists()):
                text = f"--{name} {value} is one name with a comma in it; put blanks between: "
                yield problem(run, name, "comma", f"{text}--{name} {value.replace(',', ' ')}")


def variables(run: Run) -> Iterator[Finding]:
    """Check the variables of the environment that ms-swift reads as numbers and switches."""
    environment = dict(run.recipe.environment)
    with suppress(NoValue):
        environment |= {name.upper(): str(value) for name, value in run.model_kwargs.items()}
    for name, kind in run.facts.variables.items():
        bounds, text = run.facts.bounds.get(name), environment.get(name, "").strip()
        taken = {*run.facts.names.get(name, ()), *(("on", "off") if kind == "bool" else ()), ""}
        try:
            scalar(kind, "1" if text.lower() in taken else text, bounds)
        except ValueError as error:
            why = f"{name}={text}: {error}"
            if PRODUCT.fullmatch(text):
                why += f". bash does not multiply by itself: write {name}=$(({text}))"
            # One without bounds may be for a template of another model.
            level = PROBLEM if bounds or kind == "bool" else NOTE
            yield problem(run, run.recipe.line, "variable", why, level=level)


def near_variables(run: Run) -> Iterator[Finding]:
    """Find variables of the script whose names are almost those that ms-swift reads."""
    version = run.facts.versions["ms-swift"]
    for name in run.recipe.environment:
        known = [*READ, *run.facts.variables]
        if name.upper() in known or f"{name}=" not in run.recipe.text:
            continue
        if near := difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.85):
            text = f"{name}: ms-swift {version} reads {near[0]}, and no variable of that name"
            yield note(run, run.recipe.line, "variable", text)


def _is_placeholder(flag: Flag) -> bool:
    return any(map(PLACEHOLDER.search, flag.values))


def placeholders(run: Run) -> Iterator[Finding]:
    """Find placeholders, and the quotes of a word processor, which bash takes for letters."""
    for flag in run.recipe.flags:
        for value in flag.values if flag.known else ():
            option = f"--{flag.name} {value}"
            if flag.name not in ("", "system") and PLACEHOLDER.search(value):
                text = f"{option} is a placeholder: put the value in its place"
                yield problem(run, flag.line, "placeholder", text)
            if value and value[0] in QUOTES and value[-1] in QUOTES:
                text = f"{option}: these quotes become part of the value; write ' or \""
                yield problem(run, flag.line, "typographic-quotes", text)


def repeated(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        last = run.recipe.flag(flag.name)
        if flag.name and last and flag is not last and flag.line != last.line:
            text = f"--{flag.name} is repeated in line {last.line}, and only the last counts"
            yield note(run, flag.line, "repeated-flag", text)


def secrets(run: Run) -> Iterator[Finding]:
    """Find secrets, without showing their values."""
    for flag in run.recipe.flags:
        if is_secret_name(flag.name) and flag.values and not _is_placeholder(flag):
            text = f"--{flag.name} gets into ms-swift's log: set a variable outside, as HF_TOKEN"
            yield problem(run, flag.line, "secret", text)
    for line, text in enumerate(run.recipe.text.splitlines(), 1):
        match = VARIABLE.match(text)
        if match and is_secret_name(match[1]) and not re.fullmatch(r"x+|<.*>", match[2]):
            text = f"{match[1]} is written into the recipe. Set it in the environment instead"
            yield problem(run, line, "secret", text)


TEXT = (
    *(not_read, names, values, named_values, commas, variables, near_variables, placeholders),
    *(repeated, secrets),
)
