"""Writes the table in docs/reference/families.md: what works for which model.

    python dev/family_table.py

A cell says what the family's file says. What holds for every family is a sentence of the page, and
recipes have a page of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.families import known_family
from swift_vlrft.families.family import Family
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.memory.models import known_models, read_model

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "families.md"
MARKS = "<!-- dev/family_table.py writes what follows -->\n", "<!-- until here -->\n"

TITLES = {
    "qwen2_vl": "Qwen2-VL",
    "qwen2_5_vl": "Qwen2.5-VL",
    "qwen3_vl": "Qwen3-VL",
    "qwen3_vl_moe": "Qwen3-VL, mixtures of experts",
    "qwen3_5": "Qwen3.5, 3.6",
    "qwen3_5_moe": "Qwen3.5, 3.6, mixtures of experts",
    "internvl": "InternVL3, 3.5 (`-HF`)",
    "gemma4": "Gemma 4",
    "minicpmv4_6": "MiniCPM-V 4.6",
    "glm4v": "GLM-4.1V",
    "glm46v": "GLM-4.6V-Flash",
    "glm4v_moe": "GLM-4.5V, 4.6V",
    "chatglm4v": "GLM-4v-9b",
    "cogagent_9b": "CogAgent-9B",
    "qwen2": "Qwen2, 2.5 (text)",
    "qwen3": "Qwen3 (text)",
}
"""The rows: families, and transformers' types of their mixtures of experts."""

MIXTURE = "`vlrft tiny` writes the family's dense model"
NO_IMAGES = "It takes no images"


@dataclass(frozen=True)
class Cell:
    text: str
    why_not: str | None = None
    """The footnote of a cell that says no."""


def no(why: str | None) -> Cell:
    return Cell("no", why_not=why)


@dataclass(frozen=True)
class Row:
    kind: str
    family: Family

    @property
    def mixture(self) -> bool:
        return self.kind != self.family.name


def tiny(row: Row) -> Cell:
    return no(MIXTURE) if row.mixture else Cell("yes")


def boxes(row: Row) -> Cell:
    return Cell(row.family.box_format or "none") if row.family.images else no(NO_IMAGES)


def image(row: Row) -> Cell:
    rule = row.family.images
    return Cell(f"{rule.tokens(640, 480):,}") if rule else no(NO_IMAGES)


def prefix(row: Row) -> Cell:
    written = next(iter(row.family.templates.values())).replace("\n", "\\n").replace("|", "\\|")
    return Cell(f"`{written}`" if written else "nothing")


def plan(row: Row) -> Cell:
    """The sizes whose configuration is shipped; any other by its config.json."""
    models = [read_model(name) for name in known_models()]
    kinds = {row.kind} if row.mixture else set(row.family.model_types) - set(TITLES) | {row.kind}
    kinds |= {"glm4v"} if row.kind == "glm46v" else set()  # GLM-4.6V-Flash
    kinds |= {"qwen3_moe"} if row.kind == "qwen3" else set()
    names = [m.name for m in models if m.family is row.family and m.type in kinds]
    start = re.sub(r"[^-_]*$", "", os.path.commonprefix(names)) if len(names) > 1 else ""
    return Cell(", ".join(name.removeprefix(start) for name in names) or "by config.json")


def grpo_vllm(row: Row) -> Cell:
    why = row.family.no_vllm.get(row.kind)
    return no(why) if why else Cell("yes")


def evaluation(row: Row) -> Cell:
    return Cell("yes") if row.family.images else no(NO_IMAGES)


def shared_prefix(row: Row) -> Cell:
    own = [row.kind, *(() if row.mixture else row.family.model_types)]
    if any(kind in row.family.shared_prefix for kind in own):
        return Cell("yes")
    return no(row.family.why_not_shared if row.family.images else NO_IMAGES)


COLUMNS: dict[str, Callable[[Row], Cell]] = {
    "`vlrft tiny`": tiny,
    "box format": boxes,
    "tokens of 640 x 480": image,
    "in front of an answer": prefix,
    "`vlrft plan`": plan,
    "GRPO, vLLM": grpo_vllm,
    "`vlrft eval`": evaluation,
    "[shared prefix](../project/shared_prefix.md)": shared_prefix,
}


def rows() -> list[Row]:
    return [Row(kind, known_family(kind)) for kind in TITLES]


def table() -> str:
    """The table and its footnotes."""
    notes: list[str] = []
    cells_of = [(row, {n: column(row) for n, column in COLUMNS.items()}) for row in rows()]
    lines = ["| models | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row, known in cells_of:
        cells = [TITLES[row.kind] + f", `{row.kind}`"]
        for name in COLUMNS:
            cell = known[name]
            text = cell.text
            if cell.why_not:
                if cell.why_not not in notes:
                    notes.append(cell.why_not)
                text += f" ({notes.index(cell.why_not) + 1})"
            cells.append(text)
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"{i}. {note[0].upper()}{note[1:]}." for i, note in enumerate(notes, 1))]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """``text`` with the table as it is now."""
    start, end = MARKS
    before, rest = text.split(start)
    return before + start + "\n" + table() + "\n" + end + rest.split(end)[1]


if __name__ == "__main__":
    write_atomically(PAGE, page(PAGE.read_text()))
