"""How `megatron`, and ms-swift's two ways to Ray, are read; what is found: rules.jsonl."""

import pytest
import yaml
from msgspec.structs import replace
from recipe.test_rules import MEGATRON, NAMES, RAY

from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.recipe.facts import facts, of_megatron
from swift_vlrft.recipe.reader import read_recipe, read_text
from swift_vlrft.recipe.run import resolve


@pytest.mark.parametrize(
    "text",
    [
        "megatron rlhf --rlhf_type grpo",
        "/opt/env/bin/megatron rlhf --rlhf_type grpo",
        "srun uv run megatron rlhf --rlhf_type grpo",
        "torchrun --nproc_per_node 2 -m swift.cli._megatron.rlhf --rlhf_type grpo",
        "torchrun --nproc_per_node 2 /opt/swift/cli/_megatron/rlhf.py --rlhf_type grpo",
    ],
)
def test_megatron_is_read_however_it_is_started(text):
    (recipe,) = read_text(text, environment={})
    assert (recipe.command, recipe.megatron) == (("megatron", "rlhf"), True)
    assert recipe.values("rlhf_type") == ("grpo",)
    assert resolve(recipe).integer("global_batch_size") == 16  # Megatron's default


def test_a_role_wins_over_all_and_the_engine_has_its_own_flags():
    run = resolve(read_text(yaml.safe_dump(RAY), "cfg.yaml", {})[0])
    assert (run.integer("vllm_max_model_len"), run.processes) == (4096, 4)
    assert (run.text("tuner_type"), run.integer("sleep_level")) == ("lora", 1)
    assert "system" not in run.given  # null is left out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.sh", MEGATRON, "`megatron rlhf`"),
        ("m.sh", "megatron sft --model m", "`megatron sft`"),
        ("cfg.yaml", yaml.safe_dump(RAY), "role of Ray"),
        ("r.sh", NAMES["@GROUPS@"], "`swift sft` on Ray"),
    ],
)
def test_the_planner_says_what_it_does_not_plan(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        plan_recipe(tmp_path / name, "4x80")
    with pytest.raises(ValueError, match=said):  # before it asks for GPUs
        plan_recipe(tmp_path / name)
    assert read_recipe(tmp_path / name).trains


def test_without_megatron_core_its_flags_are_those_shipped_and_a_note_says_so():
    swift = {
        name: {keys: flag for keys, flag in kinds.items() if "megatron-" not in keys}
        for name, kinds in facts().commands.items()
    }
    without = of_megatron(replace(facts(), commands=swift))
    assert without.flags("megatron-rlhf") == facts().flags("megatron-rlhf")
    assert without.flags("rlhf") == facts().flags("rlhf")
    assert "Megatron-Core" in without.note
