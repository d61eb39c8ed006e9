"""`vlrft check` says where a model's folder brings code of its own, or pickles alone."""

import json

import pytest

from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import check_recipe


@pytest.mark.parametrize(
    "files, config, said",
    [
        (["model.safetensors"], {}, []),
        (["model.safetensors", "pytorch_model.bin"], {}, []),
        (["pytorch_model-00001-of-00002.bin"], {}, ["its weights are pickles (pytorch_model-0"]),
        (["model.safetensors"], {"AutoModel": "evil.Model"}, ["code of its own (evil.py)"]),
        (["model.safetensors"], {"AutoModel": ["evil.Model", None]}, ["code of its own (evil.py)"]),
        (["model.safetensors"], [1], []),
    ],
)
def test_code_and_pickles_of_a_folder_are_named(files, config, said, tmp_path):
    for name in files:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": config}))
    command = f"swift rlhf --rlhf_type grpo --model {tmp_path} --dataset a"
    (recipe,) = read_text(command)
    found = [one for one in check_recipe(recipe) if one.rule == "trust"]
    assert len(found) == len(said) and all(one.level == "note" for one in found)
    assert all(text in one.text for text, one in zip(said, found, strict=True))
