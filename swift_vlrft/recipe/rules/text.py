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

from swift_vlrft.recipe.history import OLD_FLAGS
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Edit, Finding, found
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
SECRET_FLAGS = ("hub_token", "swanlab_token", "swanlab_secret", "api_key")
SECRET_VARIABLE = re.compile(
    r"^\s*(?:export\s+)?([A-Z_]*(?:API_KEY|TOKEN|SECRET))=[\"']?([^\s\"'$]+)"
)


def not_read(run: Run) -> Iterator[Finding]:
    for one in run.recipe.notes:
        level = LEVELS.get(one.kind, PROBLEM)
        yield found(run, one.line, f"{one.kind}/read", None, level, text=one.text)
    if run.facts.note:
        yield found(run, run.recipe.line, "ms-swift", None, NOTE, text=run.facts.note)


def names(run: Run) -> Iterator[Finding]:
    """Flags that ms-swift does not have, as argparse reads names."""
    for flag in run.recipe.flags:
        if not flag.name and flag.known:
            yield found(run, flag.line, "stray-word", words=" ".join(flag.values))
        if not flag.name or not run.flags or flag.name in {*run.flags, *OLD_FLAGS}:
            continue
        name = run.current_name(flag.name)
        if name != flag.name:
            edit = Edit(flag.name, flag.line, name=name)
            yield found(run, flag.line, "abbreviated-flag", edit, flag=flag.name, name=name)
        elif not run.is_negated(flag.name):
            close = difflib.get_close_matches(flag.name, run.flags, n=1, cutoff=0.7)
            near = f". Did you mean --{close[0]}?" if close else ""
            yield found(run, flag.line, "unknown-flag", flag=flag.name, near=near)


def values(run: Run) -> Iterator[Finding]:
    """Values that ms-swift's parser would reject; an object is often cut by bash at blanks."""
    for flag in run.recipe.flags:
        fact = run.flags.get(flag.name)
        if fact is None or not flag.known or old_value(flag):
            continue
        try:
            if fact.kind == "json" and flag.values and flag.values[0].lstrip().startswith("{"):
                json.loads(flag.values[0])
            typed(flag.name, fact, flag.values)
        except json.JSONDecodeError as error:
            said = {"flag": flag.name, "why": error.msg, "at": error.pos + 1}
            yield found(run, flag.line, "json", value=flag.values[0], **said)
        except ValueError as error:
            text = " ".join((f"--{flag.name}", *flag.values)) + (": " if flag.values else " ")
            yield found(run, flag.line, "value", text=f"{text}{error}")


def written(run: Run) -> Iterator[Finding]:
    """Placeholders, and quotes of a word processor, which bash takes for letters."""
    for flag in run.recipe.flags:
        for value in flag.values if flag.known else ():
            said = {"flag": flag.name, "value": value}
            if flag.name not in ("", "system") and PLACEHOLDER.search(value):
                yield found(run, flag.line, "placeholder", **said)
            if value[:1] in QUOTES and value[-1:] in QUOTES and value:
                yield found(run, flag.line, "typographic-quotes", **said)


def repeated(run: Run) -> Iterator[Finding]:
    for flag in run.recipe.flags:
        last = run.recipe.flag(flag.name)
        if flag.name and last and flag is not last and flag.line != last.line:
            yield found(run, flag.line, "repeated-flag", flag=flag.name, last=last.line)


def secrets(run: Run) -> Iterator[Finding]:
    """Never shows the value."""
    for flag in run.recipe.flags:
        if flag.name in SECRET_FLAGS and flag.values:
            yield found(run, flag.line, "secret/flag", flag=flag.name)
    for line, text in enumerate(run.recipe.text.splitlines(), 1):
        match = SECRET_VARIABLE.match(text)
        if match and not re.fullmatch(r"x+|<.*>", match[2]):
            yield found(run, line, "secret/variable", name=match[1])


TEXT = (not_read, names, values, written, repeated, secrets)
