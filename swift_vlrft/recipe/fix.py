"""Change the words of a script as its findings say, and keep a copy of every version.

--train_type lora        becomes --tuner_type lora
--num_infer_workers 1    is left out; a `> log 2>&1 &` behind it stays

What is no literal word there (a part of ``$FLAGS``, a value from a variable, another file's) and a
YAML or JSON configuration are left alone: their findings stay.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from swift_vlrft.files.writing import beside
from swift_vlrft.recipe.rules.finding import Finding
from swift_vlrft.recipe.tree import Patch


def patched(text: str, findings: Iterable[Finding]) -> str:
    """Return a text with the changes that its findings propose; of two that meet, the smaller."""
    kept = list[Patch]()
    patches = {patch for finding in findings for patch in finding.patches}
    for patch in sorted(patches, key=lambda patch: (patch.end - patch.start, patch)):
        if all(patch.end <= other.start or other.end <= patch.start for other in kept):
            kept.append(patch)
    for start, end, new in sorted(kept, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def difference(before: str, after: str, path: Path) -> Iterator[str]:
    """Return the lines of a unified diff, none if nothing changed."""
    old, new = (text.removesuffix("\n").split("\n") for text in (before, after))
    return difflib.unified_diff(old, new, str(path), f"{path} (fixed)", n=1, lineterm="")


def write_fixed(path: Path, text: str, mode: int | None = None) -> Path | None:
    """Write a script and keep the previous file beside it, byte for byte.

    Returns the backup: NAME.orig, or the first free one of NAME.orig.1, NAME.orig.2, ...; None if
    there was no file, or already this text. The file keeps its mode, a new one gets ``mode``.
    """
    path = path.resolve()
    data, backup = text.encode(), None
    if path.exists():
        if path.read_bytes() == data:
            return None
        mode = path.stat().st_mode
        names = (f"{path.name}.orig{f'.{number}' if number else ''}" for number in count())
        backup = next(copy for copy in map(path.with_name, names) if not os.path.lexists(copy))
        with beside(backup) as unfinished:
            shutil.copy2(path, unfinished)
    with beside(path) as unfinished:
        unfinished.write_bytes(data)
        unfinished.chmod(0o644 if mode is None else mode)
    return backup
