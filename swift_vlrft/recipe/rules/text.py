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
from swift_vlrft.recipe.facts import OF_OTHERS, OLD_FLAGS
from swift_vlrft.recipe.flags import underscored
from swift_vlrft.recipe.plugins import read_plugin
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules.finding import (
    NOTE,
    PLACEHOLDER,
    PROBLEM,
    Finding,
    left_out,
    note,
    problem,
    renamed,
)
from swift_vlrft.recipe.rules.model import given_plugins
from swift_vlrft.recipe.run import NoValue, Run, scalar, typed, written
from swift_vlrft.recipe.tree import Patch

CLOSED = ("deepspeed", "fsdp", "attn_impl", "lr_scheduler_type", "report_to")
"""Flags whose names no plugin adds to."""
GSPO = "GSPO is --importance_sampling_level sequence, under any loss"
ELSEWHERE = re.compile(r"[/{,]|\.json$")
"""A file, JSON, an id of a hub (--attn_impl kernels-community/flash-attn), or several at once."""
LISTED = re.compile(r"[\w./:#-]+(?:, *[\w./:#-]+)+|[\w./:#-]+,")
PRODUCT = re.compile(r"\d+(?:\s*[*+/-]\s*\d+)+")
LEVELS = dict.fromkeys(("unread", "needed", "unused", "variable"), NOTE)
VARIABLE = re.compile(r"^\s*(?:export\s+)?([A-Z_]+)=[\"']?([^\s\"'$]+)")


def removed_flags(run: Run) -> Iterator[Finding]:
    """Find flags of older versions of ms-swift (recipe/old_flags.json)."""
    for flag in run.recipe.flags:
        if old := OLD_FLAGS.get(flag.name):
            became = f"--{old.now}" if old.now else "gone"
            text = f"--{flag.name} is {became} since ms-swift {old.since}"
            text = "; ".join(filter(None, (text, "leave it out" * old.drop, old.hint)))
            mends = renamed(flag, old.now) if old.now else ()
            mends = left_out(run.recipe.text, flag) if old.drop else mends
            yield problem(run, flag, "removed-flag", text, mends)


def not_read(run: Run) -> Iterator[Finding]:
    for said in run.recipe.notes:
        level, place = LEVELS.get(said.kind, PROBLEM), (run.recipe.path, said.line)
        yield Finding(*place, level, said.kind, said.text, said.patches, said.column)
    if run.facts.note:
        yield note(run, run.recipe.line, "ms-swift", run.facts.note)


def names(run: Run) -> Iterator[Finding]:
    """Find flags that ms-swift does not have, as argparse reads names."""
    unknown = list[str]()
    for flag in run.recipe.flags:
        if not flag.name and flag.known:
            text = f"{' '.join(flag.values)} belongs to no flag"
            yield problem(run, flag, "stray-word", text)
        if flag.name in {"", *run.flags, *OLD_FLAGS, *run.recipe.missed} or not run.flags:
            continue
        name = run.current_name(flag.name)
        if name != flag.name:
            text = f"--{flag.name} is taken for --{name}; write it out"
            yield note(run, flag, "abbreviated-flag", text, renamed(flag, name))
        elif not run.is_negated(flag.name):
            unknown.append(flag.option)
            version = run.facts.versions["ms-swift"]
            text = f"`swift {run.command}` of ms-swift {version} has no {flag.option}"
            meant, patches = _meant(run, flag)
            text += f". Did you mean --{meant}?" if meant else ""
            yield problem(run, flag, "unknown-flag", text, patches)
    if unknown and run.true("ignore_args_error"):
        text = f"--ignore_args_error: ms-swift starts without {', '.join(unknown)} and says nothing"
        yield problem(run, "ignore_args_error", "unknown-flag", text)


def _meant(run: Run, flag: Flag) -> tuple[str, tuple[Patch, ...]]:
    """Return what a wrong name is meant to be, and the change, where only its spelling is wrong."""
    bare = underscored(flag.name.lstrip("-"))
    if bare in run.flags:  # -deepspeed: argparse takes long flags with two dashes alone
        return bare, renamed(flag, bare)
    joined = re.fullmatch(r"(\w+?)[:,]([\w.+-]*)", bare) or re.fullmatch(
        r"(\w+?)(\d[\d.e-]*)", bare
    )
    if joined and joined[1] in run.flags:  # --beta:0, --beta: 0, --num_generations8
        meant = f"{joined[1]} {joined[2]}".rstrip()
        return meant, renamed(flag, meant)
    if (other := OF_OTHERS.get(bare)) and other.split()[0] in run.flags:
        return other, ()
    near = difflib.get_close_matches(bare, run.flags, n=1, cutoff=0.9)
    return (near[0] if near else ""), ()


def values(run: Run) -> Iterator[Finding]:
    """Find values that ms-swift's parser would reject, or took in an older version."""
    for flag in run.recipe.flags:
        fact = run.flags.get(flag.name)
        if fact is None or not flag.known or _is_placeholder(flag):
            continue
        stray = len(flag.values) > 1 if flag.inline else "".join(flag.values).startswith("=")
        if stray:
            first, span, behind = flag.values[0], flag.span, (*flag.value_spans, None)[0]
            text = f"`=` takes one value and no blanks: write --{flag.name} "
            text += " ".join(flag.values).lstrip("= ")
            mends: tuple[Patch, ...] = ()
            if span and behind and behind.literal:
                blank = " " * (bool(first) if flag.inline else first != "=")
                mends = (Patch(span.end, behind.start + (not flag.inline), blank),)
            yield problem(run, flag, "stray-word", text, mends)
            continue
        try:
            if fact.kind == "json" and flag.values and flag.values[0].lstrip().startswith("{"):
                json.loads(flag.values[0])
            typed(fact, flag.values, run.facts.bounds.get(flag.name))
        except json.JSONDecodeError as error:  # often, bash took its quotes and cut it at blanks
            what = f"--{flag.name} is no JSON ({error.msg} at character {error.pos + 1})"
            text = f"{what}: {error.doc} arrives; write single quotes, as '{{\"image\": 2}}'"
            yield problem(run, flag, "json", text)
        except ValueError as error:
            yield problem(run, flag, "value", f"{written(flag)}{error}")


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
                meant = GSPO if (name, value) == ("loss_type", "gspo") else meant
                text = f"--{name} {value}: ms-swift {run.facts.versions['ms-swift']} has no such "
                text += f"name; {meant}".removesuffix("; ")
                yield problem(run, name, "value", text)


def commas(run: Run) -> Iterator[Finding]:
    """argparse takes `a,b` for one name."""
    for name, flag in run.given.items():
        fact = run.flags.get(name)
        for value in flag.values if fact and fact.kind == "strs" and flag.known else ():
            path = run.recipe.at(value)
            if LISTED.fullmatch(value) and name != "stop_words" and not (path and path.exists()):
                apart = " ".join(value.replace(",", " ").split())
                text = f"--{name} {value} is one name with a comma in it; put blanks between: "
                mends = tuple(
                    Patch(span.start, span.end, apart)
                    for of, span in zip(flag.values, flag.value_spans, strict=False)
                    if of == value and span and span.literal
                )
                yield problem(run, flag, "comma", f"{text}--{name} {apart}", mends)


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


def _is_placeholder(flag: Flag) -> bool:
    return flag.known and any(map(PLACEHOLDER.search, flag.values))


def placeholders(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        for value in flag.values if flag.known else ():
            if flag.name not in ("", "system") and PLACEHOLDER.search(value):
                text = f"--{flag.name} {value} is a placeholder: put the value in its place"
                yield problem(run, flag, "placeholder", text)


def repeated(run: Run) -> Iterator[Finding]:
    """Find flags that are given twice with different values; a caller's arguments may do that."""
    for flag in run.recipe.flags:
        name, values = run.named(flag)
        last = run.given[name]
        same = not name or flag is last or not last.known or values == last.values
        if same or (flag.span and not last.span):
            continue
        first, later = (" ".join((f.option, *f.values)) for f in (flag, last))
        text = f"{first} is repeated in line {last.line}: the later wins, {later}"
        yield note(run, flag, "repeated-flag", text)


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
    *(removed_flags, not_read, names, values, named_values, commas, variables),
    *(placeholders, repeated, secrets),
)
