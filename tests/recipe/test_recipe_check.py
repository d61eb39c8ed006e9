"""`vlrft check` says what ms-swift would have said later; every recipe of ours passes."""

import itertools
import json
import re
import stat
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ms_swift_facts import CLASSES
from recipe.bash import run_bash, write_programs
from recipe.test_rules import SWIFT
from support.command_line import vlrft

from swift_vlrft.recipe import gpus, tree
from swift_vlrft.recipe.by_bash import run_recipes
from swift_vlrft.recipe.facts import OF_OTHERS, OLD_FLAGS, facts
from swift_vlrft.recipe.reader import read_recipes, read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.rules.clashes import STATES, TABLE
from swift_vlrft.recipe.run import resolve

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").rglob("*.sh"))
of_ours = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
NEEDED = {"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a"}
GOOD = f"{SWIFT} "
NOT_HERE = {"detection_qlora_1x24g": "not-installed"} if not find_spec("bitsandbytes") else {}


@pytest.fixture(autouse=True)
def no_gpu_of_this_machine(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def rules_of(text, rule, **environment):
    recipes = read_text(text, environment=environment)
    return [f for recipe in recipes for f in check_recipe(resolve(recipe)) if f.rule == rule]


# Our recipes --------------------------------------------------------------------------------------


@pytest.mark.slow
@of_ours
def test_our_recipes_read_as_bash_runs_them_and_have_no_problem(path, tmp_path):
    """The GPUs of each process above all: the first NPROC_PER_NODE, or what the caller names."""
    write_programs(tmp_path / "programs", ["swift"])
    callers = {"a": {}, "b": {"NPROC_PER_NODE": "2"}, "c": {"CUDA_VISIBLE_DEVICES": ""}}
    for name, caller in callers.items() if not path.name.startswith("demo_") else ():
        (tmp_path / name).mkdir()
        variables = (
            NEEDED | {"PLUGIN": "p", "CALLS": "2" if "server" in path.stem else "1"} | caller
        )
        calls, _ = run_bash(path, tmp_path / "programs", tmp_path / name, variables)
        (call,) = [call for call in calls if call.words[0] in ("rlhf", "sft")]
        *rollouts, recipe = read_recipes(path, variables)
        *_, by_bash = run_recipes(path, variables)
        assert [(f.name, f.values, f.line) for f in by_bash.flags] == [
            (f.name, f.values, f.line) for f in recipe.flags
        ]
        words = [w for f in recipe.flags for w in (*([f"--{f.name}"] * bool(f.name)), *f.values)]
        assert [recipe.command[-1], *words] == call.words
        for variable in ("NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES", "MAX_PIXELS"):
            assert recipe.environment.get(variable) == call.environment.get(variable)
        count = int(recipe.environment["NPROC_PER_NODE"])
        first = "" if name == "c" and not rollouts else ",".join(map(str, range(count)))
        assert recipe.environment["CUDA_VISIBLE_DEVICES"] == first
        for rollout in rollouts:
            assert rollout.environment["CUDA_VISIBLE_DEVICES"] == f"{count},{count + 1}"
    shown = vlrft("check", "--json", path)
    # A variable that the recipe itself asks for; what the template writes before each completion;
    # bitsandbytes and kernels, which some recipes need, are in no requirements file.
    rules = {finding["rule"] for finding in json.loads(shown.output)["findings"]}
    assert rules <= {"needed", "response-prefix", "kernels"} | (
        {"not-installed"} & {NOT_HERE.get(path.stem)}
    )
    assert shown.exit_code == ("not-installed" in rules), shown.output


@of_ours
def test_our_recipes_keep_what_a_recipe_must(path):
    text = path.read_text()
    assert not re.search(r"/(home|root|Users)/|[A-Z]_(KEY|TOKEN)=", text)
    assert "set -euo pipefail" in text and text.rstrip().endswith('"$@"')
    if path.name.startswith("demo_"):
        return
    assert path.stat().st_mode & stat.S_IXUSR
    variables = NEEDED | {"MODEL": "m", "OUTPUT_DIR": "o", "NPROC_PER_NODE": "3"}
    (recipe,) = [r for r in read_recipes(path, variables) if r.trains]
    grpo = recipe.command[-1] == "rlhf"
    kept = {"model": "m", "output_dir": "o", "report_to": "tensorboard"}
    kept |= {"gradient_checkpointing": "true", "save_only_model": "no"}
    kept |= {} if "text" in path.name else {"vit_gradient_checkpointing": "true"}
    kept |= {"rlhf_type": "grpo", "log_completions": "true"} if grpo else {}
    kept |= {"num_generations_eval": "1"} if grpo else {}
    kept |= {} if grpo else {"eval_metric": recipe.get("metric_for_best_model")}
    assert {name: recipe.get(name, "no") for name in kept} == kept
    assert all(map(recipe.get, ("external_plugins", "seed", "save_steps")))
    assert {value.split(":")[0] for value in recipe.values("dataset")} == {"d"}  # several tasks
    assert "expandable_segments" in recipe.environment["PYTORCH_CUDA_ALLOC_CONF"]
    assert "temporal" not in path.name or recipe.environment["VIDEO_MAX_PIXELS"]
    # And a set to evaluate on, on fewer GPUs.
    more = ["--val_dataset", "v", "--eval_strategy", "steps"]
    more += ["--vllm_tensor_parallel_size", "1"] if grpo else []
    for processes in ({}, {"NPROC_PER_NODE": "2"}):
        (recipe,) = [r for r in read_recipes(path, NEEDED | processes, more) if r.trains]
        found = [f for f in check_recipe(resolve(recipe)) if f.rule != NOT_HERE.get(path.stem)]
        assert [f.text for f in found if f.level == PROBLEM] == []


# What ms-swift itself says ------------------------------------------------------------------------


def ms_swift_refuses(**values):
    """Whether ms-swift's own rule ends the run."""
    from swift.rlhf_trainers.args_mixin import RolloutTrainerArgumentsMixin

    unset = {"steps_per_generation": None, "generation_batch_size": None, "eval_strategy": "no"}
    try:
        RolloutTrainerArgumentsMixin._init_generation_batch_params(
            SimpleNamespace(**unset | values)
        )
    except ValueError:
        return True
    return False


OF_TRAINING = {
    **{"world_size": (1, 3), "per_device_train_batch_size": (1, 2)},
    **{"gradient_accumulation_steps": (1, 4), "num_generations": (2, 6, 8)},
    **{"steps_per_generation": (None, 2), "generation_batch_size": (None, 8, 24)},
}
OF_EVALUATION = {
    **{"world_size": (1, 4, 6), "per_device_eval_batch_size": (1, 2, 8), "val_dataset": ("v",)},
    **{"num_generations_eval": (None, 1, 2, 8), "per_device_train_batch_size": (8,)},
    **{"gradient_accumulation_steps": (1,), "num_generations": (8,), "eval_strategy": ("steps",)},
}


@pytest.mark.slow  # it imports ms-swift
@pytest.mark.parametrize(
    ("rule", "grid"), [("generation-batch", OF_TRAINING), ("eval-batch", OF_EVALUATION)]
)
def test_the_batch_rules_are_those_of_ms_swift(rule, grid):
    verdicts = []
    for sizes in itertools.product(*grid.values()):
        values = {name: size for name, size in zip(grid, sizes, strict=True) if size is not None}
        verdicts.append(ms_swift_refuses(**values))
        world = str(values.pop("world_size"))
        text = GOOD + " ".join(f"--{name} {value}" for name, value in values.items())
        assert bool(rules_of(text, rule, NPROC_PER_NODE=world)) == verdicts[-1], text
    assert 5 < sum(verdicts) < len(verdicts) - 5


def steps_of_a_trainer(rows, world, device, steps, accumulation, iterations, group):
    """By TRL's sampler, accelerate's shards of it and transformers' count of updates."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler
    from transformers import Trainer
    from trl.trainer.utils import RepeatSampler

    answers = world * device * steps
    sampler = RepeatSampler(range(rows), group, answers // group, iterations * steps)
    batches = BatchSamplerShard(BatchSampler(sampler, device * steps, False), world)
    trainer = Mock(get_sp_size=lambda: 1, num_examples=lambda loader: rows)
    arguments = Mock(max_steps=-1, num_train_epochs=3.0, gradient_accumulation_steps=accumulation)
    values = Trainer.set_initial_training_values(trainer, arguments, batches)
    return values[1], values[-1]


@pytest.mark.slow  # it imports TRL
def test_the_steps_of_an_epoch_are_those_of_ms_swift():
    from swift_vlrft.recipe.rules.batches import steps

    grid = itertools.product((7, 64, 101), (1, 2, 3), (2, 8), (1, 2, 3), (1, 2, 4), (1, 2), (2, 4))
    said = set()
    for rows, world, device, generation, accumulation, iterations, group in grid:
        text = (
            f"{GOOD} --per_device_train_batch_size {device} --num_generations {group} "
            f"--steps_per_generation {generation} --gradient_accumulation_steps {accumulation} "
            f"--num_iterations {iterations}"
        )
        answers = world * device * generation
        if answers % group or rows < answers // group:
            continue
        (recipe,) = read_text(text, environment={"NPROC_PER_NODE": str(world)})
        (found,) = steps(resolve(recipe), rows, rows)
        numbers = tuple(
            map(int, re.search(r": steps of an epoch (\d+), in all (\d+)", found.text).groups())
        )
        sizes = (rows, world, device, generation, accumulation, iterations, group)
        assert numbers == steps_of_a_trainer(*sizes), text
        said.add(numbers)
    assert len(said) > 30


@pytest.mark.slow  # it imports ms-swift
@pytest.mark.parametrize("engine", ["--deepspeed zero2", "--use_vllm true --vllm_mode colocate"])
def test_the_rule_of_visible_gpus_is_that_of_ms_swift(monkeypatch, engine):
    from swift.utils import env

    text = f"{GOOD} --per_device_train_batch_size 1 --gradient_accumulation_steps 24 {engine}"
    for cards, processes in itertools.product((0, 1, 2, 3, 4, 6, 8), ("1", "3", "4")):
        monkeypatch.setattr("swift.utils.get_device_count", lambda cards=cards: cards)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(cards)))}
        findings = rules_of(text, "visible-gpus", NPROC_PER_NODE=processes, **variables)
        try:
            ends = env.is_mp()
        except AssertionError as error:
            assert str(error) in findings[0].text
            ends = True
        assert [f.level for f in findings] == [PROBLEM] * ends


def test_a_machine_without_a_driver_shows_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for script, count in (("printf 'A, 81920, 5\\nA, [N/A], 5\\n'", 2), ("exit 9", None)):
        write_programs(tmp_path, ["nvidia-smi"], f"#!/bin/sh\n{script}\n")
        gpus.installed_gpus.cache_clear()
        with nullcontext() if count else pytest.raises(OSError, match="nvidia-smi fails"):
            assert len(gpus.installed_gpus()) == count
    gpus.installed_gpus.cache_clear()


def test_the_table_of_old_flags_is_true_of_this_ms_swift():
    flags = facts().flags("rlhf")
    every = {name for command in CLASSES for name in facts().flags(command)}
    assert sorted(set(OLD_FLAGS) & set(flags)) == []
    assert [old.now for old in OLD_FLAGS.values() if old.now and old.now not in every] == []
    assert {meant.split()[0] for meant in OF_OTHERS.values()} <= set(flags)


def test_the_table_of_clashes_names_flags_that_there_are():
    asked = {name for rows in TABLE.values() for row in rows for name in row.when}
    assert asked <= {*(flags := facts().commands), *STATES, *facts().variables}
    assert [r for r in TABLE["idle"] if not any(re.fullmatch(r.flag, f) for f in flags)] == []


@pytest.mark.slow
def test_16_bits_lose_a_step_of_1e_6_and_the_weight_sync_makes_lora_weights_16_bit():
    """Why the notes are there: AdamW on bfloat16 weights of a usual size stands still; ms-swift's
    weight sync calls what peft has.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    for dtype, moves in ((torch.bfloat16, False), (torch.float32, True)):
        weight = torch.nn.Parameter(torch.full((100,), 0.02, dtype=dtype))
        before, weight.grad = weight.detach().clone(), torch.ones_like(weight)
        optimizer = torch.optim.AdamW([weight], lr=1e-6, weight_decay=0.0)
        for _ in range(20):
            optimizer.step()
        assert bool((weight != before).any()) == moves
    base = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False)).to(torch.bfloat16)
    model = get_peft_model(base, LoraConfig(target_modules=["0"]))
    (layer,) = [m for m in model.modules() if hasattr(m, "lora_A")]
    assert layer.lora_A["default"].weight.dtype == torch.float32
    layer._move_adapter_to_device_of_base_layer("default")
    assert layer.lora_A["default"].weight.dtype == torch.bfloat16


# The command --------------------------------------------------------------------------------------


def test_fix_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "old.sh"
    path.write_text(old := "swift rlhf --rlhf_type grpo --train_type lora\n")
    refused = PermissionError(13, "Permission denied", str(path))
    monkeypatch.setattr("swift_vlrft.recipe.fix.write_fixed", Mock(side_effect=refused))
    shown = vlrft("check", "--fix", path)
    assert shown.exit_code == 2 and "Permission denied" in shown.output
    assert path.read_text() == old


def test_exit_codes_and_several_recipes(tmp_path, monkeypatch):
    bad, none = tmp_path / "bad.sh", tmp_path / "none.sh"
    bad.write_text(f"export WANDB_API_KEY=1234567890abcdef\n{GOOD} --hub_token hf_topsecret\n")
    assert vlrft("check", RECIPES[0]).exit_code == 0
    assert vlrft("check", GOOD + "--tuner_typ lora").exit_code == 0  # a note
    longer_than_a_file_name = GOOD + "--lora_rank 0 " + "--temperature 0.9 " * 30
    assert vlrft("check", longer_than_a_file_name).exit_code == 1
    shown = vlrft("check", RECIPES[0], bad)
    assert shown.exit_code == 1
    assert "WANDB_API_KEY" in shown.output and "--hub_token" in shown.output
    assert "1234567890abcdef" not in shown.output and "hf_topsecret" not in shown.output
    shown = vlrft("check", "--json", bad, none)
    assert shown.exit_code == 2 and none.name in json.loads(shown.output)["unreadable"][0]
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    tree.shfmt.cache_clear()
    shown = vlrft("check", GOOD + "--run_name another")
    tree.shfmt.cache_clear()
    assert shown.exit_code == 2 and "shfmt-py" in shown.output  # which parses scripts
