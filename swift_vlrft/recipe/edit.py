"""Change flags and variables in a recipe's text, in place: every other byte stays as it is.

    text = with_edit(text, path, Edit("train_type", 3, name="tuner_type"))
    text = with_edit(text, path, Edit("beta", values=("0",)), command=1)
    text = with_edit(text, path, Variable("MAX_PIXELS", "401408"), command=1)

A change is a few patches (from, to, new text) of the words that the reader found. There is often
more than one place for it (a value, the default of the variable that it is taken from, a flag of
its own at the end): each is tried, the result is read again, and it is taken only if it gives what
was meant in every `swift` command of the file, and nothing else.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from swift_vlrft.recipe.edit_configuration import configuration_patches
from swift_vlrft.recipe.patch import PLAIN, Patch, cut, patched, quoted, words_of
from swift_vlrft.recipe.reader import (
    CONFIGURATION,
    SUBSTITUTIONS,
    Flag,
    Recipe,
    RecipeError,
    read_text,
)
from swift_vlrft.recipe.rules.finding import Edit, Variable, added_flag
from swift_vlrft.recipe.shell.builtins import DECLARES
from swift_vlrft.recipe.shell.shell import Shell
from swift_vlrft.recipe.shell.words import Span

REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*))")
ONE_VARIABLE = re.compile(r'"?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-=]([^{}"`$]*))?\})"?')
"""$NAME, ${NAME} or ${NAME:-default}, in double quotes or not, and nothing else."""


class CannotEdit(ValueError):
    """Which flag, where, why, and what to do by hand."""


def with_edit(
    text: str,
    path: Path,
    edit: Edit | Variable,
    *,
    command: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """``text`` with one change made; CannotEdit where it cannot be made alone.

    ``command`` counts the `swift` commands of the file; None: all that the edit's line concerns.
    ``environment`` is the caller's, under which the result has to read as meant (default: ours).
    """
    environment = os.environ if environment is None else environment
    before = read_text(text, path, environment)
    others = _others(text, path, environment)
    for patches in _places(before, edit, command, environment):
        after = patched(text, patches)
        try:
            recipes = read_text(after, path, environment)
        except RecipeError:
            continue
        if _as_meant(before, recipes, edit, command) and (
            _others(after, path, environment) == others
        ):
            return after
    raise CannotEdit(_why_not(before, path, edit, command, environment))


# What is meant ---------------------------------------------------------------------------------


Occurrences = dict[str, list[tuple[tuple[str, ...], bool]]]


def _as_meant(
    before: Sequence[Recipe], after: Sequence[Recipe], edit: Edit | Variable, command: int | None
) -> bool:
    """Whether ``after`` differs from ``before`` in what ``edit`` says alone."""
    if len(before) != len(after):
        return False
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        here = command in (None, place)
        if old.command != new.command or _notes(new) - _notes(old):
            return False
        own = {edit.name} if isinstance(edit, Variable) else set()
        if (old.unknown - own, old.folder) != (new.unknown - own, new.folder):
            return False
        variables = dict(old.environment)
        flags, found = _given(old.flags), _given(new.flags)
        if isinstance(edit, Variable):
            # A variable that several commands see may change for all of them.
            if here or new.environment.get(edit.name) == edit.value:
                variables[edit.name] = edit.value
        elif here and edit.line is not None:
            flags = _given(_edited(old.flags, edit))
        elif here:
            assert edit.values is not None
            flags, found = _that_count(flags), _that_count(found)
            flags[edit.flag] = [(_canonical(edit.values), True)]
        if flags != found or variables != new.environment:
            return False
    return True


def _notes(recipe: Recipe) -> Counter[tuple[str, str]]:
    return Counter((note.kind, re.sub(r"\d+", "", note.text)) for note in recipe.notes)


def _given(flags: Iterable[Flag]) -> Occurrences:
    given: Occurrences = {}
    for flag in flags:
        given.setdefault(flag.name, []).append((_canonical(flag.values), flag.known))
    return given


def _that_count(given: Occurrences) -> Occurrences:
    """The last of each name, as in argparse."""
    return {name: found[-1:] for name, found in given.items()}


def _canonical(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(_one_way(value) for value in values)


def _one_way(value: str) -> str:
    """A configuration makes 1e-05 of 1e-5 and True of true."""
    if value in ("True", "False"):
        return value.lower()
    try:
        return repr(float(value)) if PLAIN.fullmatch(value) else value
    except ValueError:
        return value


def _edited(flags: Sequence[Flag], edit: Edit) -> Iterator[Flag]:
    for flag in flags:
        if (flag.name, flag.line) != (edit.flag, edit.line):
            yield flag
            continue
        if edit.drop:
            continue
        values = flag.values if edit.values is None else edit.values
        yield Flag(edit.name or flag.name, values, flag.line, flag.known)
        if edit.add:
            name, values = added_flag(edit.add)
            yield Flag(name, values, flag.line)


def _others(text: str, path: Path, environment: Mapping[str, str]) -> list[tuple[str, ...]]:
    """What else a script runs, which a change of `swift`'s flags must leave as it is."""
    if path.suffix in CONFIGURATION:
        return []
    shell = Shell(environment, (), SUBSTITUTIONS)
    shell.read(text)
    return [words for words in shell.others if words[0] not in (*DECLARES, ":")]


# Where it can be written -----------------------------------------------------------------------


def _places(
    recipes: Sequence[Recipe],
    edit: Edit | Variable,
    command: int | None,
    environment: Mapping[str, str],
) -> Iterator[list[Patch]]:
    """The ways to write the change, the best first."""
    first = recipes[command or 0]
    if first.path.suffix in CONFIGURATION:
        yield from configuration_patches(first.text, first.path.suffix == ".json", edit)
    elif isinstance(edit, Variable):
        yield from _variable(first, edit, environment)
    elif edit.line is not None:
        yield from _at_line(recipes, edit)
    else:
        assert edit.values is not None
        flag = first.flag(edit.flag)
        if flag is not None:
            yield from _other_values(first, flag, edit.values, environment)
            if _callers(first.text, _written(first, flag), environment):
                return
        yield from _new_flag(first, edit.flag, edit.values)


def _at_line(recipes: Sequence[Recipe], edit: Edit) -> Iterator[list[Patch]]:
    """What a rule wants of every flag of a name and a line (an array may serve two commands)."""
    found = {
        (flag.span.start if flag.span else -1): (recipe, flag)
        for recipe in recipes
        for flag in recipe.flags
        if (flag.name, flag.line) == (edit.flag, edit.line)
    }
    patches: list[Patch] = []
    for recipe, flag in found.values():
        text = recipe.text
        if flag.span is None:
            yield from _inside_text(text, flag, edit)
            return
        if edit.drop:
            for start, end in words_of(text, flag):
                patches.append(cut(text, start, end))
        if edit.name:
            written = re.compile(flag.name.replace("_", "[-_]"))
            if name := written.search(text, flag.span.start, flag.span.end):
                patches.append((name.start(), name.end(), edit.name))
        if edit.values is not None:
            patches += next(_other_values(recipe, flag, edit.values, {}), [])
        if edit.add:
            patches += next(_new_flag(recipe, *added_flag(edit.add), flag), [])
    yield patches


def _inside_text(text: str, flag: Flag, edit: Edit) -> Iterator[list[Patch]]:
    """A flag that is a part of a longer text, as of FLAGS="--a 1 --b 2"."""
    values = "".join(rf"(?:=|\s+){re.escape(value)}(?![\w.])" for value in flag.values)
    name = rf"--({flag.name.replace('_', '[-_]')})(?![\w-])"
    for match in re.finditer(rf"{name}({values})", text):
        start, end = match.span()
        if edit.drop:
            yield [cut(text, start, end)]
        elif edit.name:
            yield [(match.start(1), match.end(1), edit.name)]
        elif edit.add:
            yield [(end, end, f" {edit.add}")]
        elif edit.values and all(PLAIN.fullmatch(value) for value in edit.values):
            between = text[match.start(2) : match.start(2) + 1] or " "
            yield [(match.start(2), end, between + " ".join(edit.values))]


def _other_values(
    recipe: Recipe, flag: Flag, values: Sequence[str], environment: Mapping[str, str]
) -> Iterator[list[Patch]]:
    """Other words in place of a flag's, or another default of the variable that they come from."""
    text, spans = recipe.text, flag.value_spans
    if flag.span is None or None in spans:
        yield from _inside_text(text, flag, Edit(flag.name, flag.line, values=tuple(values)))
        return
    known = [span for span in spans if span is not None]
    new = [quoted(value) for value in values]
    if not known:
        yield [(flag.span.end, flag.span.end, "".join(f" {word}" for word in new))]
        return
    first, *more = known
    raw = text[first.start : first.end]
    if not more and len(values) == 1:
        new = [quoted(values[0], raw)]
        if not first.literal:
            yield from _through_variable(text, first, values[0])
            if _callers(text, raw, environment):
                return
    blank = " " if text[first.end : first.end + 1] in ("<", ">") else ""  # 1>log is another thing
    yield [
        (first.start, first.end, " ".join(new) + blank),
        *(cut(text, span.start, span.end) for span in more),
    ]


def _through_variable(text: str, span: Span, value: str) -> Iterator[list[Patch]]:
    """A value that is $NAME or ${NAME:-default}: the default, or what is assigned to NAME."""
    match = ONE_VARIABLE.fullmatch(text, span.start, span.end)
    if match is None or not PLAIN.fullmatch(value):
        return
    if match[3] is not None:
        yield [(match.start(3), match.end(3), value)]
    name = match[1] or match[2]
    if len(re.findall(rf"\$\{{?{name}\b", text)) - _defaults_of_itself(text, name) > 1:
        return  # what else takes it must keep it
    for assigned in reversed(list(_assignments(text, name))):
        raw = text[assigned.start : assigned.end]
        inner = ONE_VARIABLE.fullmatch(raw)
        if inner and inner[3] is not None:
            start = assigned.start + inner.start(3)
            yield [(start, start + len(inner[3]), value)]
        elif "$" not in raw and "`" not in raw:
            yield [(assigned.start, assigned.end, quoted(value, raw))]


def _assignments(text: str, name: str) -> Iterator[Span]:
    """Values of NAME=value in the text, as far as they are one word without blanks."""
    for match in re.finditer(
        rf"(?<![\w$\{{-]){name}=((?:\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|()\"'])*)", text
    ):
        yield Span(match.start(1), match.end(1))


def _defaults_of_itself(text: str, name: str) -> int:
    """How often NAME=${NAME:-default} stands in the text."""
    return len(re.findall(rf"(?<!\w){name}=\"?\$\{{{name}\b", text))


def _callers(text: str, raw: str, environment: Mapping[str, str]) -> list[str]:
    """Variables of the caller that a word is made of, also by way of the script's own."""
    found: list[str] = []
    todo, seen = [raw], set()
    while todo:
        for match in REFERENCE.finditer(todo.pop()):
            name = match[1] or match[2]
            if name in seen:
                continue
            seen.add(name)
            spans = list(_assignments(text, name))
            todo += [text[span.start : span.end] for span in spans]
            kept = any(f"${{{name}" in text[span.start : span.end] for span in spans)
            if name in environment and (kept or not spans):
                found.append(name)
    return found


def _written(recipe: Recipe, flag: Flag) -> str:
    return " ".join(recipe.text[s.start : s.end] for s in flag.value_spans if s and not s.literal)


def _new_flag(
    recipe: Recipe, name: str, values: Sequence[str], after: Flag | None = None
) -> Iterator[list[Patch]]:
    """``--name values`` behind a flag of the command, as its lines are written."""
    text, span = recipe.text, recipe.span
    words = " ".join([f"--{name}", *map(quoted, values)])
    for flag in [after] if after else reversed(recipe.flags):
        ends = [s.end for s in (flag.span, *flag.value_spans) if s] if flag.span else []
        if flag.span is None or len(ends) != 1 + len(flag.value_spans) or ends != sorted(ends):
            continue
        if after is None and span and not span.start < flag.span.start < ends[-1] <= span.end:
            continue  # of an array
        line = text.rfind("\n", 0, flag.span.start) + 1
        indent, between = text[line : flag.span.start], " "
        if not indent.strip() and (span is None or span.start < line):
            new_line = "\r\n" if text[: text.find("\n", ends[-1]) + 1].endswith("\r\n") else "\n"
            between = f" \\{new_line}{indent}"
        yield [(ends[-1], ends[-1], between + words + _blank(text, ends[-1]))]
    if span is not None:
        callers = re.search(r'[ \t]+"?\$\{?[@*]\}?"?\Z', text[span.start : span.end])
        at = span.start + callers.start() if callers else span.end  # the caller's flags win
        yield [(at, at, f" {words}{_blank(text, at)}")]


def _blank(text: str, at: int) -> str:
    return " " if text[at : at + 1] in ("<", ">") else ""


def _variable(
    recipe: Recipe, edit: Variable, environment: Mapping[str, str]
) -> Iterator[list[Patch]]:
    text = recipe.text
    if (stands := recipe.assigned.get(edit.name)) is not None:
        span = stands.value
        raw = text[span.start : span.end]
        if span.literal:
            yield [(span.start, span.end, quoted(edit.value, raw))]
        else:
            yield from _through_variable(text, span, edit.value)
            if _callers(text, raw, environment):
                return
            yield [(span.start, span.end, quoted(edit.value))]
    written = f"{edit.name}={quoted(edit.value)} "
    if recipe.whole is not None and not text.startswith("coproc", recipe.whole.start):
        yield [(recipe.whole.start, recipe.whole.start, written)]
    if recipe.span is not None:  # as a word of `env -i`
        yield [(recipe.span.start, recipe.span.start, written)]


# Why not ---------------------------------------------------------------------------------------


def _why_not(
    recipes: Sequence[Recipe],
    path: Path,
    edit: Edit | Variable,
    command: int | None,
    environment: Mapping[str, str],
) -> str:
    recipe = recipes[command or 0]
    if isinstance(edit, Variable):
        stands = recipe.assigned.get(edit.name)
        line = stands.line if stands else recipe.line
        said, wanted = edit.name, f"{edit.name}={edit.value}"
        raw = recipe.text[stands.value.start : stands.value.end] if stands else f"${edit.name}"
    else:
        flags = [f for r in recipes for f in r.flags if (f.name, f.line) == (edit.flag, edit.line)]
        flag = recipe.flag(edit.flag) if edit.line is None else flags[0] if flags else None
        line = flag.line if flag else recipe.line
        said = f"--{edit.flag}"
        wanted = f"--{edit.name or edit.flag} {' '.join(edit.values or ())}".rstrip()
        if edit.drop:
            wanted = f"the command without --{edit.flag}"
        if edit.add:
            wanted = f"{edit.add} beside it"
        raw = _written(recipe, flag) if flag else ""
    if names := _callers(recipe.text, raw, environment):
        given = " ".join(f"{name}={environment[name]}" for name in names)
        why = f"its value comes from {given} in your environment, which wins over the recipe"
        remedy = f"unset {' '.join(names)} or set what is needed ({wanted}), and plan again"
    else:
        why = "no change of its text alone would do it without changing something else"
        remedy = f"write {wanted} by hand"
    return f"{path}:{line}: {said} cannot be changed here: {why}; {remedy}"
