"""docs/families.md says what the families' files say, and each cell's test exists.

Also: every published size of these families is known to the planner under its name on the hub.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.swift_run import REPOSITORY

from swift_vlrft.families import FAMILIES, family_of
from swift_vlrft.memory.models import read_model

spec = importlib.util.spec_from_file_location("table", REPOSITORY / "dev" / "family_table.py")
made = sys.modules["table"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)


def test_the_page_is_up_to_date():
    text = made.PAGE.read_text()
    assert made.page(text) == text, "run `python dev/family_table.py`"


def test_every_family_has_a_row():
    assert set(FAMILIES) <= set(made.TITLES)
    for row in made.rows():
        assert not row.mixture or row.kind in row.family.model_types


@pytest.mark.parametrize("page", ["README.md", "README_CN.md"])
def test_the_first_table_names_every_family_that_sees(page):
    """By a recipe, with the family's box format."""
    first = re.search(r"(^\|.*\n)+", (made.ROOT / page).read_text(), re.M)
    recipes = made.shipped_recipes()
    named = {}
    for line in first[0].splitlines()[2:]:
        _, boxes, link = line.strip("| ").split(" | ")
        known = family_of(name=recipes[re.search(r"\[(.*)\]", link)[1]].get("model"))
        named[known.name] = boxes.strip("`") if boxes.startswith("`") else None
    assert named == {name: known.box_format for name, known in FAMILIES.items() if known.images}


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The ids of all tests that cells name."""
    cells = [column(row) for row in made.rows() for column in made.COLUMNS.values()]
    files = sorted({test.split("::")[0] for cell in cells for test in cell.tests})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", *files],
        cwd=made.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"^tests/.*::.*$", done.stdout, re.M))


@pytest.mark.slow
@pytest.mark.parametrize("row", made.rows(), ids=lambda row: row.kind)
def test_every_cell_has_a_test_or_a_reason(row, collected):
    for name, column in made.COLUMNS.items():
        cell = column(row)
        if cell.text == "no":
            assert cell.why_not, name
        elif cell.text:
            assert cell.tests, name
        for test in cell.tests:
            assert any(found.startswith(test) for found in collected), test


SIZES = {
    "Qwen/Qwen3-VL-{}-Instruct": ("qwen3_vl", ["2B", "4B", "8B", "32B", "30B-A3B", "235B-A22B"]),
    "Qwen/Qwen3.5-{}": ("qwen3_5", ["0.8B", "2B", "4B", "9B"]),
    "zai-org/GLM-4.6V{}": ("glm46v", ["", "-Flash"]),
    "zai-org/GLM-4.5V{}": ("glm46v", [""]),
    "OpenGVLab/InternVL3_5-{}-HF": ("internvl", ["1B", "2B", "4B", "8B", "14B", "30B-A3B"]),
    "google/gemma-4-{}-it": ("gemma4", ["E2B", "E4B"]),
    "openbmb/MiniCPM-V-4.6{}": ("minicpmv4_6", [""]),
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [(name.format(size), kind) for name, (kind, sizes) in SIZES.items() for size in sizes],
)
def test_the_planner_knows_every_size_by_its_name(name, expected):
    """tests/memory: the parameters are those of transformers' class."""
    model = read_model(name)
    assert model.family is family_of(name=name) is FAMILIES[expected]
    assert model.source.startswith("shipped configuration") and model.parameters.total > 5e8


@pytest.mark.slow
def test_why_a_mixture_does_not_run_with_vllm(tmp_path):
    """Experts as transformers writes them, and the orientation in which vLLM loads them."""
    from safetensors import safe_open
    from support.tiny_kinds import write_kind

    assert set(FAMILIES["qwen3_vl"].no_vllm) == {"qwen3_vl_moe"}
    write_kind("qwen3_vl_moe", tmp_path / "model")
    with safe_open(tmp_path / "model" / "model.safetensors", "pt") as weights:
        name = next(name for name in sorted(weights.keys()) if "down_proj" in name)
        shape = weights.get_slice(name).get_shape()
    assert shape == [4, 64, 128]  # experts, hidden size, their width; as published: width, hidden
    code = (
        Path(importlib.util.find_spec("vllm").origin).parent
        / "model_executor"
        / "models"
        / "qwen3_vl_moe.py"
    )
    assert "is_fused_checkpoint_transposed=True" in code.read_text()
