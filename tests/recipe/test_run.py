"""A recipe as resolved: the same values as ms-swift's own argument class, or none at all."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest
from ms_swift_facts import CLASSES
from msgspec.structs import replace
from support.swift_run import REPOSITORY, run_python

from swift_vlrft.files import environment
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.settings import parse_gpus
from swift_vlrft.recipe import facts as ms_swift
from swift_vlrft.recipe.reader import read_recipes, read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe, text
from swift_vlrft.recipe.rules.batches import BATCHES
from swift_vlrft.recipe.rules.clashes import clashes
from swift_vlrft.recipe.run import DECIDED, NotKnown, NotTaken, resolve

DEV = str(REPOSITORY / "dev")
OF_OURS = [
    path
    for path in sorted(REPOSITORY.glob("recipes/*/*.sh"))
    if not {"sft", "server"} & {*path.stem.split("_")}  # ms-swift waits for a server
]
GRPO = "swift rlhf --rlhf_type grpo --reward_funcs format --dataset d --model Qwen/Qwen2.5-VL-3B "


def run_of(text, **variables):
    (recipe,) = read_text(text, environment=variables)
    return resolve(recipe)


ROWS = [json.loads(line) for line in Path(__file__).with_name("values.jsonl").open()]
"""``flags``: are read as ms-swift reads them, or ``refused`` as it refuses them; ``planned``: what
the planner makes of them.
"""
FLAGS = [row for row in ROWS if "planned" not in row]
REFUSING = (*BATCHES, clashes, text.named_values, text.values)
PLANNED = [row for row in ROWS if "planned" in row]
COMPARED = {*DECIDED, "freeze_vit", "use_vllm", "offload_model", "num_generations", "tuner_type",
            "per_device_train_batch_size", "gradient_checkpointing", "lora_rank", "lora_dropout",
            "temperature", "vllm_mode", "save_strategy", "optim", "max_pixels"}  # fmt: skip

ASK = """
import contextlib, json, os, sys
os.environ["LOG_LEVEL"] = "ERROR"
with contextlib.redirect_stdout(sys.stderr):
    import swift.arguments
    from swift.utils.utils import _patch_get_type_hints
    sys.path.append(sys.argv[3])
    from ms_swift_facts import as_text, read_facts
    from transformers import HfArgumentParser
    facts = as_text(read_facts())
    with _patch_get_type_hints():
        parser = HfArgumentParser([swift.arguments.RLHFArguments])
    answers = []
    for argv in json.loads(sys.argv[1]):
        try:
            arguments = parser.parse_args_into_dataclasses(argv)[0]
        except (AssertionError, NotImplementedError, ValueError) as error:
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
    fixed += " --add_version false --use_cpu true"
    lines = [f"{fixed} --torch_dtype float32 --fp16 false {row['flags']}" for row in FLAGS]
    alone = f"{fixed} --vllm_tensor_parallel_size 1 --gradient_accumulation_steps 8"
    lines += [f"{flags_of(path)} {alone}" for path in OF_OURS]
    rows = [*FLAGS, *({"why": path.stem} for path in OF_OURS)]
    words, compared = json.dumps([*map(shlex.split, lines)]), json.dumps([*COMPARED])
    done = run_python(ASK, words, compared, DEV)
    assert done.returncode == 0, done.stderr[-3000:]
    answers, read = json.loads(done.stdout.strip().splitlines()[-1])
    return list(zip(rows, lines, answers, strict=True)), read


def flags_of(path):
    """The flags of a recipe of ours that trains by reinforcement."""
    needed = {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    (recipe,) = [recipe for recipe in read_recipes(path, needed) if recipe.trains]
    words = [(f"--{flag.name}", *flag.values) for flag in recipe.flags]
    return " ".join(map(shlex.join, words))


@pytest.mark.slow
def test_every_value_is_what_ms_swift_makes_of_it(ms_swift_says):
    for row, line, values in ms_swift_says[0]:
        run = run_of(f"swift rlhf {line} --reward_funcs format")
        problems = {f.text for f in check_recipe(run, REFUSING) if f.level == PROBLEM}
        assert bool(problems) == isinstance(values, str) == row.get("refused", False), row
        if not problems:
            assert {name: run.read(name) for name in COMPARED} == values, line


@pytest.mark.slow
def test_the_shipped_facts_are_those_of_this_ms_swift(ms_swift_says):
    texts = (ms_swift.SHIPPED.read_text(), ms_swift_says[1])
    shipped, read = (msgspec.json.decode(text, type=ms_swift.Facts) for text in texts)
    if ms_swift.installed_versions() != shipped.versions:
        pytest.skip("the shipped facts are of other versions than those installed")
    for command in CLASSES:
        assert shipped.flags(command) == read.flags(command)
    assert replace(shipped, commands={}) == replace(read, commands={})


def test_other_versions_than_the_tested_ones_are_said(monkeypatch):
    versions = ms_swift.facts().versions | {"ms-swift": "9.9"}
    monkeypatch.setattr(ms_swift, "installed_versions", lambda: versions)
    facts = ms_swift.facts.__wrapped__()
    assert facts.note.endswith("; installed: ms-swift 9.9") and "trl" not in facts.note
    noted = resolve(read_text(GRPO, environment={})[0], facts)
    assert facts.note in {found.text for found in check_recipe(noted)}


def test_a_value_that_is_not_known_raises_where_it_is_read():
    more = "--beta $(x) --temperature warm --val_dataset v --save_strategy $(y)"
    run = run_of(f"export NNODES=$(n)\n{GRPO}{more}")
    for name, said in (("beta", "--beta"), ("eval_strategy", "--save_strategy")):
        with pytest.raises(NotKnown, match=f"command:2: {said}"):
            run.read(name)
    with pytest.raises(NotTaken, match="command:2: --temperature warm"):
        run.number("temperature")
    with pytest.raises(NotKnown, match="NNODES"):
        _ = run.processes
    assert run.integer("num_generations") == 8


@pytest.mark.parametrize("row", PLANNED, ids=lambda row: row["why"])
def test_the_planner_reads_a_value_as_the_rules_do(row):
    settings = settings_of(run_of(f"{GRPO} {row['flags']}"), parse_gpus("1x80"))
    assert {name: getattr(settings, name) for name in row["planned"]} == row["planned"]


def test_a_variable_says_yes_as_flags_do():
    said = {"t": 1, "yes": 1, "True": 1, "1": 1, "": 0, "false": 0, "No": 0, "0": 0, "off": 0}
    name = "VLRFT_TRACK_MEMORY"
    assert all(environment.is_on(name, {name: word}) == on for word, on in said.items())
