"""docs/reference/families.md says what the families' files say, and each cell's test exists.

Also: the published models are known to the planner under their names on the hub.
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


@pytest.mark.parametrize(
    "name",
    [
        *("Qwen/Qwen3-VL-2B-Instruct", "Qwen/Qwen3-VL-235B-A22B-Instruct", "Qwen/Qwen3.5-0.8B"),
        *("zai-org/GLM-4.5V", "zai-org/GLM-4.6V", "zai-org/GLM-4.6V-Flash"),
        *("OpenGVLab/InternVL3_5-14B-HF", "OpenGVLab/InternVL3_5-30B-A3B-HF"),
        *("google/gemma-4-E2B-it", "openbmb/MiniCPM-V-4.6"),
    ],
)
def test_the_planner_knows_models_by_their_names_on_the_hub(name):
    """The table above names every size; tests/memory: parameters as transformers' class has."""
    model = read_model(name)
    assert model.family is family_of(name=name) is not None
    assert model.source.startswith("shipped") and model.parameters.total > 5e8


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
