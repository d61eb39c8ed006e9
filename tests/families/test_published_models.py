"""The planner knows the published models under their names on the hub."""

import pytest

from swift_vlrft.families import family_of
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
