"""Change the words of a script as its findings say, and keep a copy of every version.

--train_type lora        becomes --tuner_type lora
--num_infer_workers 1    is left out; a `> log 2>&1 &` behind it stays

What is no literal word there (a part of ``$FLAGS``, a value from a variable, another file's) and a
YAML or JSON configuration is named and left alone.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from swift_vlrft.files.writing import beside
from swift_vlrft.recipe.reader import CONFIGURATION, Flag, Recipe, RecipeError, read_text
from swift_vlrft.recipe.rules.finding import Edit

Patch = tuple[int, int, str]
PLAIN = re.compile(r"[\w./:@%+,-]+")
"""A value that needs no quotes."""
GAP = re.compile(r"(?:[ \t]|\\\r?\n)*\Z")


def fixed_text(recipes: Sequence[Recipe], edits: Sequence[Sequence[Edit]]) -> tuple[str, list[str]]:
    """Return a script's text with the edits of all its commands, and what is left alone and why.

    Commands of another script that it runs are left alone. ``edits``: one list for each of
    ``recipes``.
    """
    path, text = recipes[0].path, recipes[0].text
    patches, left = set[Patch](), list[str]()
    for recipe, edit in ((r, e) for r, some in zip(recipes, edits, strict=True) for e in some):
        for flag in [f for f in recipe.flags if (f.name, f.line) == (edit.flag, edit.line)]:
            if why := _why_not(recipe, flag, edit, path):
                left.append(f"{recipe.path}:{flag.line}: --{flag.name}: {why}: {_by_hand(edit)}")
            else:
                patches.update(_patches(text, flag, edit))
    after = text
    for start, end, new in sorted(patches, reverse=True):
        after = after[:start] + new + after[end:]
    if after != text and not _as_meant(path, recipes, edits, after):
        left.append(f"{path}: the changed script would be read differently; change it by hand")
        return text, left
    return after, list(dict.fromkeys(left))


def _why_not(recipe: Recipe, flag: Flag, edit: Edit, path: Path) -> str:
    if recipe.path.suffix in CONFIGURATION:
        return "--fix changes no configuration"
    if flag.span is None or recipe.path != path:
        return "it does not stand in this script"
    spans = [flag.span, *(() if edit.name else flag.value_spans)]
    if not all(span and span.literal for span in spans):
        return "its value is not written out there"
    if edit.value is not None and (len(spans) > 2 or not PLAIN.fullmatch(edit.value)):
        return "its value is not a single plain word"
    return ""


def _by_hand(edit: Edit) -> str:
    if edit.drop:
        return "leave it out by hand"
    return f"write --{edit.name or edit.flag} {edit.value or ''}".rstrip()


def _patches(text: str, flag: Flag, edit: Edit) -> Iterator[Patch]:
    assert flag.span is not None
    values = [span for span in flag.value_spans if span]
    if edit.name:
        written = re.compile(flag.name.replace("_", "[-_]"))
        if name := written.search(text, flag.span.start, flag.span.end):
            yield (*name.span(), edit.name)
    elif edit.value is not None:
        quote = text[values[0].start] if text[values[0].start] in "'\"" else ""
        yield values[0].start, values[0].end, f"{quote}{edit.value}{quote}"
    else:
        ends = [(span.start, span.end) for span in (flag.span, *values)]
        if len(ends) > 1 and text[ends[0][1]] == "=":  # --name=value is one word
            ends[:2] = [(ends[0][0], ends[1][1])]
        yield from (_cut(text, start, end) for start, end in ends)


def _cut(text: str, start: int, end: int) -> Patch:
    """Return the patch that cuts a word, with the blanks and continued lines in front of it.

    A word that fills its line goes with the line. What follows (an operator, a redirection) stays a
    word apart.
    """
    gap = GAP.search(text[:start])
    begin = gap.start() if gap else start
    line, stop = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    if stop >= 0 and not (text[line:begin] + text[end:stop]).strip():
        return line, stop + 1, ""
    return begin, end, "" if text[end : end + 1] in (*" \t\r\n)'\"", "") else " "


def _as_meant(
    path: Path, recipes: Sequence[Recipe], edits: Sequence[Sequence[Edit]], after: str
) -> bool:
    """Say whether the commands of ``after`` have the flags of before, except for the edits."""
    try:
        changed = read_text(after, path)
    except RecipeError:
        return False
    if len(changed) != len(recipes):
        return False
    for old, new, some in zip(recipes, changed, edits, strict=True):
        names = {name for edit in some for name in (edit.flag, edit.name)}
        was, now = ({f.name: f.values for f in r.flags if f.name not in names} for r in (old, new))
        if was != now or old.environment != new.environment:
            return False
    return True


def difference(before: str, after: str, path: Path) -> str:
    """Return a unified diff, empty if nothing changed."""
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, str(path), f"{path} (fixed)", n=1))


def write_fixed(path: Path, text: str, mode: int | None = None) -> Path | None:
    """Write a script and keep the previous file beside it, byte for byte.

    Returns the backup: NAME.orig, or the first free one of NAME.orig.1, NAME.orig.2, ...; None if
    there was no file, or already this text. The file keeps its mode, a new one gets ``mode``.
    """
    path = path.resolve()
    data, backup = text.encode(errors="surrogateescape"), None
    if path.exists():
        if path.read_bytes() == data:
            return None
        mode = path.stat().st_mode
        backup = _kept(path)
    with beside(path) as unfinished:
        unfinished.write_bytes(data)
        unfinished.chmod(0o644 if mode is None else mode)
    return backup


def _kept(path: Path) -> Path:
    """Copy a file to the first free name, or return an equal copy that exists."""
    names = (f"{path.name}.orig{f'.{number}' if number else ''}" for number in count())
    for copy in map(path.with_name, names):
        if not os.path.lexists(copy):
            with beside(copy) as unfinished:
                shutil.copy2(path, unfinished)
            break
        if copy.is_file() and copy.read_bytes() == path.read_bytes():
            break
    return copy
