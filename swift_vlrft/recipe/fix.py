"""Rewrite a recipe where a finding says how, and keep every version of it.

--train_type lora        becomes --tuner_type lora
--num_infer_workers 1    is left out; a `> log 2>&1 &` behind it stays
"""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from swift_vlrft.recipe.edit import CannotEdit, with_edit
from swift_vlrft.recipe.rules.finding import Edit


def fixed_text(text: str, path: Path, edits: Sequence[Edit]) -> tuple[str, list[Edit], list[str]]:
    """The text with as many edits as could be made, those edits, and why others could not."""
    made, refused = [], []
    # From the bottom up, so that the lines above keep their numbers.
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: -(edit.line or 0)):
        try:
            text = with_edit(text, path, edit)
        except CannotEdit as error:
            refused.append(str(error))
        else:
            made.append(edit)
    return text, made, refused[::-1]


def difference(before: str, after: str, path: Path) -> str:
    """A unified diff; empty where nothing changed."""
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(difflib.unified_diff(*lines, str(path), f"{path} (fixed)", n=1))


def write_fixed(
    path: Path, text: str, mode: int | None = None, *, keep: bool = True
) -> Path | None:
    """Write a script, renamed into its place; what stood there before, byte for byte, is kept.

    Returns where: NAME.orig, or the first of NAME.orig.1, NAME.orig.2, ... that is free; None where
    there was nothing, or already this text. A link keeps pointing to its file. The file keeps its
    mode, a new one gets ``mode``.
    """
    path = path.resolve()
    data = text.encode(errors="surrogateescape")
    kept = None
    if path.exists():
        if path.read_bytes() == data:
            return None
        mode = path.stat().st_mode
        kept = _kept(path) if keep else None
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as new:
        new.write(data)
    try:
        os.chmod(new.name, 0o644 if mode is None else mode)
        os.replace(new.name, path)
    except OSError:
        os.unlink(new.name)
        raise
    return kept


def _kept(path: Path) -> Path:
    """A copy of a file under the first free name; an equal copy that is there already will do."""
    number = 0
    while True:
        copy = path.with_name(f"{path.name}.orig" + (f".{number}" if number else ""))
        if not os.path.lexists(copy):
            break
        if copy.is_file() and copy.read_bytes() == path.read_bytes():
            return copy
        number += 1
    shutil.copy2(path, copy)
    return copy
