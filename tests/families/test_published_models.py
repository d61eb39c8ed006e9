"""The planner knows the published models under their names on the hub."""

import importlib.util
from pathlib import Path

import pytest

from swift_vlrft.families import FAMILIES, family_of
from swift_vlrft.memory.models import read_model


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
    model = read_model(name)
    assert model.family is family_of(name=name) is not None
    assert model.parameters.total > 5e8


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
