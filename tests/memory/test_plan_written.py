"""What `vlrft plan` takes, writes and advises; `vlrft check` finds nothing in what it wrote."""

import itertools
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import vlrft

from swift_vlrft.memory.activations import training_passes
from swift_vlrft.memory.advice import advise, changes
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import as_written, changed, settings_of
from swift_vlrft.memory.models import read_model
from swift_vlrft.memory.settings import parse_gpus
from swift_vlrft.memory.states import adapters
from swift_vlrft.recipe.reader import only, read_recipes
from swift_vlrft.recipe.rules import PROBLEM, check_recipe
from swift_vlrft.recipe.run import read_run, resolve

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = sorted((REPOSITORY / "recipes").glob("*/*.sh"))
MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
MODELS = (
    "Qwen/Qwen2-VL-2B-Instruct",
    MODEL,
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-VL-4B-Instruct",
    "zai-org/GLM-4.1V-9B-Thinking",
)
GPUS = ("1x16", "1x24", "1x48", "1x80", "2x24", "2x80", "4x48", "6x40", "8x80")
TASKS = ("detection", "grounding", "classification", "counting")
REFUSED = list(map(json.loads, Path(__file__).with_name("refused.jsonl").open()))


@pytest.fixture(autouse=True)
def no_gpu_of_this_machine(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def new_recipe(out, *more, model=MODEL, gpus="1x80"):
    return vlrft("recipe", "new", out, "--model", model, "--gpus", gpus, *more)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_what_write_writes_passes_check_fits_and_learns(model, tmp_path):
    """Every second size of GPU for each model, with one task after the other."""
    written, first = 0, MODELS.index(model)
    for n, gpus in enumerate(GPUS[first % 2 :: 2]):
        out, task = tmp_path / f"{gpus}.sh", TASKS[(first + n) % len(TASKS)]
        done = new_recipe(out, "--task", task, model=model, gpus=gpus)
        if done.exit_code == 2:
            assert "does not fit" in done.output and not out.exists()
            continue
        written += 1
        assert done.exit_code == 0, done.output
        run = read_run(out, {"DATASET": "d"})
        recipe = run.recipe
        assert estimate(settings_of(run, parse_gpus(gpus))).fits
        assert check_recipe(run) == []
        # docs/reference/troubleshooting.md: 1e-6 for all weights, 1e-5 for LoRA; DeepSpeed keeps
        # 32 bits, so that small steps count and a LoRA run can go on from a checkpoint.
        rates = {"full": 1e-6, "lora": 1e-5}
        assert float(recipe.get("learning_rate")) == rates[recipe.get("tuner_type")]
        assert recipe.get("deepspeed") and recipe.get("torch_dtype") == "bfloat16"
        assert recipe.get("save_steps") and not recipe.flag("save_only_model")
        rewards = recipe.values("reward_funcs")
        assert f"vlrft_{task}" in rewards[0] and rewards[-1].endswith("_format")
    assert written >= 2


@pytest.mark.parametrize("task", ["pointing", "number", "ocr", "list", "ordering"])
def test_a_recipe_for_every_other_task(task, tmp_path):
    out = tmp_path / "new.sh"
    assert new_recipe(out, "--task", task).exit_code == 0
    recipe = read_run(out, {"DATASET": "d"}).recipe
    assert check_recipe(resolve(recipe)) == [] and f"vlrft_{task}" in recipe.values("reward_funcs")
    assert (":pixels" in out.read_text()) == (task == "pointing")  # as the model was trained
    assert int(recipe.get("max_completion_length")) >= (1024 if task == "ocr" else 512)


PIXELS = "export MAX_PIXELS=${MAX_PIXELS:-401408}"
COLOCATED = "--use_vllm true --vllm_mode colocate --num_generations 8"


def written_recipe(folder, more, *, before=PIXELS):
    path = folder / "run.sh"
    command = f"swift rlhf --rlhf_type grpo --model {MODEL} --reward_funcs format {more}"
    path.write_text(f'{before}\n{command} "$@"\n')
    return path


def settings_with(folder, more, *, gpus="1x80", **given):
    return settings_of(read_run(written_recipe(folder, more, **given), {}), parse_gpus(gpus))


def test_what_is_no_value_is_refused_in_one_line(tmp_path, monkeypatch):
    """refused.jsonl: the line above the command, its flags, and where the message says it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    wrong = []
    for row in REFUSED:
        more, message = row["more"].replace("NINES", "9" * 400), ""
        try:
            settings_with(tmp_path, more, gpus="4x80", before=row.get("before", PIXELS))
        except ValueError as error:
            message = str(error)
        if row["said"] not in message or "\n" in message:
            wrong.append((row["said"], message))
    assert not wrong


@pytest.mark.parametrize("model", [MODEL, "zai-org/glm-4v-9b", "zai-org/GLM-4.1V-9B-Thinking"])
def test_layers_that_are_spelled_out_are_counted_as_all_of_them(model, tmp_path):
    """Every linear layer by its name is all-linear, wherever these names are; fewer are less."""
    names = [*read_model(model).linear]
    made = [
        settings_with(tmp_path, f"--model {model} --target_modules {' '.join(which)}")
        for which in (["all-linear"], names, names[:1])
    ]
    every, spelled, fewer = (adapters(replace(one, train_vit=False)) for one in made)
    assert every == spelled > 2 * fewer
    kept = [
        training_passes(replace(one, train_vit=False, checkpoint_llm=False)).forward for one in made
    ]
    every, spelled, fewer = (passes["activations LLM"] for passes in kept)
    assert every == spelled > fewer
    in_vit = {"gate_proj", "query_key_value", "down_proj"} & set(names)
    assert made[1].train_vit == bool(in_vit) and not made[0].train_vit


MORE = [
    "",
    " --lora_rank 64 --tuner_type full --torch_dtype bfloat16 --learning_rate 1e-6",
    " --num_generations 4 --gradient_accumulation_steps 1 --per_device_train_batch_size 1",
    " --steps_per_generation 2 --gradient_accumulation_steps 4 --per_device_train_batch_size 4",
    " --generation_batch_size 32 --per_device_train_batch_size 2 --split_dataset_ratio 0.1"
    " --per_device_eval_batch_size 8",
    " --max_length 1024 --vllm_max_model_len 8192 --vllm_gpu_memory_utilization 0.9",
    " --deepspeed zero2 --tuner_type full --lora_rank 32 --gradient_checkpointing false",
]


def _variants():
    """Recipes and GPUs: ours, and commands with and without an engine, on one GPU and on four.
    One of every three in `make test`, each command once; the others in `make nightly`.
    """
    cases = [(path, "", re.search(r"(\d+)(?:\+\d+)?x", path.name)[1]) for path in OURS]
    for more, engine, count in itertools.product(MORE, (COLOCATED, ""), ("1", "4")):
        cases.append((None, f"--num_generations 8 {engine}{more}", count))
    for n, case in enumerate(cases):
        yield pytest.param(*case, marks=[pytest.mark.nightly] * (n % 3 > 0))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "more", "count"), list(_variants()))
def test_every_suggestion_is_planned_as_it_would_run(path, more, count, tmp_path, monkeypatch):
    """Run with other flags and read again: the same settings and figures; no new finding."""
    monkeypatch.setenv("NODE_RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "a")
    before = f"export NPROC_PER_NODE={count}\nexport MAX_PIXELS=${{MAX_PIXELS:-1003520}}"
    path = path or written_recipe(tmp_path, more, before=before)
    run = read_run(path)
    problems = {finding.rule for finding in check_recipe(run) if finding.level == PROBLEM}
    for size in ("12", "24", "80"):
        gpus = parse_gpus(f"{count}x{size}")
        plan = estimate(settings_of(run, gpus))
        written = as_written(run, gpus)
        for change in advise(plan, written):
            given = change.flags.items()
            variables = {name: value for name, value in given if name.isupper()}
            words = [w for n, v in given if n not in variables for w in (f"--{n}", v)]
            again = resolve(only(read_recipes(path, {**os.environ, **variables}, words)))
            settings = settings_of(again, gpus)
            assert settings == change.plan.settings, change.label
            assert estimate(settings).peak.total == change.plan.peak.total
            assert change.plan.fits
            rules = {finding.rule for finding in check_recipe(again) if finding.level == PROBLEM}
            rules -= {"not-installed"}  # "needs bitsandbytes", as its cost says
            assert rules <= problems, (change.label, rules)


def test_lora_keeps_the_recipes_rank_and_gets_its_learning_rate(tmp_path):
    path = written_recipe(tmp_path, MORE[1] + " --use_vllm 1 --vllm_mode colocate")
    run, gpus = read_run(path, {}), parse_gpus("1x24")
    (change,) = [c for c in changes(settings_of(run, gpus)) if "tuner_type" in c.flags]
    assert as_written(run, gpus)(change.flags).lora_rank == 64
    assert change.flags == {"tuner_type": "lora", "learning_rate": "1e-5", "deepspeed": "zero2"}
    assert "no-32-bit-copy" not in {f.rule for f in check_recipe(changed(run, change.flags))}
