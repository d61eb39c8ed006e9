"""Rewrite a recipe's text where a finding says how: flags renamed, left out, or given other values.

--train_type lora        becomes --tuner_type lora
--num_infer_workers 1    the line is left out

Only what can be found again is touched: the rewritten text is read once more, and must give
exactly the flags that were meant.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from swift_vlrft.recipe import CONFIGURATION, Recipe, RecipeError, read_recipes, read_text
from swift_vlrft.recipe_rules.finding import Edit

Meant = list[tuple[str, tuple[str, ...]]]


def fixed_text(text: str, path: Path, edits: Sequence[Edit]) -> tuple[str, list[Edit]]:
    """The text with as many edits as could be made, and those edits."""
    made = []
    # From the bottom up, so that the lines above keep their numbers.
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: -edit.line):
        after = _edited(text, path, edit)
        if after is not None and _means(after, path) == _expected(text, path, edit):
            text = after
            made.append(edit)
    return text, made


def difference(before: str, after: str, path: Path) -> str:
    """A unified diff; empty where nothing changed."""
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, str(path), f"{path} (fixed)", n=1))


def write_fixed(path: Path, text: str) -> Path:
    """Replace the file and keep its mode; the first version stays beside it as NAME.orig."""
    original = path.with_name(path.name + ".orig")
    if not original.exists():
        original.write_bytes(path.read_bytes())
    half = path.with_name(path.name + ".writing")
    half.write_text(text)
    os.chmod(half, path.stat().st_mode)
    half.replace(path)
    return original


def _means(text: str, path: Path) -> list[Meant] | None:
    try:
        recipes = _read(text, path)
    except RecipeError:
        return None
    return [[(flag.name, flag.values) for flag in recipe.flags] for recipe in recipes]


def _read(text: str, path: Path) -> list[Recipe]:
    if path.suffix not in CONFIGURATION:
        return read_text(text, path)
    half = path.with_name(f".{path.stem}.check{path.suffix}")
    half.write_text(text)
    try:
        return read_recipes(half)
    finally:
        half.unlink()


def _expected(text: str, path: Path, edit: Edit) -> list[Meant] | None:
    expected: list[Meant] = []
    for recipe in _read(text, path):
        flags: Meant = []
        for flag in recipe.flags:
            if (flag.name, flag.line) != (edit.flag, edit.line):
                flags.append((flag.name, flag.values))
                continue
            if edit.drop:
                continue
            values = flag.values if edit.values is None else edit.values
            flags.append((edit.name or flag.name, values))
            if edit.add:
                name, _, value = edit.add.removeprefix("--").partition(" ")
                flags.append((name, (value,)))
        expected.append(flags)
    return expected


def _edited(text: str, path: Path, edit: Edit) -> str | None:
    lines = text.splitlines(keepends=True)
    at = edit.line - 1
    if at >= len(lines):
        return None
    if path.suffix in CONFIGURATION:
        return _edited_configuration(lines, at, edit, path.suffix)
    spelled = "|".join({edit.flag, edit.flag.replace("_", "-")})
    pattern = re.compile(rf"--({spelled})(?=[=\s\\]|$)")
    if not pattern.search(lines[at]):
        return None
    if edit.drop:
        return _dropped(lines, at, pattern)
    line = lines[at]
    if edit.name:
        line = pattern.sub(f"--{edit.name}", line, count=1)
    if edit.values is not None:
        line = re.sub(
            rf"(--(?:{spelled})[=\s]\s*)[^\s\\]+", rf"\g<1>{' '.join(edit.values)}", line, count=1
        )
    if edit.add:
        match = re.match(rf"(\s*)--(?:{spelled})[=\s]\s*\S+(?=\s|$)", line)
        if match is None or "\\" not in line[match.end() :]:
            line = re.sub(
                rf"(--(?:{spelled})[=\s]\s*[^\s\\]+)", rf"\g<1> {edit.add}", line, count=1
            )
        else:
            line = f"{line}{match[1]}{edit.add} \\\n"
    return "".join([*lines[:at], line, *lines[at + 1 :]])


def _dropped(lines: list[str], at: int, pattern: re.Pattern[str]) -> str:
    line = lines[at]
    match = pattern.search(line)
    assert match is not None
    rest = re.compile(r"""(?:=|[ \t]+)(?!-)(?:'[^']*'|"[^"]*"|[^\s\\'"]+)""")
    end = match.end()
    while value := rest.match(line, end):
        end = value.end()
    left = line[: match.start()] + line[end:].lstrip(" \t")
    if left.strip() not in ("", "\\"):
        return "".join([*lines[:at], left, *lines[at + 1 :]])
    before = list(lines[:at])
    if left.strip() == "" and before:  # it was the last line of the command
        before[-1] = re.sub(r"[ \t]*\\\n\Z", "\n", before[-1])
    return "".join([*before, *lines[at + 1 :]])


def _edited_configuration(lines: list[str], at: int, edit: Edit, suffix: str) -> str | None:
    if not re.match(rf"""\s*["']?{edit.flag}["']?\s*:""", lines[at]):
        return None
    if edit.drop:
        return "".join([*lines[:at], *lines[at + 1 :]])
    line = lines[at]
    if edit.name:
        line = line.replace(edit.flag, edit.name, 1)
    if edit.values is not None:
        value = f'"{edit.values[0]}"' if suffix == ".json" else edit.values[0]
        line = re.sub(r"(:\s*)[^,\n#]*[^,\s#]", rf"\g<1>{value}", line, count=1)
    if edit.add:
        name, _, value = edit.add.removeprefix("--").partition(" ")
        blanks = line[: len(line) - len(line.lstrip())]
        added = f'"{name}": "{value}",' if suffix == ".json" else f"{name}: {value}"
        line = f"{line.rstrip()}\n{blanks}{added}\n"
    return "".join([*lines[:at], line, *lines[at + 1 :]])
