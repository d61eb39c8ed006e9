"""docs/families.md says what the families' files say, and each cell's test exists.

Also: every published size of these families is known to the planner under its name on the hub.
"""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from support.swift_run import REPOSITORY

from swift_vlrft.families import FAMILIES, family_of
from swift_vlrft.memory.models import read_model

spec = importlib.util.spec_from_file_location("table", REPOSITORY / "dev" / "family_table.py")
table = sys.modules["table"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)
# Each model and each recipe is read once, not once a row.
table.read_model, table.shipped_recipes = cache(read_model), cache(table.shipped_recipes)


def test_the_page_is_up_to_date():
    text = table.PAGE.read_text()
    assert table.page(text) == text, "run `python dev/family_table.py`"
    assert set(FAMILIES) <= set(table.TITLES)


@pytest.mark.parametrize("page", ["README.md", "README_CN.md"])
def test_the_first_table_names_every_family_that_sees(page):
    """By a recipe, with the family's box format."""
    first = re.search(r"(^\|.*\n)+", (REPOSITORY / page).read_text(), re.M)
    named = {}
    for line in first[0].splitlines()[2:]:
        _, boxes, link = line.strip("| ").split(" | ")
        recipe = table.shipped_recipes()[re.search(r"\[(.*)\]", link)[1]]
        named[family_of(name=recipe.get("model")).name] = boxes
    formats = {name: known.box_format for name, known in FAMILIES.items() if known.images}
    assert named.keys() == formats.keys()
    for name, boxes in named.items():
        assert boxes == f"`{formats[name]}`" if formats[name] else not boxes.startswith("`")


def test_every_cell_has_a_test_or_a_reason():
    for row in table.rows():
        assert not row.mixture or row.kind in row.family.model_types
        for name, column in table.COLUMNS.items():
            cell = column(row)
            assert cell.why_not if cell.text == "no" else cell.tests or not cell.text, name
            for test in cell.tests:
                file, function = re.match(r"(.+)::(\w+)", test).groups()
                assert f"def {function}" in (REPOSITORY / file).read_text(), test


SIZES = {
    "Qwen/Qwen3-VL-{}-Instruct": ("qwen3_vl", ["2B", "4B", "8B", "32B", "30B-A3B", "235B-A22B"]),
    "Qwen/Qwen3.5-{}": ("qwen3_5", ["0.8B", "2B", "4B", "9B"]),
    "zai-org/GLM-4.6V{}": ("glm46v", ["", "-Flash"]),
    "zai-org/GLM-4.5V{}": ("glm46v", [""]),
    "OpenGVLab/InternVL3_5-{}-HF": ("internvl", ["1B", "2B", "4B", "8B", "14B", "30B-A3B"]),
    "google/gemma-4-{}-it": ("gemma4", ["E2B", "E4B"]),
    "openbmb/MiniCPM-V-4.6{}": ("minicpmv4_6", [""]),
}


@pytest.mark.parametrize("names", SIZES)
def test_the_planner_knows_every_size_by_its_name(names):
    """tests/memory: the parameters are those of transformers' class."""
    expected, sizes = SIZES[names]
    for name in map(names.format, sizes):
        model = read_model(name)
        assert model.family is family_of(name=name) is FAMILIES[expected], name
        assert model.source.startswith("shipped") and model.parameters.total > 5e8, name


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
    package = Path(importlib.util.find_spec("vllm").origin).parent
    code = package / "model_executor" / "models" / "qwen3_vl_moe.py"
    assert "is_fused_checkpoint_transposed=True" in code.read_text()
