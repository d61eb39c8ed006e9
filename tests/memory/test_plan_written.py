"""What `vlrft plan` takes, writes and advises; `vlrft check` finds nothing in what it wrote."""

import itertools
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory.advice import advise, changes, headroom_options
from swift_vlrft.memory.analytic import analytic
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import as_written, changed, settings_of
from swift_vlrft.memory.rewrite import changed_text
from swift_vlrft.memory.settings import parse_gpus
from swift_vlrft.recipe.reader import read_recipe, read_recipes, read_text
from swift_vlrft.recipe.rules import PROBLEM, check_recipe

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = sorted((REPOSITORY / "recipes").glob("*/*.sh"))
MODELS = (
    "Qwen/Qwen2-VL-2B-Instruct",
    "Qwen/Qwen2.5-VL-3B-Instruct",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-VL-4B-Instruct",
    "zai-org/GLM-4.1V-9B-Thinking",
)
GPUS = ("1x16", "1x24", "1x48", "1x80", "2x24", "2x80", "4x48", "6x40", "8x80")
TASKS = ("detection", "grounding", "classification", "counting")


@pytest.fixture(autouse=True)
def no_gpu_of_this_machine(monkeypatch):
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_what_write_writes_passes_check_fits_and_learns(model, tmp_path):
    written, tuners = 0, set()
    for gpus, task in itertools.product(GPUS, TASKS):
        out = tmp_path / f"{gpus}_{task}.sh"
        given = ("--model", model, "--task", task, "--gpus", gpus, "--quick")
        done = invoke("recipe", "new", out, *given)
        if done.exit_code == 2:
            assert "does not fit" in done.output and not out.exists()
            continue
        written += 1
        assert done.exit_code == 0, done.output
        assert invoke("plan", out, "--gpus", gpus, "--quick").exit_code == 0
        (recipe,) = read_recipes(out, {})
        assert check_recipe(recipe) == []
        tuner = recipe.get("tuner_type")
        tuners.add(tuner)
        # docs/troubleshooting.md: 1e-6 for all weights, 1e-5 for LoRA; DeepSpeed keeps 32 bits, so
        # that small steps count and a LoRA run can go on from a checkpoint.
        assert float(recipe.get("learning_rate")) == (1e-6 if tuner == "full" else 1e-5)
        assert recipe.get("deepspeed") and recipe.get("torch_dtype") == "bfloat16"
        assert recipe.get("save_steps") and not recipe.flag("save_only_model")
    assert written >= 2 * len(TASKS)
    assert tuners <= {"full", "lora"}


@pytest.mark.parametrize("task", ["pointing", "number", "ocr", "list", "ordering"])
def test_a_recipe_for_every_other_task(task, tmp_path):
    out = tmp_path / "new.sh"
    given = ("--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--task", task, "--gpus", "1x80", "--quick")
    done = invoke("recipe", "new", out, *given)
    assert done.exit_code == 0, done.output
    (recipe,) = read_recipes(out, {})
    assert check_recipe(recipe) == [] and f"vlrft_{task}" in out.read_text()
    assert (":pixels" in out.read_text()) == (task == "pointing")  # as the model was trained


def test_write_reaches_ms_swift_whole(tmp_path):
    """The whole check, with ms-swift's own parser, of one of each way to train."""
    for gpus in ("1x16", "1x80", "8x24"):
        out = tmp_path / f"{gpus}.sh"
        model = "Qwen/Qwen2-VL-2B-Instruct"
        invoke("recipe", "new", out, "--model", model, "--gpus", gpus, "--quick")
        checked = invoke("check", out, "--json")
        assert json.loads(checked.stdout)["findings"] == [], out.read_text()


SMALL = (
    "export MAX_PIXELS={pixels}\n"
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --reward_funcs format {more}\n"
)

WHOLE = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
    *("steps_per_generation", "generation_batch_size", "num_generations", "num_iterations"),
    *("max_completion_length", "max_length", "max_pixels", "lora_rank", "vllm_max_model_len"),
    *("vllm_max_num_seqs", "vllm_tensor_parallel_size", "move_model_batches"),
    "sequence_parallel_size",
)
NOT_WHOLE = ("0", "-2", "many", "1.5", "nan", "1e3")
TOO_LARGE = ("num_generations", "max_completion_length", "lora_rank", "steps_per_generation")
BAD = [
    # Every flag and every text, with two of the others each.
    *[
        (f"--{flag} {value}", f"--{flag} {value}: a whole number is needed, 1 or more")
        for n, flag in enumerate(WHOLE)
        for value in (NOT_WHOLE[n % 6], NOT_WHOLE[(n + 3) % 6])
    ],
    *[(f"--{flag} {'9' * 400}", "is needed, of 18 digits at most") for flag in TOO_LARGE],
    (f"--model_kwargs '{{\"max_pixels\": {'9' * 400}}}'", "is needed, of 18 digits at most"),
    ('--model_kwargs \'{"max_pixels": "²"}\'', "MAX_PIXELS=²: a whole number is needed"),
    ("--sleep_level 3", "--sleep_level 3: a whole number is needed, from 0 to 2"),
    *[
        (
            f"--vllm_gpu_memory_utilization {value}",
            f"utilization {value}: a number is needed, from 0.01",
        )
        for value in ("0", "1.01", "-1", "nan", "inf", "90%", "55")
    ],
    ("--lora_dropout 2", "--lora_dropout 2: a number is needed, from 0 to 1"),
    ("--beta -0.1", "--beta -0.1: a number is needed, 0 or more"),
    ("--beta inf", "--beta inf: a number is needed"),
    ("--learning_rate fast", "--learning_rate fast: a number is needed"),
    ("--torch_dtype float8", "--torch_dtype float8: known are bfloat16, float16, float32"),
    ("--lora_dtype int4", "--lora_dtype int4: known are"),
    ("--tuner_type vera", "run.sh: --tuner_type vera: the planner knows"),
    ("--use_vllm true --vllm_mode colocate --vllm_tensor_parallel_size 3", "run.sh: --vllm_tensor"),
    ('--deepspeed \'{"zero_optimization": {"stage": 7}}\'', "there is no stage 7"),
    ("--deepspeed none.json", "run.sh: --deepspeed none.json: neither zero0 to zero3_offload nor"),
    ("--model_kwargs '[1]'", "run.sh: --model_kwargs [1]: neither a JSON object nor its file"),
    ("--quant_bits 5", "--quant_bits 5: known are 1, 2, 3, 4, 8, float8"),
    ("--attn_impl foo", "--attn_impl foo: known are sdpa, eager"),
    ("--model ''", "run.sh: no --model, or an empty one"),
    ("--use_vllm maybe", "--use_vllm maybe: true or false is needed"),
    ("--freeze_vit 2", "--freeze_vit 2: true or false is needed"),
    ("--max_length --beta 0", "--max_length has no value"),
    ("--model_kwargs '{\"max_pixels\": -1}'", "MAX_PIXELS=-1: a whole number is needed, 1 or more"),
]


@pytest.mark.parametrize(("more", "said"), BAD)
def test_a_number_that_is_none_is_refused_in_one_line(more, said, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(SMALL.format(pixels=401408, more=more))
    done = invoke("plan", path, "--gpus", "1x80", "--quick")
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert "run.sh:" in done.output and "Traceback" not in done.output
    assert len(done.output.strip().splitlines()) == 1


@pytest.mark.parametrize("pixels", ["0", "-5", "many", "4e5"])
def test_pixels_that_are_none(pixels, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(SMALL.format(pixels=pixels, more=""))
    done = invoke("plan", path, "--gpus", "1x80", "--quick")
    assert done.exit_code == 2 and f"MAX_PIXELS={pixels}: a whole number" in done.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--optim lion_8bit", "optim lion_8bit is planned as adamw"),
        ("--quant_bits 3", "quant_bits 3 with lora tuning: the weights are planned in 16 bits"),
        ("--quant_bits 4 --tuner_type full", "quant_bits 4 with full tuning"),
        ("--num_generations 3 --per_device_train_batch_size 8", "3 does not divide the 8"),
        ("--attn_impl kernels-community/flash-attn2 --quant_bits 4 --optim adafactor"
         " --num_generations 2 --per_device_train_batch_size 2", ""),
    ],
)  # fmt: skip
def test_what_is_not_planned_as_it_is_written_is_said(more, said, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(SMALL.format(pixels=401408, more=more))
    notes = settings_of(read_recipe(path, {}), parse_gpus("1x80")).assumptions
    found = [n for n in notes if re.match("optim|quant_bits|what `vlrft check`", n)]
    assert said in "".join(found) and bool(said) == bool(found[:1])


def test_files_are_looked_up_where_the_command_runs(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "kwargs.json").write_text('{"max_pixels": 50176}')
    path = tmp_path / "run.sh"
    more = "--deepspeed ds.json --model_kwargs kwargs.json"
    path.write_text(f"cd {tmp_path}\n" + SMALL.format(pixels=401408, more=more))
    settings = settings_of(read_recipe(path, {}), parse_gpus("1x80"))
    assert settings.sharding == "zero3" and settings.image_tokens == 64


def test_a_bare_switch_is_on(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(SMALL.format(pixels=401408, more="--use_vllm --vllm_mode colocate"))
    settings = settings_of(read_recipe(path, {}), parse_gpus("1x80"))
    assert settings.rollout == "vllm_colocate"


def test_without_a_count_grpo_accumulates_one_micro_batch(tmp_path):
    """swift/arguments/rlhf_args.py: _set_default; and so says `vlrft check`."""
    path = tmp_path / "run.sh"
    path.write_text(SMALL.format(pixels=401408, more="--per_device_train_batch_size 2"))
    assert settings_of(read_recipe(path, {}), parse_gpus("1x80")).accumulation == 1


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
    for path in OURS:
        yield path.read_text(), re.search(r"(\d+)(?:\+\d+)?x", path.name)[1]
    for more, mode in itertools.product(MORE, ("--use_vllm true --vllm_mode colocate", "")):
        for count in ("1", "4"):
            export = f"export NPROC_PER_NODE={count}\n"
            yield (
                export + SMALL.format(pixels=1003520, more=f"--num_generations 8 {mode}{more}"),
                count,
            )


@pytest.mark.slow
@pytest.mark.parametrize(("text", "count"), list(_variants()))
def test_every_suggestion_is_planned_as_it_would_be_written(text, count, tmp_path, monkeypatch):
    """Applied in place and read again: the same settings, so the same figures; no new finding."""
    monkeypatch.setenv("NODE_RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "a")
    path = tmp_path / "run.sh"
    path.write_text(text)
    recipe = read_recipe(path)
    problems = {f.rule for f in check_recipe(recipe) if f.level == PROBLEM}
    for size in ("12", "24", "80"):
        gpus = parse_gpus(f"{count}x{size}")
        made = estimate(settings_of(recipe, gpus), analytic)
        written = as_written(recipe, gpus)
        for change in [
            *advise(made, analytic, written),
            *headroom_options(made, analytic, written),
        ]:
            after = changed_text(recipe, change.flags)
            (again,) = [r for r in read_text(after, path) if r.trains]
            settings = settings_of(again, gpus)
            assert settings == change.plan.settings, change.label
            assert estimate(settings, analytic).peak.total == change.plan.peak.total
            assert change.plan.fits
            found = {f.rule for f in check_recipe(again) if f.level == PROBLEM}
            found -= {"not-installed"}  # "needs liger-kernel", as its cost says
            assert found <= problems, (change.label, found)


def test_lora_keeps_the_recipes_rank_and_gets_its_learning_rate(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(
        SMALL.format(pixels=401408, more=MORE[1] + " --use_vllm 1 --vllm_mode colocate")
    )
    recipe, gpus = read_recipe(path, {}), parse_gpus("1x24")
    (change,) = [c for c in changes(settings_of(recipe, gpus)) if "tuner_type" in c.flags]
    assert as_written(recipe, gpus)(change.flags).lora_rank == 64
    assert change.flags == {"tuner_type": "lora", "learning_rate": "1e-5", "deepspeed": "zero2"}
    assert "no-32-bit-copy" not in {f.rule for f in check_recipe(changed(recipe, change.flags))}


def test_more_generations_are_raised_with_the_rows_of_a_generation(tmp_path):
    for more, flags in (
        (" --per_device_train_batch_size 16", {"num_generations": "16"}),
        (
            " --per_device_train_batch_size 8",
            {"num_generations": "16", "gradient_accumulation_steps": "2"},
        ),
        (
            " --per_device_train_batch_size 4 --steps_per_generation 2",
            {"num_generations": "16", "steps_per_generation": "4"},
        ),
        (
            " --per_device_train_batch_size 4 --generation_batch_size 8",
            {"num_generations": "16", "generation_batch_size": "16"},
        ),
    ):
        path = tmp_path / "run.sh"
        text = "--use_vllm true --vllm_mode colocate --deepspeed zero2 --sleep_level 1 "
        text += "--vllm_gpu_memory_utilization 0.4 --num_generations 8 --vllm_max_model_len 2048"
        path.write_text(SMALL.format(pixels=401408, more=text + more))
        recipe, gpus = read_recipe(path, {}), parse_gpus("1x80")
        made = estimate(settings_of(recipe, gpus), analytic)
        found = [c.flags for c in headroom_options(made, analytic, as_written(recipe, gpus))]
        assert flags in found
