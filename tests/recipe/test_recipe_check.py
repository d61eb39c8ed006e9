"""`vlrft check` says what ms-swift would have said later; every recipe of ours passes."""

import itertools
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from recipe.bash import run_bash, write_programs
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.recipe import gpus
from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.history import NEW_DEFAULTS, OLD_FLAGS, OLD_MEGATRON_FLAGS
from swift_vlrft.recipe.reader import read_recipes, read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.shell import tree
from swift_vlrft.swift_plugin.facts import CLASSES, OF_MEGATRON

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").rglob("*.sh"))
PLUGIN = '"$(vlrft plugin)"'
GOOD = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --max_pixels 401408 "
    f"--dataset laolao77/ViRFT_CLS_flower_4_shot --external_plugins {PLUGIN} "
    "--reward_funcs vlrft_classification --per_device_train_batch_size 8 "
)


@pytest.fixture(autouse=True)
def no_gpu_of_this_machine(monkeypatch):
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def rules_of(text, rule, **environment):
    recipes = read_text(text, environment=environment)
    return [f for recipe in recipes for f in check_recipe(recipe) if f.rule == rule]


def run(*arguments, **environment):
    return CliRunner().invoke(app, ["check", *map(str, arguments)], env=environment)


# Our recipes --------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """The training command of a recipe: as bash runs it, and as we read it."""
    programs, count = tmp_path / "programs", itertools.count()
    write_programs(programs, ["swift"])

    def trained(path, **variables):
        here = tmp_path / f"run{next(count)}"
        here.mkdir()
        needed = {"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a", "PLUGIN": "p"} | variables
        needed |= {"CALLS": "2"} if "server" in path.stem else {}
        calls, _ = run_bash(path, programs, here, needed)
        (call,) = [call for call in calls if call.words[0] in ("rlhf", "sft")]
        recipes = read_recipes(path, needed)
        (recipe,) = [recipe for recipe in recipes if recipe.trains]
        return call, recipe, [recipe for recipe in recipes if not recipe.trains]

    return trained


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_recipes_read_as_bash_runs_them_and_have_no_problem(path, trained):
    """The GPUs of each process above all: the first NPROC_PER_NODE, or what the caller names."""
    callers = ({}, {"NPROC_PER_NODE": "2"}, {"CUDA_VISIBLE_DEVICES": ""})
    for variables in callers if path.name != "demo_cpu.sh" else ():
        call, recipe, rollouts = trained(path, **variables)
        words = [w for f in recipe.flags for w in (*([f"--{f.name}"] * bool(f.name)), *f.values)]
        assert [recipe.command[-1], *words] == call.words
        for name in ("NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES", "MAX_PIXELS"):
            assert recipe.environment.get(name) == call.environment.get(name)
        count = recipe.environment["NPROC_PER_NODE"]
        named = "server" in path.stem or "CUDA_VISIBLE_DEVICES" not in variables
        first = ",".join(map(str, range(int(count)))) if named else ""
        assert recipe.environment["CUDA_VISIBLE_DEVICES"] == first
        for rollout in rollouts:
            after = f"{count},{int(count) + 1}"
            assert rollout.environment["CUDA_VISIBLE_DEVICES"] == after
    shown = run("--json", path)
    assert shown.exit_code == 0, shown.output
    # A variable that the recipe itself asks for; what the template writes before each completion.
    rules = {finding["rule"] for finding in json.loads(shown.output)["findings"]}
    assert rules <= {"needed", "response-prefix"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_recipes_keep_what_a_recipe_must(path):
    text = path.read_text()
    assert not re.search(r"/home/|/root/|/Users/|[A-Z]_(KEY|TOKEN)=", text)
    assert "set -euo pipefail" in text and text.rstrip().endswith('"$@"')
    if path.name == "demo_cpu.sh":
        return
    assert path.stat().st_mode & stat.S_IXUSR
    variables = {"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a", "MODEL": "m"}
    variables |= {"OUTPUT_DIR": "o", "NPROC_PER_NODE": "3"}
    (recipe,) = [r for r in read_recipes(path, variables) if r.trains]
    named = {value.split(":")[0] for value in recipe.values("dataset")}  # or rows of several tasks
    assert (recipe.get("model"), named, recipe.get("output_dir")) == ("m", {"d"}, "o")
    assert recipe.environment["NPROC_PER_NODE"] == "3"
    assert recipe.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert recipe.get("external_plugins") and recipe.get("report_to") == "tensorboard"
    assert recipe.get("gradient_checkpointing") == "true"
    if recipe.command[-1] == "sft":
        assert recipe.get("eval_metric") == recipe.get("metric_for_best_model")
    else:
        assert recipe.get("rlhf_type") == "grpo" and recipe.get("log_completions") == "true"
        assert recipe.get("num_generations_eval") == "1"
    assert recipe.get("seed") and recipe.get("save_steps") and not recipe.flag("save_only_model")
    assert "expandable_segments" in recipe.environment["PYTORCH_CUDA_ALLOC_CONF"]
    if "text" not in path.name:
        assert recipe.get("vit_gradient_checkpointing") == "true"
    # Whose images no variable limits.
    fixed = ("glm_4v_9b", "cogagent_9b", "internvl3_5_4b", "gemma_4_e4b")
    if "text" not in path.name and path.parent.name not in fixed:
        assert recipe.environment["MAX_PIXELS"]
    head = " ".join(text.split("set -euo")[0].replace("\n#", " ").split())
    for word in ("GPU", "ms-swift 4.6.0", "memory ", "run bash", "smaller", "Not run on"):
        assert word in head
    # And a set to evaluate on, on fewer GPUs.
    more = ["--val_dataset", "v", "--eval_strategy", "steps"]
    if "sft" not in path.name:
        more += ["--vllm_tensor_parallel_size", "1"]
    for processes in ({}, {"NPROC_PER_NODE": "2"}):
        variables = {"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a", **processes}
        (recipe,) = [r for r in read_recipes(path, variables, more) if r.trains]
        assert [f.text for f in check_recipe(recipe) if f.level == PROBLEM] == []


# What ms-swift itself says ------------------------------------------------------------------------


def ms_swift_refuses(world, device, accumulation=1, group=8, **more):
    """Whether ms-swift's own rule ends the run."""
    from swift.rlhf_trainers.args_mixin import RolloutTrainerArgumentsMixin

    arguments = SimpleNamespace(
        **{"steps_per_generation": None, "generation_batch_size": None, "eval_strategy": "no"}
        | {"world_size": world, "per_device_train_batch_size": device, "num_generations": group}
        | {"gradient_accumulation_steps": accumulation}
        | more
    )
    try:
        RolloutTrainerArgumentsMixin._init_generation_batch_params(arguments)
    except ValueError:
        return True
    return False


def as_flags(values):
    return " ".join(f"--{name} {value}" for name, value in values.items() if value is not None)


@pytest.mark.slow  # it imports ms-swift
def test_the_batch_rules_are_those_of_ms_swift():
    verdicts = []
    grid = itertools.product((1, 3), (1, 2), (1, 4), (2, 6, 8), (None, 2), (None, 8, 24))
    for world, device, accumulation, group, steps, batch in grid:
        sizes = {"steps_per_generation": steps, "generation_batch_size": batch}
        text = (
            "swift rlhf --rlhf_type grpo --model m --dataset d --reward_funcs format "
            f"--per_device_train_batch_size {device} --num_generations {group} "
            f"--gradient_accumulation_steps {accumulation} {as_flags(sizes)}"
        )
        ours = rules_of(text, "generation-batch", NPROC_PER_NODE=str(world))
        verdicts.append(ms_swift_refuses(world, device, accumulation, group, **sizes))
        assert bool(ours) == verdicts[-1], text
    assert 20 < sum(verdicts) < len(verdicts) - 20


@pytest.mark.slow  # it imports ms-swift
def test_the_evaluation_batch_rule_is_that_of_ms_swift():
    verdicts = []
    for world, device, group in itertools.product((1, 4, 6), (1, 2, 8), (None, 1, 2, 8)):
        sizes = {"per_device_eval_batch_size": device, "num_generations_eval": group}
        text = GOOD + f"--val_dataset v {as_flags(sizes)}"
        ours = rules_of(text, "eval-batch", NPROC_PER_NODE=str(world))
        verdicts.append(ms_swift_refuses(world, 8, eval_strategy="steps", **sizes))
        assert bool(ours) == verdicts[-1], text
    assert 5 < sum(verdicts) < 30


@pytest.mark.slow  # it imports ms-swift
@pytest.mark.parametrize("engine", ["--deepspeed zero2", "--use_vllm true --vllm_mode colocate"])
def test_the_rule_of_visible_gpus_is_that_of_ms_swift(monkeypatch, engine):
    from swift.utils import env

    text = f"{GOOD} --per_device_train_batch_size 1 --gradient_accumulation_steps 24 {engine}"
    for cards, processes in itertools.product((0, 1, 2, 3, 4, 6, 8), (1, 3, 4)):
        monkeypatch.setattr("swift.utils.get_device_count", lambda cards=cards: cards)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        names = ",".join(map(str, range(cards)))
        variables = {"NPROC_PER_NODE": str(processes), "CUDA_VISIBLE_DEVICES": names}
        findings = rules_of(text, "visible-gpus", **variables)
        try:
            ends = env.is_mp()
        except AssertionError as error:
            assert str(error) in findings[0].text
            ends = True
        assert [f.level for f in findings] == [PROBLEM] * ends


def test_a_machine_without_a_driver_shows_no_gpu(monkeypatch, tmp_path):
    monkeypatch.undo()
    for script, count in (("printf 'A, 81920, 5\\nA, [N/A], 5\\n'", 2), ("exit 9", 0), (None, 0)):
        (tmp_path / "nvidia-smi").unlink(missing_ok=True)
        if script:
            write_programs(tmp_path, ["nvidia-smi"], f"#!/bin/sh\n{script}\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(tmp_path))
            gpus.installed_gpus.cache_clear()
            assert gpus.gpus_here() == count
    gpus.installed_gpus.cache_clear()


def test_the_table_of_old_flags_is_true_of_this_ms_swift():
    flags = facts().flags("rlhf")
    for table, commands in ((OLD_FLAGS, CLASSES), (OLD_MEGATRON_FLAGS, OF_MEGATRON)):
        every = {name for command in commands for name in facts().flags(command)}
        assert sorted(set(table) & (every if table is OLD_MEGATRON_FLAGS else set(flags))) == []
        assert [old.now for old in table.values() if old.now and old.now not in every] == []
    assert {name: flags[name].default for _, name, _, _ in NEW_DEFAULTS} == {
        "top_k": -1,
        "top_p": 1.0,
        "load_from_cache_file": False,
        "router_aux_loss_coef": 0.0,
        "split_dataset_ratio": 0.0,
        "truncation_strategy": None,
    }


def test_a_step_of_1e_6_is_lost_in_16_bits():
    """Why the note is there: AdamW on bfloat16 weights of a usual size stands still."""
    import torch

    for dtype, moves in ((torch.bfloat16, False), (torch.float32, True)):
        weight = torch.nn.Parameter(torch.full((100,), 0.02, dtype=dtype))
        before = weight.detach().clone()
        optimizer = torch.optim.AdamW([weight], lr=1e-6, weight_decay=0.0)
        for _ in range(20):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        assert bool((weight != before).any()) == moves


def test_the_weight_sync_makes_lora_weights_16_bit():
    """The reason for the other note, in peft, which ms-swift's weight sync calls."""
    import torch
    from peft import LoraConfig, get_peft_model

    base = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False)).to(torch.bfloat16)
    model = get_peft_model(base, LoraConfig(target_modules=["0"]))
    (layer,) = [m for m in model.modules() if hasattr(m, "lora_A")]
    assert layer.lora_A["default"].weight.dtype == torch.float32
    layer._move_adapter_to_device_of_base_layer("default")
    assert layer.lora_A["default"].weight.dtype == torch.bfloat16


# --fix --------------------------------------------------------------------------------------------

OLD = """\
NPROC_PER_NODE=4 \\
swift rlhf \\
    --rlhf_type grpo --train_type lora --model m \\
    --use_vllm true \\
    --num-infer-workers 2 \\
    --scale_rewards true \\
    --gpu_memory_utilization=0.5 \\
    --gc_collect_after_offload true
echo done
"""
NEW = """\
NPROC_PER_NODE=4 \\
swift rlhf \\
    --rlhf_type grpo --tuner_type lora --model m \\
    --use_vllm true \\
    --vllm_mode colocate \\
    --scale_rewards group \\
    --vllm_gpu_memory_utilization=0.5
echo done
"""


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("old.sh", OLD, NEW),
        (
            "old.yaml",
            "rlhf_type: grpo\ntrain_type: lora  # note\nuse_vllm: true  # fast\n"
            "scale_rewards: true  # why\nvllm_device: auto\n",
            "rlhf_type: grpo\ntuner_type: lora  # note\nuse_vllm: true  # fast\n"
            "vllm_mode: colocate\nscale_rewards: group  # why\n",
        ),
        (
            "old.json",
            '{\n  "rlhf_type": "grpo",\n  "use_vllm": "true",\n  "beta": 0\n}\n',
            '{\n  "rlhf_type": "grpo",\n  "use_vllm": "true",\n  "vllm_mode": "colocate",\n'
            '  "beta": 0\n}\n',
        ),
    ],
)
def test_fix_rewrites_what_it_knows(name, before, after, tmp_path):
    path = tmp_path / name
    path.write_text(before)
    path.chmod(0o755)
    shown = run("--fast", "--fix", path)
    assert "vllm_mode" in shown.output  # the difference
    assert path.read_text() == after and path.stat().st_mode & stat.S_IXUSR
    assert (tmp_path / f"{name}.orig").read_text() == before
    run("--fast", "--fix", path)
    assert path.read_text() == after


def test_fix_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "old.sh"
    path.write_text(OLD)

    def refused(path, text):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("swift_vlrft.recipe.fix.write_fixed", refused)
    shown = run("--fast", "--fix", path)
    assert shown.exit_code == 2 and "Permission denied" in shown.output
    assert path.read_text() == OLD


# The command --------------------------------------------------------------------------------------


def test_exit_codes_and_several_recipes(tmp_path):
    bad = tmp_path / "bad.sh"
    bad.write_text(GOOD + "--train_type lora\n")
    assert run("--fast", RECIPES[0]).exit_code == 0
    assert run("--fast", GOOD + "--tuner_typ lora").exit_code == 0  # a note
    assert run("--fast", RECIPES[0], bad).exit_code == 1
    shown = run("--fast", "--json", bad, tmp_path / "none.sh")
    assert shown.exit_code == 2
    said = json.loads(shown.output)
    rules = [finding["rule"] for finding in said["findings"] if finding["level"] == PROBLEM]
    assert rules == ["removed-flag"] and "none.sh" in said["unreadable"][0]


def test_a_secret_is_never_shown(tmp_path):
    recipe = tmp_path / "r.sh"
    recipe.write_text(f"export WANDB_API_KEY=1234567890abcdef\n{GOOD} --hub_token hf_topsecret\n")
    shown = run("--fast", recipe)
    assert shown.exit_code == 1
    assert "WANDB_API_KEY" in shown.output and "--hub_token" in shown.output
    assert "1234567890abcdef" not in shown.output and "hf_topsecret" not in shown.output


def test_the_program_that_parses_scripts_is_missing(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    tree.shfmt.cache_clear()
    shown = run("--fast", GOOD + "--run_name another")
    tree.shfmt.cache_clear()
    assert shown.exit_code == 2 and "shfmt-py" in shown.output


def test_a_command_longer_than_a_file_name():
    command = GOOD.replace(PLUGIN, "none.py") + "--temperature 0.9 " * 30
    shown = run("--fast", "--json", command)
    assert [f["rule"] for f in json.loads(shown.output)["findings"]] == ["plugin"]


def test_the_command_imports_neither_swift_nor_torch():
    heavy = ("swift", "torch", "transformers", "vllm", "datasets", "pyarrow", "numpy", "PIL")
    code = (
        "import sys\n"
        f"sys.argv = ['vlrft', 'check', {str(RECIPES[1])!r}]\n"
        "from swift_vlrft.cli import app\n"
        "try: app()\n"
        f"except SystemExit: print([m for m in {heavy} if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.splitlines()[-1] == "[]"
