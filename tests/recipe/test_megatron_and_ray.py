"""`vlrft check` and `vlrft plan` of `megatron`, and of ms-swift's two ways to Ray."""

import json
import shlex

import pytest
import yaml

from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.recipe.facts import facts, of_megatron
from swift_vlrft.recipe.history import OLD_MEGATRON_FLAGS
from swift_vlrft.recipe.reader import RecipeError, read_recipe, read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.run import resolve
from swift_vlrft.swift_plugin.facts import OF_MEGATRON

GOOD = (
    "MAX_PIXELS=401408 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 NPROC_PER_NODE=8 "
    "megatron rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct "
    '--dataset laolao77/ViRFT_CLS_flower_4_shot:pixels --external_plugins "$(vlrft plugin)" '
    "--reward_funcs vlrft_classification vlrft_format --num_generations 8 --micro_batch_size 4 "
    "--global_batch_size 128 --steps_per_generation 4 --train_iters 100 --vllm_mode colocate "
    "--max_length 8192 --max_completion_length 1024 --vllm_max_model_len 10240 "
    "--truncation_strategy delete --lr 1e-6 --bf16 true --finetune --no_save_optim --no_save_rng "
    "--recompute_granularity selective --offload_model true --sleep_level 2 "
)
RAY = {
    **{"rlhf_type": "grpo", "model": "Qwen/Qwen2.5-VL-3B-Instruct", "max_pixels": 401408},
    **{"dataset": ["laolao77/ViRFT_CLS_flower_4_shot:pixels"], "reward_funcs": ["format"]},
    **{"micro_batch_size": 2, "global_batch_size": 16, "num_generations": 8},
    **{"steps_per_generation": 4, "num_train_epochs": 1, "max_length": 2048, "system": None},
    **{"max_completion_length": 1024, "truncation_strategy": "delete", "lr": 5e-5},
    **{"vllm_max_model_len": 100, "use_vllm": True, "colocate_groups": [["train", "rollout"]]},
    **{"offload_model": True, "sleep_level": 1},
    "train": {"gpus": 4, "tuner_type": "lora", "output_dir": "out"},
    "rollout": {"gpus": 4, "vllm_max_model_len": 4096, "vllm_data_parallel_size": 1},
}
GROUPS = {
    "nproc_per_node": 4,
    "default": {"device": "GPU", "ranks": "list(range(0, 4))", "workers": ["default"]},
}


def found(text, path="command", **environment):
    """Rule and text of what is found; not what is missing on this machine."""
    every = [one for r in read_text(text, path, environment) for one in check_recipe(r)]
    return [(one.rule, one.text) for one in every if one.rule != "not-installed"]


def rules(text, path="command", **environment):
    return [rule for rule, _ in found(text, path, **environment)]


def ray(**changes):
    return yaml.safe_dump({**RAY, **changes})


def sft(groups):
    return (
        "swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset d --use_ray true --deepspeed zero3 "
        f"--device_groups {shlex.quote(json.dumps(groups))}"
    )


def test_a_good_recipe_of_each_has_no_finding(tmp_path):
    (tmp_path / "cfg.yaml").write_text(ray())
    script = f"cd {tmp_path}\nmegatron rlhf --use_ray --config cfg.yaml"
    assert [found(GOOD), found(ray(), "cfg.yaml"), found(script), found(sft(GROUPS))] == [[]] * 4


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


def test_what_megatron_has_not_is_no_command():
    with pytest.raises(RecipeError, match="or `megatron rlhf` command"):
        read_text("megatron rollout --model m", environment={})


@pytest.mark.parametrize(
    ("flag", "rule", "said"),
    [
        ("--train_type lora", "removed-flag", "--tuner_type since ms-swift 4.1.0"),
        ("--save out", "removed-flag", "--output_dir since ms-swift 4.0.0"),
        ("--save_interval 5", "removed-flag", "--save_steps"),
        ("--max_epochs 1", "removed-flag", "--num_train_epochs"),
        ("--deepspeed zero3", "unknown-flag", "has no --deepspeed"),
        ("--per_device_train_batch_size 1", "unknown-flag", "no --per_device_train_batch_size"),
        ("--micro_batch_size 0", "value", "1 or more"),
        ("--recompute_granularity some", "value", "selective, full, none"),
        ("--reward_funcs vlrft_clasification", "reward", "vlrft_classification?"),
        ("--dataset laolao77/ViRFT_CLS_flower_4_shot:pixel", "dataset", "pixel"),
        ("--external_plugins /no/plugin.py", "plugin", "no such file"),
        ("--global_batch_size 100", "global-batch", "4 x 8 copies of the model = 32"),
        ("--tensor_model_parallel_size 3", "model-parallel", "8 processes do not divide"),
        ("--tensor_model_parallel_size 2 --micro_batch_size 32", "generation-batch", "x 4 copies"),
        ("--num_generations 7", "generation-batch", "512 completions"),
        ("--num_generations 1", "num-generations", "needs 2"),
        ("--generation_batch_size 256", "generation-batch", "contradicts"),
        ("--vllm_tensor_parallel_size 3", "tensor-parallel", "8 processes"),
        ("--vllm_max_model_len 8192", "lengths", "exceeds"),
        ("--use_vllm false", "vllm-mode", "vLLM alone"),
        ("--async_generate true", "megatron", "not supported"),
        ("--num_iterations 2", "megatron", "not supported"),
        ("--reward_model m", "megatron", "no effect"),
        ("--recompute_method uniform", "recompute", "recompute_granularity full"),
        ("--group_by_length true", "padding-free", "padding_free false"),
        ("--save_total_limit 1", "save", "2 or more"),
        ("--loss_type cispo", "cispo", "epsilon_high"),
        ("--loss_type dapo --max_completion_length 1025", None, ""),
        ("--tuner_type lora_llm --torch_dtype bfloat16", None, ""),  # no deepspeed, no note
        ("--no_finetune --seed 1 --vit_attn_impl sdpa", None, ""),
    ],
)
def test_one_flag_more(flag, rule, said):
    more = [one for one in found(f"{GOOD} {flag}") if one[0] != "repeated-flag"]
    assert [one[0] for one in more][: bool(rule) or None] == ([rule] if rule else [])
    assert not rule or said in more[0][1]


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ("--train_iters 100 ", "", "train-iters"),
        ("--vllm_mode colocate ", "", "vllm-mode"),
        ("NPROC_PER_NODE=8", "NPROC_PER_NODE=16", "visible-gpus"),
        ("MAX_PIXELS=401408", "MAX_PIXELS=401408 VLRFT_SHARED_PREFIX=1", "megatron"),
    ],
)
def test_one_thing_less_or_other(before, after, rule):
    assert rule in rules(GOOD.replace(before, after))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lrr": 1}, "no --lrr"),
        ({"reward_funcs": ["formt"]}, "no reward is named formt"),
        ({"rollout": {"gpus": 2}}, "need the same number of them: train 4, rollout 2"),
        ({"train": {"gpus": "four"}}, "train: gpus is 'four'"),
        ({"rollout": {"gpus": "four"}}, "rollout: gpus is 'four'"),
        ({"train": {"lora_rank": 8}}, "train: gpus is 0"),
        ({"colocate_groups": ["train", "rollout"]}, "as [[train, rollout]]"),
        ({"colocate_groups": [["train", "actor"]]}, "colocate_groups names actor"),
        ({"colocate_groups": [["train", ["rollout"]]]}, "colocate_groups names ['rollout']"),
        ({"rollout": None}, "the role rollout with its gpus is missing"),
        ({"rlhf_type": "dpo"}, "on Ray Megatron trains grpo and gkd"),
        ({"val_dataset": "v"}, "val_dataset is ignored"),
        ({"num_generations": 16}, "are no multiple of --num_generations 16"),
        ({"train": {"gpus": 4, "global_batch_size": 9}}, "--global_batch_size 9 is no multiple"),
    ],
)
def test_configurations_of_roles(changes, said):
    assert any(said in text for _, text in found(ray(**changes), "cfg.yaml"))


def test_a_role_wins_over_all_and_the_engine_has_its_own_flags():
    run = resolve(read_text(ray(), "cfg.yaml", {})[0])
    assert (run.integer("vllm_max_model_len"), run.processes) == (4096, 4)
    assert (run.text("tuner_type"), run.integer("sleep_level")) == ("lora", 1)
    assert "system" not in run.given  # null is left out
    apart = dict(RAY) | {"rollout": {"gpus": 2, "vllm_max_model_len": 4096}}
    del apart["colocate_groups"]
    assert found(yaml.safe_dump(apart), "cfg.yaml") == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("megatron rlhf --use_ray true --config cfg.yaml --lr 1", "--lr is lost"),
        ("NPROC_PER_NODE=4 megatron rlhf --use_ray true --config cfg.yaml", "several times"),
        ("megatron rlhf --use_ray true --rlhf_type grpo", "needs --config cfg.yaml"),
        ("megatron rlhf --use_ray true --config=cfg.yaml", "needs --config cfg.yaml"),
        ("megatron rlhf --use_ray false --config cfg.yaml", "no --config"),
        ("swift rlhf --rlhf_type grpo --use_ray true", "`swift rlhf` does not start Ray"),
        ("swift pt --use_ray true", "`swift sft` and `swift sample` do"),
        ("swift sft --use_ray true", "needs --device_groups"),
    ],
)
def test_commands_on_ray(command, said, tmp_path):
    (tmp_path / "cfg.yaml").write_text(ray())
    assert any(said in text for _, text in found(f"cd {tmp_path}\n{command}"))


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"device": "CPU"}, "KeyError: 'CPU'"),
        ({"workers": ["sampler"]}, "no group has the worker default"),
        ({"workers": 3}, "default has no list of workers"),
        ({"workers": [["sampler"]]}, "no group has the worker default"),
        ({"ranks": None}, "default has no ranks"),
    ],
)
def test_groups_of_devices(group, said):
    groups = {**GROUPS, "default": {**GROUPS["default"], **group}}
    assert any(said in text for _, text in found(sft(groups)))
    assert any("nproc_per_node" in text for _, text in found(sft({"default": GROUPS["default"]})))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.sh", GOOD, "`megatron rlhf` with rlhf_type grpo is not planned"),
        ("m.sh", "megatron sft --model m", "`megatron sft` is not planned"),
        ("cfg.yaml", ray(), "which role of Ray has which GPU"),
        ("r.sh", sft(GROUPS), "`swift sft` on Ray is not planned"),
    ],
)
def test_the_planner_says_what_it_does_not_plan(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        plan_recipe(tmp_path / name, "4x80")
    with pytest.raises(ValueError, match=said):  # before it asks for GPUs
        plan_recipe(tmp_path / name)
    assert read_recipe(tmp_path / name).trains


def test_the_table_of_old_flags_is_true_of_megatron():
    every = {name for command in OF_MEGATRON for name in facts().flags(command)}
    assert sorted(set(OLD_MEGATRON_FLAGS) & every) == []
    now = [old.now for old in OLD_MEGATRON_FLAGS.values() if old.now]
    assert [name for name in now if name not in every] == []


def test_without_megatron_core_its_flags_are_those_shipped_and_a_note_says_so():
    from msgspec.structs import replace

    swift = {
        name: {keys: flag for keys, flag in kinds.items() if "megatron-" not in keys}
        for name, kinds in facts().commands.items()
    }
    without = of_megatron(replace(facts(), commands=swift))
    assert without.flags("megatron-rlhf") == facts().flags("megatron-rlhf")
    assert without.flags("rlhf") == facts().flags("rlhf")
    assert "cannot be read without Megatron-Core" in without.note
