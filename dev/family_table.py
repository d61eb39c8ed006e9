"""Writes the table in docs/reference/families.md: what works for which model.

    python dev/family_table.py

A cell says what the family's file says. A column that says yes for every family is a sentence of
the page, and recipes have a page of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.families import family_of, known_family
from swift_vlrft.families.family import Family
from swift_vlrft.families.fixed import Budget
from swift_vlrft.families.tiles import Slices
from swift_vlrft.files.writing import write_atomically
from swift_vlrft.memory.models import known_models, read_model
from swift_vlrft.recipe.reader import Recipe, read_recipe

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

FAMILIES = "tests/families/test_families.py"
RUNS = "tests/end_to_end/test_family_runs.py"
RECIPES = "tests/end_to_end/test_recipes.py"
MIXTURE = "`vlrft tiny` writes the family's dense model"
NO_IMAGES = "It takes no images"


@dataclass(frozen=True)
class Cell:
    text: str
    tests: tuple[str, ...] = ()
    """Ids of pytest, or how they begin."""
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

    @property
    def recipes(self) -> dict[str, Recipe]:
        """By the name of their folder and file. Recipes are for dense models."""
        found = {} if self.mixture else shipped_recipes()
        return {
            name: recipe
            for name, recipe in found.items()
            if family_of(name=recipe.get("model")) is self.family
        }


def shipped_recipes() -> dict[str, Recipe]:
    needed = {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    paths = sorted((ROOT / "recipes").glob("*/*.sh"))
    return {f"{path.parent.name}/{path.stem}": read_recipe(path, needed) for path in paths}


def of_family(row: Row, test: str) -> str:
    return f"{FAMILIES}::{test}[{row.family.name}]"


def of_recipe(name: str) -> str:
    if "server" in name:
        return f"{RECIPES}::test_server_and_trainer_on_the_loopback"
    if "nodes" in name:
        return f"{RECIPES}::test_two_nodes_on_the_loopback"
    return f"{RECIPES}::test_recipe[{name.replace('/', '-')}]"


def tiny(row: Row) -> Cell:
    test = of_family(row, "test_a_written_checkpoint_is_recognised_and_loads")
    return no(MIXTURE) if row.mixture else Cell("yes", (test,))


def boxes(row: Row) -> Cell:
    if row.family.images is None:
        return no(NO_IMAGES)
    test = of_family(row, "test_coordinates")
    return Cell(row.family.box_format or "none", (test,))


def image(row: Row) -> Cell:
    rule = row.family.images
    if rule is None:
        return no(NO_IMAGES)
    files = {Budget: "budget", Slices: "slices"}
    name = f"tests/families/test_{files.get(type(rule))}.py"
    test = f"{name}::test_the_template_of_ms_swift_counts_as_the_rule"
    if type(rule) not in files:
        test = of_family(row, "test_the_processor_counts_as_the_file_says")
    return Cell(f"{rule.tokens(640, 480):,}", (test,))


def prefix(row: Row) -> Cell:
    written = next(iter(row.family.templates.values())).replace("\n", "\\n").replace("|", "\\|")
    test = f"{FAMILIES}::test_what_ms_swift_knows_is_what_the_files_say"
    return Cell(f"`{written}`" if written else "nothing", (test,))


def check(row: Row) -> Cell:
    return Cell("yes", (of_family(row, "test_rules"),))


def plan(row: Row) -> Cell:
    """The sizes whose configuration is shipped; any other by its config.json."""
    models = [read_model(name) for name in known_models()]
    kinds = {row.kind} if row.mixture else set(row.family.model_types) - set(TITLES) | {row.kind}
    kinds |= {"glm4v"} if row.kind == "glm46v" else set()  # GLM-4.6V-Flash
    kinds |= {"qwen3_moe"} if row.kind == "qwen3" else set()
    names = [m.name for m in models if m.family is row.family and m.type in kinds]
    start = re.sub(r"[^-_]*$", "", os.path.commonprefix(names)) if len(names) > 1 else ""
    sizes = ", ".join(name.removeprefix(start) for name in names)
    counted = "test_every_shipped_configuration_counts_as_transformers_builds_it"
    tests = (of_family(row, "test_planner"), f"tests/memory/test_memory.py::{counted}")
    return Cell(sizes or "by config.json", tests)


def grpo(row: Row) -> Cell:
    test = f"{RUNS}::test_grpo[{row.kind}]"
    if row.kind == "qwen2_5_vl":
        test = "tests/end_to_end/test_engines.py::test_transformers_rollout"
    return Cell("yes", (test,))


def grpo_vllm(row: Row) -> Cell:
    if why := row.family.no_vllm.get(row.kind):
        return no(why)
    with_vllm = (name for name, r in row.recipes.items() if r.get("use_vllm") == "true")
    name = next(with_vllm, None)
    return Cell("yes", (of_recipe(name) if name else f"{RUNS}::test_grpo_with_vllm[{row.kind}]",))


def evaluation(row: Row) -> Cell:
    if row.family.images is None:
        return no(NO_IMAGES)
    test = f"{RUNS}::test_evaluation[{row.kind}]"
    if row.kind == "qwen2_5_vl":
        test = "tests/end_to_end/test_model_evaluation.py::test_a_killed_run_goes_on"
    return Cell("yes", (test,))


def shared_prefix(row: Row) -> Cell:
    own = [row.kind, *(() if row.mixture else row.family.model_types)]
    kinds = [kind for kind in own if kind in row.family.shared_prefix]
    if not kinds:
        return no(row.family.why_not_shared if row.family.images else NO_IMAGES)
    test = "tests/shared_prefix/test_shared_prefix.py::test_values_and_every_gradient"
    return Cell("yes", (f"{test}_are_those_of_separate_rows[{kinds[0]}-",))


def recipes(row: Row) -> Cell:
    links = ", ".join(f"[{n.split('/')[1]}](../../recipes/{n}.sh)" for n in row.recipes)
    return Cell(links, tuple(map(of_recipe, row.recipes)))


COLUMNS: dict[str, Callable[[Row], Cell]] = {
    "`vlrft tiny`": tiny,
    "box format": boxes,
    "tokens of 640 x 480": image,
    "in front of an answer": prefix,
    "`vlrft check`": check,
    "`vlrft plan`": plan,
    "GRPO": grpo,
    "GRPO, vLLM": grpo_vllm,
    "`vlrft eval`": evaluation,
    "[shared prefix](../project/shared_prefix.md)": shared_prefix,
    "recipes": recipes,
}


def rows() -> list[Row]:
    return [Row(kind, known_family(kind)) for kind in TITLES]


def table() -> str:
    """The table and its footnotes."""
    notes: list[str] = []
    cells_of = [(row, {n: column(row) for n, column in COLUMNS.items()}) for row in rows()]
    shown = [
        name
        for name in COLUMNS
        if name != "recipes" and {cells[name].text for _, cells in cells_of} != {"yes"}
    ]
    lines = ["| models | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for row, known in cells_of:
        cells = [TITLES[row.kind] + f", `{row.kind}`"]
        for name in shown:
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
