"""Rewrite a recipe as its findings say, and keep every version of it.

--train_type lora        becomes --tuner_type lora
--num_infer_workers 1    is left out; a `> log 2>&1 &` behind it stays
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from swift_vlrft.files.writing import beside
from swift_vlrft.recipe.edit import CannotEdit, with_edit
from swift_vlrft.recipe.rules.finding import Edit


def fixed_text(text: str, path: Path, edits: Sequence[Edit]) -> tuple[str, list[Edit], list[str]]:
    """The text with all possible edits, those edits, and why others were not possible."""
    applied, refused = list[Edit](), list[str]()
    # From the bottom up, so that the lines above keep their numbers.
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: -(edit.line or 0)):
        try:
            text = with_edit(text, path, edit)
            applied.append(edit)
        except CannotEdit as error:
            refused.insert(0, str(error))
    return text, applied, refused


def difference(before: str, after: str, path: Path) -> str:
    """A unified diff; empty if nothing changed."""
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, str(path), f"{path} (fixed)", n=1))


def write_fixed(path: Path, text: str, mode: int | None = None) -> Path | None:
    """Write a script; the previous file is kept beside it, byte for byte.

    Returns the backup: NAME.orig, or the first free one of NAME.orig.1, NAME.orig.2, ...; None if
    there was no file, or already this text. The file keeps its mode, a new one gets ``mode``.
    """
    path = path.resolve()
    data, kept = text.encode(errors="surrogateescape"), None
    if path.exists():
        if path.read_bytes() == data:
            return None
        mode = path.stat().st_mode
        kept = _kept(path)
    with beside(path) as unfinished:
        unfinished.write_bytes(data)
        unfinished.chmod(0o644 if mode is None else mode)
    return kept


def _kept(path: Path) -> Path:
    """A copy of a file under the first free name, or an existing equal copy."""
    names = (f"{path.name}.orig{f'.{number}' if number else ''}" for number in count())
    for copy in map(path.with_name, names):
        if not os.path.lexists(copy):
            with beside(copy) as unfinished:
                shutil.copy2(path, unfinished)
            break
        if copy.is_file() and copy.read_bytes() == path.read_bytes():
            break
    return copy
