"""Braces: ``data/{a,b}.jsonl`` and ``x{1..3}`` are several words before all else is expanded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from swift_vlrft.recipe.shell.words import Part

RANGE = re.compile(r"(-?\d{1,6}|[a-zA-Z])\.\.(-?\d{1,6}|[a-zA-Z])(?:\.\.(-?\d{1,6}))?")
MOST_WORDS = 1000

Cell: TypeAlias = str | Part
"""An unquoted character, or a part that braces leave alone."""


def cells_of(parts: Sequence[Part]) -> list[Cell]:
    cells: list[Cell] = []
    for part in parts:
        cells += part.text if part.kind == "text" and not part.quoted else [part]
    return cells


def parts_of(cells: Sequence[Cell]) -> list[Part]:
    parts: list[Part] = []
    for cell in cells:
        if isinstance(cell, Part):
            parts.append(cell)
        elif parts and parts[-1].kind == "text" and not parts[-1].quoted:
            parts[-1] = replace(parts[-1], text=parts[-1].text + cell)
        else:
            parts.append(Part("text", cell, False))
    return parts


def braced(cells: list[Cell]) -> list[list[Cell]]:
    """The words that ``a{b,c}`` and ``a{1..3}`` stand for."""
    for at, cell in enumerate(cells):
        if cell != "{":
            continue
        end, commas = _closing(cells, at)
        if end is None:
            continue
        inside = cells[at + 1 : end]
        if commas:
            edges = [at, *commas, end]
            pairs = zip(edges, edges[1:], strict=False)
            middles = [one for a, b in pairs for one in braced(cells[a + 1 : b])]
        elif not (middles := _range(inside)):
            continue
        rests = braced(cells[end + 1 :])
        if len(middles) * len(rests) > MOST_WORDS:
            break
        return [[*cells[:at], *middle, *rest] for middle in middles for rest in rests]
    return [cells]


def _closing(cells: Sequence[Cell], at: int) -> tuple[int | None, list[int]]:
    """Where the brace at ``at`` closes, and the commas between."""
    depth, commas = 0, list[int]()
    for i in range(at, len(cells)):
        depth += (cells[i] == "{") - (cells[i] == "}")
        if depth == 0:
            return i, commas
        if depth == 1 and cells[i] == ",":
            commas.append(i)
    return None, []


def _range(cells: Sequence[Cell]) -> list[list[Cell]]:
    if any(isinstance(cell, Part) for cell in cells):
        return []
    match = RANGE.fullmatch("".join(map(str, cells)))
    if match is None or match[1].isalpha() != match[2].isalpha():
        return []
    letters = match[1].isalpha()
    first, last = (ord(e) if letters else int(e) for e in (match[1], match[2]))
    step = abs(int(match[3] or 1)) or 1
    if abs(last - first) // step >= MOST_WORDS:
        return []
    wide = any(len(e.lstrip("-")) > 1 and e.lstrip("-")[0] == "0" for e in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if wide and not letters else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [list(chr(n) if letters else str(n).zfill(width)) for n in numbers]
