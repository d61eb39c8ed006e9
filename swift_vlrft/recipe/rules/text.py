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
from swift_vlrft.recipe.run import Run, typed, written

PLACEHOLDER = re.compile(
    r"<(?!/?(?:think|answer|image|video|audio|bbox|ref-object)>)[\w -]+>"
    r"|\b(?:path/to/|your[-_ ]|xxx+\b|todo\b)"
    r"|\[(?:your|model|path)[\w -]*\]",
    re.IGNORECASE,
)
QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
VARIABLE = re.compile(r"^\s*(?:export\s+)?([A-Z_]+)=[\"']?([^\s\"'$]+)")


def not_read(run: Run) -> Iterator[Finding]:
    for found in run.recipe.notes:
        level = NOTE if found.kind in ("unread", "conditional", "needed") else PROBLEM
        yield problem(run, found.line, found.kind, found.text, level=level)
    if run.facts.note:
        yield note(run, run.recipe.line, "ms-swift", run.facts.note)


def names(run: Run) -> Iterator[Finding]:
    """Flags that ms-swift does not have, as argparse reads names."""
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
            text = f"ms-swift {run.facts.versions['ms-swift']} has no --{flag.name}"
            text += f". Did you mean --{near[0]}?" if near else ""
            yield problem(run, flag.line, "unknown-flag", text)


def values(run: Run) -> Iterator[Finding]:
    """Values that ms-swift's parser would reject, or took in an older version."""
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
            typed(flag.name, fact, flag.values)
        except json.JSONDecodeError as error:  # often, bash took its quotes and cut it at blanks
            what = f"--{flag.name} is no JSON ({error.msg} at character {error.pos + 1})"
            text = f"{what}: {error.doc} arrives; write single quotes, as '{{\"image\": 2}}'"
            yield problem(run, flag.line, "json", text)
        except ValueError as error:
            yield problem(run, flag.line, "value", f"{written(flag)}{error}")


def _is_placeholder(flag: Flag) -> bool:
    return any(map(PLACEHOLDER.search, flag.values))


def placeholders(run: Run) -> Iterator[Finding]:
    """Those, and the quotes of a word processor, which bash takes for letters."""
    for flag in run.recipe.flags:
        for value in flag.values if flag.known else ():
            given = f"--{flag.name} {value}"
            if flag.name not in ("", "system") and PLACEHOLDER.search(value):
                text = f"{given} is a placeholder: put the value in its place"
                yield problem(run, flag.line, "placeholder", text)
            if value and value[0] in QUOTES and value[-1] in QUOTES:
                text = f"{given}: these quotes become part of the value; write ' or \""
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
        if is_secret_name(flag.name) and flag.values and not _is_placeholder(flag):
            text = f"--{flag.name} gets into ms-swift's log: set a variable, as HF_TOKEN, outside"
            yield problem(run, flag.line, "secret", text)
    for line, text in enumerate(run.recipe.text.splitlines(), 1):
        match = VARIABLE.match(text)
        if match and is_secret_name(match[1]) and not re.fullmatch(r"x+|<.*>", match[2]):
            text = f"{match[1]} is written into the recipe. Set it in the environment instead"
            yield problem(run, line, "secret", text)


TEXT = (not_read, names, values, placeholders, repeated, secrets)
