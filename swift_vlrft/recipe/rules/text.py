"""Rules about single flags: names, values, placeholders, secrets.

--tuner_typ lora         unknown; did you mean --tuner_type?
--num_generations many   a whole number is needed, 1 or more
--scale_rewards sum      known are group, batch, none, gdpo
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from swift_vlrft.files.secrets import is_secret_name
from swift_vlrft.recipe.reader import Flag
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Edit, Finding, note, problem
from swift_vlrft.recipe.rules.history import old_value
from swift_vlrft.recipe.run import Run, typed

LEVELS = {"unread": NOTE, "conditional": NOTE, "needed": NOTE}
PLACEHOLDER = re.compile(
    r"<(?!/?(?:think|answer|image|video|audio|bbox|ref-object)>)[\w -]+>"
    r"|\b(?:path/to/|your[-_ ]|xxx+\b|todo\b)"
    r"|\[(?:your|model|path)[\w -]*\]",
    re.IGNORECASE,
)
QUOTES = tuple("\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb")
VARIABLE = re.compile(r"^\s*(?:export\s+)?([A-Z_]+)=[\"']?([^\s\"'$]+)")


def not_read(run: Run) -> Iterator[Finding]:
    for found in run.recipe.notes:
        level = LEVELS.get(found.kind, PROBLEM)
        yield problem(run, found.line, found.kind, found.text, level=level)
    if run.facts.note:
        yield note(run, run.recipe.line, "ms-swift", run.facts.note)


def names(run: Run) -> Iterator[Finding]:
    """Flags that ms-swift does not have, as argparse reads names."""
    versions = run.facts.versions
    for flag in run.recipe.flags:
        if not flag.name and flag.known:
            text = f"{' '.join(flag.values)} belongs to no flag"
            yield problem(run, flag.line, "stray-word", text)
        if not flag.name or not run.flags or flag.name in {*run.flags, *run.old_flags}:
            continue
        name = run.current_name(flag.name)
        if name != flag.name:
            text = f"--{flag.name} is taken for --{name}; write it out"
            edit = Edit(flag.name, flag.line, name=name)
            yield note(run, flag.line, "abbreviated-flag", text, edit)
        elif not run.is_negated(flag.name):
            near = difflib.get_close_matches(flag.name, run.flags, n=1, cutoff=0.7)
            text = f"ms-swift {versions['ms-swift']} has no --{flag.name}"
            text += f". Did you mean --{near[0]}?" if near else ""
            yield problem(run, flag.line, "unknown-flag", text)


def values(run: Run) -> Iterator[Finding]:
    """Values that ms-swift's parser would reject."""
    for flag in run.recipe.flags:
        fact = run.flags.get(flag.name)
        if fact is None or not flag.known or old_value(flag):
            continue
        if fact.kind == "json" and (wrong := _json(run, flag)):
            yield wrong
            continue
        try:
            typed(flag.name, fact, flag.values)
        except ValueError as error:
            text = " ".join((f"--{flag.name}", *flag.values)) + (": " if flag.values else " ")
            yield problem(run, flag.line, "value", f"{text}{error}")


def _json(run: Run, flag: Flag) -> Finding | None:
    """Where an object does not parse, often as bash took its quotes and cut it at blanks."""
    value = flag.values[0] if flag.values else ""
    if not value.lstrip().startswith("{"):
        return None
    try:
        json.loads(value)
    except json.JSONDecodeError as error:
        text = (
            f"--{flag.name} does not parse as JSON ({error.msg} at character {error.pos + 1}); "
            f"what arrives is {value} . Write it in single quotes, as '{{\"image\": 2}}'"
        )
        return problem(run, flag.line, "json", text)
    return None


def placeholders(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        for value in flag.values if flag.known and flag.name not in ("", "system") else ():
            if PLACEHOLDER.search(value):
                text = f"--{flag.name} {value} is a placeholder: put the value in its place"
                yield problem(run, flag.line, "placeholder", text)


def typographic(run: Run) -> Iterator[Finding]:
    """Quotes of a word processor, which bash takes for letters."""
    for flag in run.recipe.flags:
        for value in flag.values if flag.known else ():
            if value[:1] in QUOTES and value[-1:] in QUOTES and value:
                text = (
                    f"--{flag.name} {value}: these quotes become part of the value; write ' or \""
                )
                yield problem(run, flag.line, "typographic-quotes", text)


def repeated(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        last = run.recipe.flag(flag.name)
        if flag.name and last and flag is not last and flag.line != last.line:
            text = f"--{flag.name} is repeated in line {last.line}, and only that one counts"
            yield note(run, flag.line, "repeated-flag", text)


def secrets(run: Run) -> Iterator[Finding]:
    """Never shows the value."""
    for flag in run.recipe.flags:
        if is_secret_name(flag.name) and flag.values:
            text = (
                f"--{flag.name}: ms-swift prints the whole command into its log. Set the "
                "environment variable outside of the recipe instead (HF_TOKEN, "
                "MODELSCOPE_API_TOKEN, SWANLAB_API_KEY)"
            )
            yield problem(run, flag.line, "secret", text)
    for line, written in enumerate(run.recipe.text.splitlines(), 1):
        match = VARIABLE.match(written)
        if match and is_secret_name(match[1]) and not re.fullmatch(r"x+|<.*>", match[2]):
            text = f"{match[1]} is written into the recipe. Set it in the environment instead"
            yield problem(run, line, "secret", text)


TEXT = (not_read, names, values, placeholders, typographic, repeated, secrets)
