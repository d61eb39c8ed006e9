"""A recipe as resolved: the same values as ms-swift's own argument class, or none at all."""

import json

import pytest
from msgspec.structs import replace
from support.swift_run import run_python

from swift_vlrft.files import environment
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.settings import parse_gpus
from swift_vlrft.recipe import facts as ms_swift
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.run import DECIDED, NotKnown, NotTaken, resolve

GRPO = "swift rlhf --rlhf_type grpo --reward_funcs format --dataset d --model Qwen/Qwen2.5-VL-3B "


def run_of(text, **variables):
    (recipe,) = read_text(text, environment=variables)
    return resolve(recipe)


def settings(more, gpus="1x80"):
    return settings_of(run_of(GRPO + more), parse_gpus(gpus))


PAIRS = "--rlhf_type grpo --num_generations 2"
EIGHT = "--rlhf_type grpo --per_device_train_batch_size 8"
FLAGS = [
    # Accumulation or devices, saving or evaluation, sets, training: each pair of choices.
    f"{PAIRS} --gradient_accumulation_steps 4 --tuner_type full",
    f"{PAIRS} --per_device_train_batch_size 4 --save_strategy no --val_dataset v"
    " --num_generations_eval 1 --tuner_type full",
    f"{PAIRS} --gradient_accumulation_steps 4 --eval_strategy no --split_dataset_ratio 0.1"
    " --gradient_checkpointing f --beta 0 --no_freeze_vit",
    f"{PAIRS} --per_device_train_batch_size 4 --eval_strategy epoch --gradient_checkpointing f"
    " --beta 0 --no_freeze_vit",
    f"{PAIRS} --gradient_accumulation_steps 4 --eval_strategy epoch --val_dataset v"
    " --num_generations_eval 1",
    f"{PAIRS} --per_device_train_batch_size 4 --split_dataset_ratio 0.1",  # refused
    f"{PAIRS} --gradient_accumulation_steps 4 --val_dataset v",  # refused
    f"{PAIRS} --gradient_accumulation_steps 4 --val_dataset v --save_strategy no",
    f"{PAIRS} --per_device_train_batch_size 3",  # refused
    "--rlhf_type dpo --gradient_accumulation_steps 4 --eval_strategy epoch --tuner_type full",
    "--rlhf_type dpo --per_device_train_batch_size 4 --val_dataset v --eval_strategy no",
    "--rlhf_type dpo --split_dataset_ratio 0.1 --save_strategy no --no_freeze_vit",
    "--rlhf_type dpo --val_dataset v --gradient_checkpointing f --beta 0",
    f"{EIGHT} --learning_rate 1e-3 --vit_gradient_checkpointing no",
    f"{EIGHT} --sleep_level 1 --vllm_tensor_parallel_size 2",
    f"{EIGHT} --use_vllm t --vllm_mode colocate --sleep_level 1",
    f"{EIGHT} --use_vllm Y --vllm_mode colocate --truncation_strategy delete",
    f"{EIGHT} --max_new_tokens 77",
    f"{EIGHT} --response_length 78 --offload_model",
    "--rlhf_type kto --freeze_vi 0 --num_generations 4 --num-generations 16",
]
COMPARED = {*DECIDED, "freeze_vit", "use_vllm", "offload_model", "num_generations", "tuner_type",
            "per_device_train_batch_size", "gradient_checkpointing", "lora_rank", "lora_dropout",
            "temperature", "vllm_mode", "save_strategy", "optim", "max_pixels"}  # fmt: skip

ASK = """
import contextlib, json, os, sys
os.environ["LOG_LEVEL"] = "ERROR"
with contextlib.redirect_stdout(sys.stderr):
    import swift.arguments
    from swift.utils.utils import _patch_get_type_hints
    from swift_vlrft.swift_plugin.facts import as_text, read_facts
    from transformers import HfArgumentParser
    facts = as_text(read_facts())
    with _patch_get_type_hints():
        parser = HfArgumentParser([swift.arguments.RLHFArguments])
    answers = []
    for argv in json.loads(sys.argv[1]):
        try:
            arguments = parser.parse_args_into_dataclasses(argv)[0]
        except ValueError as error:
            answers.append(str(error))
        else:
            values = {name: getattr(arguments, name) for name in json.loads(sys.argv[2])}
            for name in [name for name in values if values[name] is None]:
                values[name] = getattr(arguments.training_args, name, None)
            answers.append(values)
print(json.dumps([answers, facts]))
"""


@pytest.fixture(scope="module")
def ms_swift_says(tmp_path_factory):
    """What ms-swift makes of each line of flags (values, or an error), and the facts of it."""
    from swift_vlrft.tiny.checkpoint import write_tiny

    folder = tmp_path_factory.mktemp("ms_swift")
    write_tiny("qwen2_vl", folder / "model")
    fixed = f"--model {folder / 'model'} --dataset d --output_dir {folder / 'out'}"
    fixed += " --add_version false --use_cpu true --torch_dtype float32 --fp16 false"
    lines = [f"{fixed} {flags}" for flags in FLAGS]
    done = run_python(ASK, json.dumps([line.split() for line in lines]), json.dumps([*COMPARED]))
    assert done.returncode == 0, done.stderr[-3000:]
    answers, read = json.loads(done.stdout.strip().splitlines()[-1])
    return list(zip(lines, answers, strict=True)), read


@pytest.mark.slow
def test_every_value_is_what_ms_swift_makes_of_it(ms_swift_says):
    compared = 0
    for line, values in ms_swift_says[0]:
        run = run_of(f"swift rlhf {line} --reward_funcs format")
        problems = {f.text for f in check_recipe(run, BATCHES) if f.level == PROBLEM}
        if isinstance(values, dict):
            assert {name: run.read(name) for name in COMPARED} == values, line
            assert not problems, line
            compared += 1
        else:
            assert problems, (line, values)
    assert compared == len(FLAGS) - 3


@pytest.mark.slow
def test_the_shipped_facts_are_those_of_this_ms_swift(ms_swift_says):
    shipped = ms_swift.SHIPPED.read_text()
    if ms_swift.installed_versions() != json.loads(shipped)["versions"]:
        pytest.skip("the shipped facts are of other versions than those installed")
    assert without_megatron(ms_swift_says[1]) == without_megatron(shipped)


def without_megatron(text: str) -> dict:
    """Its flags are known where Megatron-Core is: end_to_end/test_ray_and_megatron.py."""
    facts = json.loads(text)
    for name, kinds in [*facts["commands"].items()]:
        others = {
            " ".join(word for word in commands.split() if not word.startswith("megatron-")): flag
            for commands, flag in kinds.items()
        }
        others.pop("", None)
        facts["commands"] |= {name: others}
    facts["commands"] = {name: kinds for name, kinds in facts["commands"].items() if kinds}
    return facts


def test_other_versions_are_asked_once(tmp_path, monkeypatch):
    versions = {"ms-swift": "9.9", "trl": "1", "transformers": "2"}
    data = json.loads(ms_swift.SHIPPED.read_bytes()) | {"versions": versions, "rewards": ["new"]}
    asked = []

    def ask():
        asked.append(1)
        return data

    def refuse():
        raise OSError("ImportError: no torch")

    monkeypatch.setattr(ms_swift, "installed_versions", lambda: versions)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ms_swift, "_from_ms_swift", refuse)
    find = ms_swift.facts.__wrapped__
    for ask_it, said in ((True, "not read (ImportError: no torch); "), (False, "not imported); ")):
        assert said in find(ask_it).note and find(ask_it).rewards != ["new"]
    monkeypatch.setattr(ms_swift, "_from_ms_swift", ask)
    assert [find().rewards for _ in range(3)] == [["new"]] * 3 and len(asked) == 1
    (kept,) = (tmp_path / "swift_vlrft" / "facts").iterdir()
    kept.write_text("{")
    assert find().rewards == ["new"] and len(asked) == 2
    noted = resolve(read_text(GRPO, environment={})[0], replace(find(), note="of another"))
    assert "of another" in {found.text for found in check_recipe(noted)}


def test_where_a_value_comes_from():
    run = run_of(GRPO.replace(" --model", " \\\n --model") + "--beta 0.1")
    assert (run.setting("beta").value, run.setting("beta").source) == (0.1, "line 2")
    assert run.setting("lora_rank").source == "default"
    assert run.setting("gradient_accumulation_steps").source.startswith("GRPO")
    assert set(run.settings) == set(ms_swift.facts().flags("rlhf"))
    old = run_of("swift rlhf --train_type full --gpu_memory_utilization 0.3 --tuner_backen unsloth")
    assert [old.text("tuner_type"), old.number("vllm_gpu_memory_utilization")] == ["full", 0.3]
    assert old.text("tuner_backend") == "unsloth"


def test_a_value_that_is_not_known_raises_where_it_is_read():
    run = run_of(GRPO + "--beta $(x) --temperature warm --val_dataset v --save_strategy $(y)")
    for name in ("beta", "eval_strategy"):
        with pytest.raises(NotKnown, match=f"--{name}|--save_strategy"):
            run.read(name)
    with pytest.raises(NotTaken, match="command:1: --temperature warm"):
        run.number("temperature")
    assert run.integer("num_generations") == 8
    with pytest.raises(NotKnown, match="NNODES"):
        _ = run_of("export NNODES=$(n)\n" + GRPO).processes


# Three readings of one recipe that had come apart -------------------------------------------------


def test_accumulation_is_one_for_grpo_and_every_room_says_so():
    more = "--per_device_train_batch_size 1"
    planned = settings_of(run_of("export NPROC_PER_NODE=4\n" + GRPO + more), parse_gpus("4x80"))
    assert (planned.accumulation, planned.generated_at_once) == (1, 1)
    (recipe,) = read_text(GRPO + more, environment={"NPROC_PER_NODE": "4"})
    assert "generation-batch" in {finding.rule for finding in check_recipe(recipe)}


@pytest.mark.parametrize("word", ["t", "yes", "True", "1", ""])
def test_a_switch_is_on_in_every_room(word):
    assert settings(f"--use_vllm {word} --vllm_mode colocate").rollout == "vllm_colocate"
    rules = {found.rule for found in check_recipe(run_of(GRPO + f"--use_vllm {word}"))}
    assert "vllm-mode" in rules
    assert environment.is_on("VLRFT_TRACK_MEMORY", {"VLRFT_TRACK_MEMORY": word}) == bool(word)


@pytest.mark.parametrize("word", ["false", "No", "0", "off", ""])
def test_a_variable_that_says_no_is_off(word):
    for name in ("VLRFT_TRACK_MEMORY", "VLRFT_SHARED_PREFIX"):
        assert not environment.is_on(name, {name: word})
    if word not in ("off", ""):
        assert settings(f"--freeze_vit {word}").train_vit


def test_evaluation_follows_the_saving():
    assert settings("--val_dataset v").eval_batch == 1
    assert settings("--val_dataset v --save_strategy no").eval_batch == 0
    assert settings("--val_dataset v --save_strategy no --eval_strategy steps").eval_batch == 1
    assert settings("").eval_batch == 0
    uneven = GRPO + "--val_dataset v --per_device_eval_batch_size 3 --save_strategy "
    for strategy, found in (("no", False), ("steps", True)):
        rules = {one.rule for one in check_recipe(run_of(uneven + strategy))}
        assert ("eval-batch" in rules) == found


def test_every_variable_of_ours_is_in_one_table():
    import re
    from pathlib import Path

    package = Path(environment.__file__).parents[1]
    texts = [path.read_text() for path in package.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"\bVLRFT_[A-Z_]+[A-Z]\b", text)}
    assert named == set(environment.VARIABLES)
