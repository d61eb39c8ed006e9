"""Change flags and variables in a recipe's text, in place: one editor for scripts, YAML and JSON.

    text = with_edit(text, path, Edit("train_type", 3, name="tuner_type"))
    text = with_edit(text, path, Edit("beta", values=("0",)), command=1)
    text = with_edit(text, path, Variable("MAX_PIXELS", "401408"), command=1)

A change is a few patches (from, to, new text) of the words that the reader found. There is often
more than one place for it (a value, the default of its variable, a new flag at the end): each is
tried and the result read again; it is accepted only if it changes every `swift` command of the file
as intended, and nothing else. Every other byte stays.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swift_vlrft.recipe.reader import (
    CONFIGURATION,
    Flag,
    Recipe,
    RecipeError,
    read_text,
)
from swift_vlrft.recipe.rules.finding import Edit, Variable, added_flag
from swift_vlrft.recipe.shell.tree import Span

Patch = tuple[int, int, str]

PLAIN = re.compile(r"[\w./:@%+,-]+")
"""A value that needs no quotes anywhere."""
GAP = re.compile(r"(?:[ \t]|\\\r?\n)*\Z")


class CannotEdit(ValueError):
    """An impossible edit: the message names flag, place, reason, and what to do by hand."""


def with_edit(
    text: str,
    path: Path,
    edit: Edit | Variable,
    *,
    command: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """``text`` with one change made; CannotEdit if it cannot be made alone.

    ``command`` counts the `swift` commands of the file; None: all that the edit's line concerns.
    ``environment`` is the caller's, under which the result has to read as meant (default: ours).
    """
    environment = os.environ if environment is None else environment
    before = read_text(text, path, environment)
    for patches in _places(before, edit, command, environment):
        after = text
        for start, end, new in sorted(patches, reverse=True):
            after = after[:start] + new + after[end:]
        try:
            recipes = read_text(after, path, environment)
        except RecipeError:
            continue
        if _as_meant(before, recipes, edit, command):
            return after
    raise CannotEdit(_why_not(before, path, edit, command, environment))


# Verifying the result --------------------------------------------------------------------------


def _as_meant(
    before: Sequence[Recipe], after: Sequence[Recipe], edit: Edit | Variable, command: int | None
) -> bool:
    """Whether ``after`` differs from ``before`` in what ``edit`` says alone."""
    if len(before) != len(after) or _others(before[0]) != _others(after[0]):
        return False
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        here = command in (None, place)
        variables, flags = dict(old.environment), list(old.flags)
        unknown = {edit.name} if isinstance(edit, Variable) else set()
        if isinstance(edit, Variable):
            # A variable that several commands see may change for all of them.
            if here or new.environment.get(edit.name) == edit.value:
                variables[edit.name] = edit.value
        elif here:
            flags = [*_edited(flags, edit)]
        same = (
            (old.command, old.unknown - unknown, old.folder, variables)
            == (new.command, new.unknown - unknown, new.folder, new.environment)
        )  # fmt: skip
        if not same or _given(flags) != _given(new.flags) or _notes(new) - _notes(old):
            return False
    return True


def _others(recipe: Recipe) -> list[tuple[str, ...]]:
    return [words for words in recipe.others if words[0] not in ("export", ":")]


def _notes(recipe: Recipe) -> Counter[tuple[str, str]]:
    return Counter((note.kind, re.sub(r"\d+", "", note.text)) for note in recipe.notes)


def _given(flags: Iterable[Flag]) -> dict[str, tuple[list[str], bool]]:
    """The last of each name, as in argparse."""
    return {flag.name: ([_one_way(v) for v in flag.values], flag.known) for flag in flags}


def _one_way(value: str) -> str:
    """A value normalised: a configuration turns 1e-5 into 1e-05 and true into True."""
    try:
        return repr(float(value)) if PLAIN.fullmatch(value) else value
    except ValueError:
        return value.lower() if value in ("True", "False") else value


def _edited(flags: Sequence[Flag], edit: Edit) -> Iterator[Flag]:
    for flag in flags:
        if edit.line is None or (flag.name, flag.line) != (edit.flag, edit.line):
            yield flag
        elif not edit.drop:
            values = flag.values if edit.values is None else edit.values
            yield replace(flag, name=edit.name or flag.name, values=values)
            if edit.add:
                yield Flag(*added_flag(edit.add), flag.line)
    if edit.line is None:
        yield Flag(edit.flag, edit.values or (), 0)


# Where it can be written -----------------------------------------------------------------------


def _places(
    recipes: Sequence[Recipe],
    edit: Edit | Variable,
    command: int | None,
    environment: Mapping[str, str],
) -> Iterator[list[Patch]]:
    """The ways to write the change, the best first."""
    first = recipes[command or 0]
    if isinstance(edit, Variable):
        yield from _variable(first, edit, environment)
    elif edit.line is None:
        values, flag = edit.values or (), first.flag(edit.flag)
        if flag is not None:
            yield from _other_values(first, flag, values, environment)
            if _callers(first, edit.flag, environment):
                return
        yield from _added(first, edit.flag, values)
    else:  # of every flag of a name and a line (an array may serve two commands)
        found = {
            flag.span.start if flag.span else -1: (recipe, flag)
            for recipe in recipes
            for flag in recipe.flags
            if (flag.name, flag.line) == (edit.flag, edit.line)
        }
        if any(flag.span is None for _, flag in found.values()):
            yield from _inside_text(first.text, found[-1][1], edit)
        else:
            for ways in zip(*(_at_flag(*place, edit) for place in found.values()), strict=False):
                yield [patch for way in ways for patch in way]


def _at_flag(recipe: Recipe, flag: Flag, edit: Edit) -> Iterator[list[Patch]]:
    """The ways to make an edit of a flag where it stands."""
    assert flag.span is not None
    if edit.drop:
        yield from _dropped(recipe, flag)
    elif edit.name:
        written = re.compile(flag.name.replace("_", "[-_]"))
        if name := written.search(recipe.text, flag.span.start, flag.span.end):
            yield [(*name.span(), edit.name)]
    elif edit.values is not None:
        yield from _other_values(recipe, flag, edit.values, {})
    elif edit.add:
        yield from _added(recipe, *added_flag(edit.add), flag)


def _inside_text(text: str, flag: Flag, edit: Edit) -> Iterator[list[Patch]]:
    """A flag inside a longer text, as in FLAGS="--a 1 --b 2"."""
    values = "".join(rf"(?:=|\s+){re.escape(value)}(?![\w.])" for value in flag.values)
    name = rf"--({flag.name.replace('_', '[-_]')})(?![\w-])"
    for match in re.finditer(rf"{name}({values})", text):
        start, end = match.span()
        if edit.drop:
            yield [_cut(text, start, end)]
        elif edit.name:
            yield [(*match.span(1), edit.name)]
        elif edit.add:
            yield [(end, end, f" {edit.add}")]
        elif edit.values and all(PLAIN.fullmatch(value) for value in edit.values):
            between = text[match.start(2) : match.start(2) + 1] or " "
            yield [(match.start(2), end, between + " ".join(edit.values))]


def _other_values(
    recipe: Recipe, flag: Flag, values: Sequence[str], environment: Mapping[str, str]
) -> Iterator[list[Patch]]:
    """Other words in place of a flag's, or another default of the variable that they come from."""
    text, spans = recipe.text, [span for span in flag.value_spans if span is not None]
    if flag.span is None or len(spans) < len(flag.value_spans):
        yield from _inside_text(text, flag, Edit(flag.name, flag.line, values=tuple(values)))
        return
    if not spans:
        yield [(flag.span.end, flag.span.end, "".join(f" {_quoted(v)}" for v in values))]
        return
    first, *more = spans
    raw = text[first.start : first.end]
    if recipe.path.suffix in CONFIGURATION:
        for words in _scalars(values, raw):
            yield [(first.start, spans[-1].end, _listed(recipe, flag, spans, words))]
        return
    if not more and len(values) == 1 and not first.literal:
        yield from _elsewhere(text, flag.values[0], values[0])
        if _callers(recipe, flag.name, environment):
            return
    like = raw if not more and len(values) == 1 else ""
    new = " ".join(_quoted(value, like) for value in values) + _blank(text, first.end)
    yield [(first.start, first.end, new), *(_cut(text, s.start, s.end) for s in more)]


def _elsewhere(text: str, old: str, value: str) -> Iterator[list[Patch]]:
    """A value where it is assigned, or the default, of a variable that nothing else takes."""
    assigned = rf"\b(\w+)=[\"']?(?:\$\{{\1:?[-=])?()({re.escape(old)})(?![\w.])"
    default = rf"\$\{{(\w+)(:?[-=])({re.escape(old)})\}}"
    for match in (*re.finditer(default, text), *reversed([*re.finditer(assigned, text)])):
        name = match[1]
        taken = re.findall(rf'(?<!\b{name}=)(?<!\b{name}=")\$\{{?{name}\b', text)
        if len(taken) == 1 and PLAIN.fullmatch(value):
            yield [(*match.span(3), value)]


def _callers(recipe: Recipe, name: str, environment: Mapping[str, str]) -> list[str]:
    """The caller's variables that a flag or a variable gets its value from."""

    def value(given: Mapping[str, str]) -> object:
        try:
            recipes = read_text(recipe.text, recipe.path, given)
        except RecipeError:
            return None
        same = [one for one in recipes if one.span == recipe.span]
        return [one.values(name) or one.environment.get(name) for one in same]

    named = [n for n in environment if re.search(rf"\$\{{?{re.escape(n)}\b", recipe.text)]
    return [
        caller
        for caller in named
        if value({n: v for n, v in environment.items() if n != caller}) != value(environment)
    ]


def _added(
    recipe: Recipe, name: str, values: Sequence[str], after: Flag | None = None
) -> Iterator[list[Patch]]:
    """``--name values`` behind a flag of the command, as its lines are written."""
    text, span = recipe.text, recipe.span
    if recipe.path.suffix in CONFIGURATION:
        keys = sorted((f.span for f in recipe.flags if f.span), key=lambda span: span.start)
        if after and after.span:  # in front of the one that follows it
            keys = [span for span in keys if span.start > after.span.start] or [after.span]
        yield from _new_key(recipe, keys[0] if keys else None, name, values)
        return
    words = " ".join([f"--{name}", *map(_quoted, values)])
    for flag in [after] if after else reversed(recipe.flags):
        ends = [s.end for s in (flag.span, *flag.value_spans) if s]
        if flag.span is None or len(ends) <= len(flag.value_spans) or ends != sorted(ends):
            continue
        start, end = flag.span.start, ends[-1]
        if after is None and span and not span.start < start < end <= span.end:
            continue  # of an array
        line = text.rfind("\n", 0, start) + 1
        indent, between = text[line:start], " "
        if not indent.strip() and (span is None or span.start < line):
            between = f" \\{_new_line(text)}{indent}"
        yield [(end, end, between + words + _blank(text, end))]
    if span is not None:
        callers = re.search(r'[ \t]+"?\$\{?[@*]\}?"?\Z', text[span.start : span.end])
        at = span.start + callers.start() if callers else span.end  # the caller's flags win
        yield [(at, at, f" {words}{_blank(text, at)}")]


def _variable(
    recipe: Recipe, edit: Variable, environment: Mapping[str, str]
) -> Iterator[list[Patch]]:
    text, config = recipe.text, recipe.path.suffix in CONFIGURATION
    if (assigned := recipe.assigned.get(edit.name)) is not None:
        span = assigned.value
        raw = text[span.start : span.end]
        if not span.literal:
            yield from _elsewhere(text, recipe.environment[edit.name], edit.value)
            if _callers(recipe, edit.name, environment):
                return
        for value in _scalars([edit.value], raw) if config else [[_quoted(edit.value, raw)]]:
            yield [(span.start, span.end, value[0])]
    if config:
        beside = next((place.name for place in recipe.assigned.values()), None)
        yield from _new_key(recipe, beside, edit.name, [edit.value])
        yield from _added(recipe, "ENV", [json.dumps({edit.name: edit.value})])
        return
    written = f"{edit.name}={_quoted(edit.value)} "
    if recipe.start is not None:
        yield [(recipe.start, recipe.start, written)]
    if recipe.span is not None:  # as a word of `env -i`
        yield [(recipe.span.start, recipe.span.start, written)]


# Words of a script, and keys of a configuration ------------------------------------------------


def _quoted(value: str, like: str = "") -> str:
    """A value as a word of a script, in the quotes of the word before where it may be."""
    quote = like[:1]
    if quote in ("'", '"') and like[-1:] == quote and len(like) > 1 and PLAIN.fullmatch(value):
        return f"{quote}{value}{quote}"
    return shlex.quote(value)


def _new_line(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _blank(text: str, at: int) -> str:
    return " " if text[at : at + 1] in ("<", ">") else ""  # 1>log is another thing


def _cut(text: str, start: int, end: int) -> Patch:
    """The patch that takes a word out, with the blanks and continued lines in front of it, or with
    its line where it is alone on it. What follows (an operator, a redirection) stays a word apart.
    """
    gap = GAP.search(text[:start])
    begin = gap.start() if gap else start
    line, stop = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    if stop >= 0 and not (text[line:begin] + text[end:stop]).strip():
        return line, stop + 1, ""
    return begin, end, "" if text[end : end + 1] in (*" \t\r\n)'\"", "") else " "


def _dropped(recipe: Recipe, flag: Flag) -> Iterator[list[Patch]]:
    """A flag without a trace: --name=value is one word, --name value are two; a key of a
    configuration goes with its line, or with the comma behind or in front of it.
    """
    text = recipe.text
    ends = [(span.start, span.end) for span in (flag.span, *flag.value_spans) if span]
    if recipe.path.suffix not in CONFIGURATION:
        if len(ends) > 1 and ends[1][0] == ends[0][1] + 1 and text[ends[0][1]] == "=":
            ends[:2] = [(ends[0][0], ends[1][1])]
        yield [_cut(text, start, end) for start, end in ends]
        return
    start, end = ends[0][0], max(ends[-1][1], ends[0][1] + 1)
    for pattern in (r"(?m)^[ \t]*\0.*\n?", r"\0[ \t]*\]?\s*,[ \t]*", r",?\s*\0\s*\]?"):
        marked = f"{text[:start]}\0{text[end:]}"
        if match := re.search(pattern, marked):
            yield [(match.start(), match.end() - 1 + end - start, "")]


def _scalars(values: Sequence[str], like: str = "") -> Iterator[list[str]]:
    """The ways to write values in a configuration: in the quotes of the one before, bare, quoted
    where only that is read as meant.
    """
    if like[:1] in ("'", '"') and all(map(PLAIN.fullmatch, values)):
        yield [f"{like[0]}{value}{like[0]}" for value in values]
    yield [*values]
    yield [json.dumps(value, ensure_ascii=False) for value in values]


def _listed(recipe: Recipe, flag: Flag, spans: Sequence[Span], words: Sequence[str]) -> str:
    """Values in place of those of a key, as its list is written."""
    text, first = recipe.text, spans[0]
    line = text.rfind("\n", 0, first.start) + 1
    before = text[line : first.start]
    if re.fullmatch(r"\s*-\s+", before):
        return f"\n{before}".join(words)
    in_list = flag.span is not None and "[" in text[flag.span.end : first.start]
    joined = ", ".join(words)
    empty = " " * (first.start == first.end)  # `name:` without a value
    return empty + (joined if in_list or len(words) == 1 else f"[{joined}]")


def _new_key(
    recipe: Recipe, beside: Span | None, name: str, values: Sequence[str]
) -> Iterator[list[Patch]]:
    """A key in front of another, as that one is written."""
    if beside is None:
        return
    text, at = recipe.text, beside.start
    line = text.rfind("\n", 0, at) + 1
    indent = text[line:at]
    end = _new_line(text) + indent
    for words in _scalars(values):
        value = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
        if not indent.strip():
            yield [(at, at, f"{name}: {value}{end}")]
        yield [(at, at, f'"{name}": {value},{" " if indent.strip() or not line else end}')]


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
        assigned = recipe.assigned.get(edit.name)
        name, line = edit.name, assigned.line if assigned else recipe.line
        meant = f"{edit.name}={edit.value}"
    else:
        flags = [f for r in recipes for f in r.flags if (f.name, f.line) == (edit.flag, edit.line)]
        flag = recipe.flag(edit.flag) if edit.line is None else flags[0] if flags else None
        name, line = f"--{edit.flag}", flag.line if flag else recipe.line
        meant = f"--{edit.name or edit.flag} {' '.join(edit.values or ())}".rstrip()
        meant = f"the command without {name}" if edit.drop else edit.add or meant
    if names := _callers(recipe, name.removeprefix("--"), environment):
        given = " ".join(f"{name}={environment[name]}" for name in names)
        why = f"its value comes from {given} in your environment, which wins over the recipe"
        remedy = f"unset {' '.join(names)} or set what is needed ({meant}), and plan again"
    else:
        why = "no change of its text alone would do it without changing something else"
        remedy = f"write {meant} by hand"
    return f"{path}:{line}: {name} cannot be changed here: {why}; {remedy}"
