"""`vlrft check` says what ms-swift would have said later; every recipe of ours passes."""

import itertools
import json
import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.sharded_rows import write_shards
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.history import NEW_DEFAULTS, OLD_FLAGS
from swift_vlrft.recipe.reader import read_recipes, read_text
from swift_vlrft.recipe.rules import NOTE, PROBLEM, check, check_recipe
from swift_vlrft.swift_plugin.facts import CLASSES

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


def findings(text, **environment):
    return [
        found
        for recipe in read_text(text, environment=environment)
        for found in check_recipe(recipe)
    ]


def run(*arguments, **environment):
    return CliRunner().invoke(app, ["check", *map(str, arguments)], env=environment)


def test_there_are_recipes():
    assert len(RECIPES) > 10


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_recipes_have_no_problem(path):
    shown = run("--json", path)
    assert shown.exit_code == 0, shown.output
    levels = {found["rule"] for found in json.loads(shown.output)["findings"]}
    # A variable that the recipe itself asks for; what the template writes before each completion.
    assert levels <= {"needed", "response-prefix"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_our_recipes_hold_no_key_and_no_home(path):
    text = path.read_text()
    assert not re.search(r"/home/|/root/|/Users/|[A-Z]_(KEY|TOKEN)=", text)
    assert "set -euo pipefail" in text and text.rstrip().endswith('"$@"')
    assert path.stat().st_mode & stat.S_IXUSR or path.name == "demo_cpu.sh"


@pytest.mark.parametrize(
    "path", [p for p in RECIPES if p.name != "demo_cpu.sh"], ids=lambda p: p.stem
)
def test_our_recipes_keep_what_a_recipe_must(path):
    given = {"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a", "MODEL": "m"}
    given |= {"OUTPUT_DIR": "o", "NPROC_PER_NODE": "3"}
    (recipe,) = [r for r in read_recipes(path, given) if r.trains]
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
    head = " ".join(path.read_text().split("set -euo")[0].replace("\n#", " ").split())
    for word in ("GPU", "ms-swift 4.6.0", "memory ", "run bash", "smaller", "Not run on"):
        assert word in head


@pytest.mark.parametrize(
    "added",
    [
        "",
        "--response_prefix '<think>'",
        "< a.txt > b.txt 2>&1",
        "--run_name '{a}' --system '{you} help'",
        "--use_vllm --vllm_mode colocate",
        "--offload_model --use_vllm=yes --vllm_mode colocate --sleep_level 1",
    ],
)
def test_a_good_command_is_silent(added):
    assert findings(GOOD + added) == []


@pytest.mark.parametrize(
    ("added", "rule", "said"),
    [
        ("--train_type lora", "removed-flag", "--tuner_type since ms-swift 4.1.0"),
        ("--num_infer_workers 1", "removed-flag", "gone since ms-swift 3.6.0"),
        ("--gc_collect_after_offload true", "removed-flag", "3.10.0"),
        ("--scale_rewards true", "removed-value", "`group`"),
        ("--use_vllm", "vllm-mode", "true needs --vllm_mode since ms-swift 3.12.0; before, it"),
        ("--use_vllm true", "vllm-mode", "since ms-swift 3.12.0"),
        ("--vllm_mode colocate", "vllm-mode", "without --use_vllm"),
        ("--use_vllm true --vllm_mode server", "vllm-server", "--vllm_server_host"),
        ("--num_generations 5", "generation-batch", "Possible: 2, 4, 8"),
        ("--num_generations 1", "num-generations", "needs 2"),
        ("--generation_batch_size 12", "generation-batch", "no multiple of"),
        ("--steps_per_generation 2 --generation_batch_size 8", "generation-batch", "contradicts"),
        ("--val_dataset x --per_device_eval_batch_size 3", "eval-batch", "8 generations"),
        ("--split_dataset_ratio 0.1", "eval-batch", "8 generations"),
        (
            "--use_vllm true --vllm_mode colocate --vllm_tensor_parallel_size 2",
            "tensor-parallel",
            "does not divide 1 processes",
        ),
        ("--system none/prompt.txt", "file", "no such file"),
        ("--deepspeed none/zero.json", "file", "zero3_offload"),
        ("--truncation_strategy right", "lengths", "left or delete"),
        ("--reward_weights 1 2", "reward-weights", "2 --reward_weights for 1 rewards"),
        ("--external_plugins none.py", "plugin", "no such file"),
        ("--model ''", "model", "--model has no value"),
        ("--model ./none", "model", "no such folder"),
        ("--model zai-org/glm-4v-9b --max_length 512", "lengths", "give 2114"),
        ("--dataset /none/at/all", "dataset", "does not exist"),
        ("--dataset path/to/set", "placeholder", "path/to/set"),
        ("--resume_from_checkpoint \u201cx\u201d", "typographic-quotes", "part of the value"),
        ("--vllm_limit_mm_per_prompt \"{'image': 2}\"", "json", "character 2"),
        ('--columns "{"a": "b"}"', "json", "{a: b}"),
        ("--hub_token abc", "secret", "HF_TOKEN"),
        ("--use_liger_kernel true", "not-installed", "liger-kernel"),
    ],
)
def test_problems(added, rule, said):
    found = [f for f in findings(GOOD + added) if f.level == PROBLEM]
    assert [f.rule for f in found] == [rule]
    assert said in found[0].text


def test_evaluation_with_answers_needs_a_package_or_a_reward():
    text = "swift sft --model m --dataset d --predict_with_generate true"
    assert [f.rule for f in findings(text) if "jieba" in f.text] == ["not-installed"]
    assert not [f for f in findings(f"{text} --eval_metric vlrft_ocr") if "jieba" in f.text]


def test_what_glm_4v_cannot_do_is_said(tmp_path):
    """Every image of it takes 1,602 tokens, and it gives no boxes; CogAgent does."""
    model = "--model zai-org/glm-4v-9b "
    (found,) = findings(GOOD + model)
    assert (found.level, found.rule) == (NOTE, "max-pixels") and "saves nothing" in found.text
    short = GOOD.replace("--max_pixels 401408", "") + "--truncation_strategy delete "
    (found,) = findings("MAX_PIXELS=401408 " + short + model)
    assert (found.rule, found.text[:24]) == ("max-pixels", "MAX_PIXELS saves nothing")
    found = findings(short + model + "--use_liger_kernel true")
    assert "liger has no kernels for chatglm4v" in " ".join(f.text for f in found)
    assert findings(short + model) == findings(short + model + "--max_length 1603") == []
    known = short.replace("classification", "detection_iou")
    known = known.replace("ViRFT_CLS_flower_4_shot", "ViRFT_COCO")
    (found,) = findings(known + model)
    assert (found.level, found.rule) == (NOTE, "grounding")
    assert "cannot ground" in found.text and "cogagent-9b" in found.text
    assert findings(known + "--model zai-org/cogagent-9b-20241220") == []
    vision = {"model_type": "chatglm", "vision_config": {"image_size": 112}}
    (tmp_path / "config.json").write_text(json.dumps(vision))
    assert findings(known + f"--model {tmp_path} --max_length 19")[0].rule == "grounding"
    assert "takes 18 tokens" in findings(known + f"--model {tmp_path} --max_length 18")[0].text


@pytest.mark.parametrize("length", ["100", "270", "2048"])
def test_images_within_a_budget_of_tokens_take_no_limit(length):
    """A thin image takes fewer tokens than the budget, so rows of any length may be."""
    model = f"--model google/gemma-4-E4B-it --max_length {length} --truncation_strategy delete "
    (found,) = findings(GOOD + model)
    assert (found.level, found.rule) == (NOTE, "max-pixels")
    assert (
        "--max_pixels saves nothing: gemma4 sees every image within the same budget" in found.text
    )


def test_tensor_parallel_is_said_where_the_mode_is_missing_too():
    found = findings(GOOD + "--use_vllm true --vllm_tensor_parallel_size 3", NPROC_PER_NODE="4")
    assert {f.rule for f in found if f.level == PROBLEM} >= {"vllm-mode", "tensor-parallel"}


def test_the_length_of_a_server_is_not_judged_here():
    server = "--use_vllm true --vllm_mode server --vllm_server_host h --vllm_max_model_len 512"
    assert [f.rule for f in findings(GOOD + server)] == ["vllm-server"]


def test_the_flags_of_ms_swift_2():
    text = "swift sft --template_type qwen2-vl --lora_target_modules ALL --batch_size 1"
    said = [f.text for f in findings(text) if f.rule == "removed-flag"]
    names = ("--template", "--target_modules", "--per_device_train_batch_size")
    assert len(said) == 3 and all(any(n in one for one in said) for n in names)


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (GOOD + "--temperature 0.1", "sampling", "alike"),
        (GOOD + "--tuner_type full --torch_dtype bfloat16", "no-32-bit-copy", "rounded away"),
        (
            GOOD + "--torch_dtype bfloat16 --use_vllm true --vllm_mode colocate",
            "no-32-bit-copy",
            "cannot go on",
        ),
        (GOOD + "--max_length 512", "lengths", "--truncation_strategy delete"),
        (GOOD + "--max_completion_length 2048", "length-bias", "--loss_type dapo"),
        (GOOD + "--max_completion_length 2048 --loss_type grpo", "length-bias", "up to 2048"),
        (GOOD + "--epsilon_high 0.28", "idle-ratio", "--epsilon_high changes nothing"),
        (GOOD + "--importance_sampling_level sequence", "idle-ratio", "or --num_iterations 2"),
        (GOOD + "--epsilon 0.1 --generation_batch_size 8", "idle-ratio", "--epsilon changes"),
        (GOOD + "--loss_type cispo", "cispo", "here 0.2"),
        (GOOD + "--loss_type cispo --epsilon_high 0.3", "cispo", "here 0.3"),
        (
            GOOD
            + "--use_vllm true --vllm_mode colocate --max_length 600 --vllm_max_model_len 1000",
            "lengths",
            "= 1112 exceeds",
        ),
        (
            GOOD + "--use_vllm true --vllm_mode colocate --vllm_max_model_len 512",
            "lengths",
            "no room for a prompt",
        ),
        (GOOD.replace("--max_pixels 401408", ""), "max-pixels", "16,384"),
        (
            GOOD.replace("CLS_flower_4_shot", "COCO").replace("classification", "detection_iou"),
            "frame",
            "ViRFT_COCO:pixels",
        ),
        (GOOD + "--beta 0 \\\n--beta 1", "repeated-flag", "line 2"),
    ],
)
def test_notes(text, rule, said):
    found = [f for f in findings(text) if f.level == NOTE]
    assert rule in [f.rule for f in found]
    assert said in next(f.text for f in found if f.rule == rule)


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--max_completion_length 2048 --loss_type dapo",
        "--epsilon_high 0.28 --num_iterations 2",
        "--epsilon_high 0.28 --steps_per_generation 16",
        "--importance_sampling_level token",
        "--loss_type cispo --epsilon_high 5",
    ],
)
def test_a_loss_that_fits_gives_no_note(flags):
    rules = [found.rule for found in findings(GOOD + flags)]
    assert not {"length-bias", "idle-ratio", "cispo"} & {*rules}


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


def test_no_note_on_frames_where_they_agree():
    detection = GOOD.replace("CLS_flower_4_shot", "COCO").replace("classification", "detection_iou")
    for text in (
        detection.replace("ViRFT_COCO", "ViRFT_COCO:pixels"),
        detection.replace("2.5", "2"),
    ):
        assert not [f for f in findings(text) if f.rule == "frame"]


def test_the_note_on_frames_of_a_local_set(tmp_path):
    pq.write_table(
        pa.table({"image": ["a"], "problem": ["b"], "solution": ["[1, 2, 3, 4]"]}),
        tmp_path / "a.parquet",
    )
    detection = GOOD.replace("vlrft_classification", "vlrft_detection_iou")
    (found,) = findings(detection + f"--dataset {tmp_path}")
    assert (found.rule, found.level) == ("frame", NOTE) and f"{tmp_path}:pixels" in found.text
    assert findings(detection + f"--dataset {tmp_path}:pixels") == []
    names = pa.table({"image": ["a"], "problem": ["b"], "solution": ["c"]})
    pq.write_table(names, tmp_path / "a.parquet")
    assert findings(GOOD + f"--dataset {tmp_path}") == []
    (tmp_path / "rows.jsonl").write_text('{"messages": [], "images": [], "solution": ""}\n')
    assert findings(detection + f"--dataset {tmp_path}/rows.jsonl") == []


DETECTION = GOOD.replace("CLS_flower_4_shot", "COCO").replace("classification", "detection_iou")
NATIVE = {
    "Qwen/Qwen2.5-VL-3B-Instruct": "pixels",
    "Qwen/Qwen3-VL-4B-Instruct": "norm1000",
    "OpenGVLab/InternVL3_5-4B-HF": "norm1000",
    "google/gemma-4-E4B-it": "yx1000",
}


@pytest.mark.parametrize("model", NATIVE)
@pytest.mark.parametrize("subset", ["", "norm1000", "pixels", "unit", "yx1000", "native"])
def test_a_format_that_is_not_the_models_own_is_noted(model, subset):
    text = DETECTION.replace("Qwen/Qwen2.5-VL-3B-Instruct", model)
    assert model in text
    found = findings(text.replace("ViRFT_COCO", f"ViRFT_COCO:{subset}" if subset else "ViRFT_COCO"))
    notes = [one.text for one in found if one.rule == "frame"]
    if subset == "native" or (subset or "norm1000") == NATIVE[model]:
        assert not notes
    else:
        (said,) = notes
        assert f"boxes are in {subset or 'norm1000'}" in said and "ViRFT_COCO:native" in said
        assert f"trained on {NATIVE[model]}" in said
    assert not [one for one in found if one.rule == "dataset"]


def test_native_of_a_model_without_boxes_and_unknown_formats_are_problems():
    def problems(text):
        return [f.text for f in findings(text) if f.level == PROBLEM and f.rule == "dataset"]

    glm = DETECTION.replace("Qwen/Qwen2.5-VL-3B-Instruct", "zai-org/glm-4v-9b")
    (said,) = problems(glm.replace("ViRFT_COCO", "ViRFT_COCO:native"))
    assert "chatglm4v was not trained to write boxes; name a box format: norm1000, pixels" in said
    unknown = DETECTION.replace("Qwen/Qwen2.5-VL-3B-Instruct", "nobody/x")
    found = findings(unknown.replace("ViRFT_COCO", "ViRFT_COCO:native"))
    (said,) = [f.text for f in found if f.rule == "frame"]
    assert "box format of nobody/x is not known here" in said and "the run stops" in said
    (said,) = problems(DETECTION.replace("ViRFT_COCO", "ViRFT_COCO:xyxy"))
    assert (
        "unknown subset 'xyxy'; known box formats: norm1000, pixels, unit, yx1000, native" in said
    )


@pytest.mark.parametrize("subset", ["native", "pixels", "unit", "yx1000"])
def test_a_format_of_a_set_that_ms_swift_reads_is_a_problem(subset, tmp_path):
    """Training stops at it: boxes in messages are not rewritten."""
    (tmp_path / "rows.jsonl").write_text('{"messages": [], "images": [], "solution": ""}\n')
    of_messages = DETECTION.replace("laolao77/ViRFT_COCO", f"{tmp_path}/rows.jsonl:{subset}")
    (said,) = [f.text for f in findings(of_messages) if f.level == PROBLEM]
    assert f"rows.jsonl:{subset}: ms-swift's own loader reads this set" in said


def test_native_of_a_run_that_goes_on_from_a_checkpoint(tmp_path):
    flag = f"--resume_from_checkpoint {tmp_path}"
    text = DETECTION.replace("--model Qwen/Qwen2.5-VL-3B-Instruct", flag)
    text = text.replace("ViRFT_COCO", "ViRFT_COCO:native")
    said = " ".join(f.text for f in findings(text) if f.rule == "frame")
    assert f"the box format of {tmp_path} is not known" in said
    (tmp_path / "config.json").write_text('{"model_type": "gemma4"}')
    assert not [f for f in findings(text) if f.rule == "frame"]
    assert [f for f in findings(text.replace(":native", "")) if f.rule == "frame"]


def test_a_missing_backslash_names_the_lost_line():
    (found,) = findings(GOOD + "\n    --num_generations 4 \\\n    --beta 0\n")
    assert (found.level, found.line, found.rule) == (PROBLEM, 2, "continuation")
    assert "--num_generations" in found.text


def test_reward_columns_of_a_local_set(tmp_path):
    pq.write_table(
        pa.table({"image": ["a"], "problem": ["b"], "answer": ["c"]}), tmp_path / "a.parquet"
    )
    text = GOOD + f"--dataset {tmp_path}"
    (found,) = findings(text)
    assert found.rule == "reward-columns" and "image, problem, answer" in found.text
    assert findings(text + ' --columns \'{"answer": "solution"}\'') == []
    (tmp_path / "rows.jsonl").write_text('{"messages": [], "images": []}\n')
    (found,) = findings(GOOD + f"--dataset {tmp_path}/rows.jsonl")
    assert "messages, images" in found.text


def test_a_secret_is_never_shown(tmp_path):
    recipe = tmp_path / "r.sh"
    recipe.write_text(f"export WANDB_API_KEY=1234567890abcdef\n{GOOD} --hub_token hf_topsecret\n")
    shown = run("--fast", recipe)
    assert shown.exit_code == 1
    assert "WANDB_API_KEY" in shown.output and "--hub_token" in shown.output
    assert "1234567890abcdef" not in shown.output and "hf_topsecret" not in shown.output


class _World(SimpleNamespace):
    """The arguments as ms-swift's own rule reads them."""


def test_the_batch_rules_are_those_of_ms_swift():
    from swift.rlhf_trainers.args_mixin import RolloutTrainerArgumentsMixin

    said, kept = 0, 0
    grid = itertools.product((1, 3, 4), (1, 2), (1, 4), (2, 6, 8), (None, 2), (None, 8, 24))
    for world, device, accumulation, group, steps, batch in grid:
        arguments = _World(
            world_size=world,
            per_device_train_batch_size=device,
            gradient_accumulation_steps=accumulation,
            num_generations=group,
            steps_per_generation=steps,
            generation_batch_size=batch,
            eval_strategy="no",
        )
        text = (
            f"NPROC_PER_NODE={world} swift rlhf --rlhf_type grpo --model m --dataset d "
            f"--reward_funcs format --per_device_train_batch_size {device} "
            f"--gradient_accumulation_steps {accumulation} --num_generations {group}"
        )
        text += f" --steps_per_generation {steps}" if steps else ""
        text += f" --generation_batch_size {batch}" if batch else ""
        ours = [f for f in findings(text) if f.rule == "generation-batch"]
        try:
            RolloutTrainerArgumentsMixin._init_generation_batch_params(arguments)
        except ValueError:
            assert ours, text
            said += 1
        else:
            assert not ours, text
            kept += 1
    assert said > 20 and kept > 20


def test_the_evaluation_batch_rule_is_that_of_ms_swift():
    from swift.rlhf_trainers.args_mixin import RolloutTrainerArgumentsMixin

    said = []
    for world, device, group in itertools.product((1, 4, 6), (1, 2, 8), (None, 1, 2, 8)):
        arguments = _World(
            world_size=world,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=1,
            num_generations=8,
            steps_per_generation=None,
            generation_batch_size=None,
            eval_strategy="steps",
            per_device_eval_batch_size=device,
            num_generations_eval=group,
        )
        text = GOOD + f"--val_dataset v --per_device_eval_batch_size {device}"
        text += f" --num_generations_eval {group}" if group else ""
        ours = [f for f in findings(text, NPROC_PER_NODE=str(world)) if f.rule == "eval-batch"]
        try:
            RolloutTrainerArgumentsMixin._init_generation_batch_params(arguments)
        except ValueError:
            assert ours, text
        else:
            assert not ours, text
        said += ours
    assert 5 < len(said) < 30


@pytest.mark.parametrize(
    "path", [p for p in RECIPES if p.name != "demo_cpu.sh"], ids=lambda p: p.stem
)
@pytest.mark.parametrize("processes", [None, "2"])
def test_our_recipes_take_a_set_to_evaluate_on(path, processes):
    given = {"DATASET": "d", "NODE_RANK": "0", "MASTER_ADDR": "a"}
    given |= {"NPROC_PER_NODE": processes} if processes else {}
    more = ["--val_dataset", "v", "--eval_strategy", "steps"]
    if "sft" not in path.name:
        more += ["--vllm_tensor_parallel_size", "1"]
    (recipe,) = [r for r in read_recipes(path, given, more) if r.trains]
    assert [f for f in check_recipe(recipe) if f.level == PROBLEM] == []


TRAINED = "--per_device_train_batch_size 1 --gradient_accumulation_steps 24 "


@pytest.mark.parametrize("engine", ["--deepspeed zero2", "--use_vllm true --vllm_mode colocate"])
def test_the_rule_of_visible_gpus_is_that_of_ms_swift(monkeypatch, engine):
    from swift.utils import env

    for cards, processes in itertools.product(range(9), (1, 3, 4, 8)):
        monkeypatch.setattr("swift.utils.get_device_count", lambda cards=cards: cards)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        names = ",".join(map(str, range(cards)))
        given = {"NPROC_PER_NODE": str(processes), "CUDA_VISIBLE_DEVICES": names}
        found = [f for f in findings(GOOD + TRAINED + engine, **given) if f.rule == "visible-gpus"]
        try:
            ends = env.is_mp()
        except AssertionError as error:
            assert str(error) in found[0].text
            ends = True
        assert len(found) == ends
        assert all(f.level == PROBLEM for f in found)


def test_visible_gpus_are_those_of_this_machine_where_nothing_names_them(monkeypatch, tmp_path):
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 8)
    text = GOOD + TRAINED + "--deepspeed zero2"
    (found,) = findings(text, NPROC_PER_NODE="4")
    assert (found.rule, found.level) == ("visible-gpus", NOTE)
    assert "shows 8 GPUs" in found.text and "CUDA_VISIBLE_DEVICES=0,1,2,3" in found.text
    assert "DeepSpeed is not compatible with `device_map`" in found.text
    quiet = [
        {"NPROC_PER_NODE": "8"},
        {"NPROC_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": "4,5,6,7"},
        {"NPROC_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": ""},
        {"NPROC_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": "-1,0"},
        {"NPROC_PER_NODE": "4", "SWIFT_SINGLE_DEVICE_MODE": "1"},
    ]
    assert all(findings(text, **given) == [] for given in quiet)
    assert findings(GOOD + "--tuner_type lora", NPROC_PER_NODE="1") == []
    # Set in a way that only bash knows.
    for line in ("export NPROC_PER_NODE=$(count)", "if a; then\nexport NPROC_PER_NODE=8\nfi"):
        path = tmp_path / "a.sh"
        path.write_text(f"{line}\n{text}\n")
        (recipe,) = read_recipes(path, {})
        assert "visible-gpus" not in {f.rule for f in check_recipe(recipe)}


def test_a_machine_without_a_driver_shows_no_gpu(monkeypatch, tmp_path):
    from swift_vlrft.recipe import gpus

    monkeypatch.undo()
    for script, count in (("printf 'A, 81920, 5\\nA, [N/A], 5\\n'", 2), ("exit 9", 0), (None, 0)):
        tool = tmp_path / "nvidia-smi"
        tool.unlink(missing_ok=True)
        if script:
            tool.write_text(f"#!/bin/sh\n{script}\n")
            tool.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(tmp_path))
            gpus.installed_gpus.cache_clear()
            assert gpus.gpus_here() == count
    gpus.installed_gpus.cache_clear()


def test_the_table_of_old_flags_is_true_of_this_ms_swift():
    flags = facts().flags("rlhf")
    every = {name for command in CLASSES for name in facts().flags(command)}
    assert sorted(set(OLD_FLAGS) & set(flags)) == []
    assert [old.now for old in OLD_FLAGS.values() if old.now and old.now not in every] == []
    assert {name: flags[name].default for _, name, _, _ in NEW_DEFAULTS} == {
        "top_k": -1,
        "top_p": 1.0,
        "load_from_cache_file": False,
        "router_aux_loss_coef": 0.0,
        "split_dataset_ratio": 0.0,
        "truncation_strategy": None,
    }


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


def test_fix_rewrites_what_it_knows(tmp_path):
    path = tmp_path / "old.sh"
    path.write_text(OLD)
    path.chmod(0o755)
    shown = run("--fast", "--fix", path)
    assert "+    --vllm_mode colocate" in shown.output
    assert path.read_text() == (
        "NPROC_PER_NODE=4 \\\n"
        "swift rlhf \\\n"
        "    --rlhf_type grpo --tuner_type lora --model m \\\n"
        "    --use_vllm true \\\n"
        "    --vllm_mode colocate \\\n"
        "    --scale_rewards group \\\n"
        "    --vllm_gpu_memory_utilization=0.5\n"
        "echo done\n"
    )
    assert path.stat().st_mode & stat.S_IXUSR
    assert (tmp_path / "old.sh.orig").read_text() == OLD
    assert not [f for f in check_recipe(read_recipes(path)[0]) if f.rule.startswith("removed")]
    before = path.read_text()
    run("--fast", "--fix", path)
    assert path.read_text() == before


def test_fix_of_a_configuration(tmp_path):
    path = tmp_path / "old.yaml"
    path.write_text(
        "rlhf_type: grpo\ntrain_type: lora  # note\nscale_rewards: true\nvllm_device: auto\n"
    )
    run("--fast", "--fix", path)
    assert path.read_text() == "rlhf_type: grpo\ntuner_type: lora  # note\nscale_rewards: group\n"


def test_fix_of_a_configuration_adds_a_line_and_keeps_a_remark(tmp_path):
    path = tmp_path / "old.yaml"
    path.write_text("rlhf_type: grpo\nuse_vllm: true  # fast\nscale_rewards: true  # why\n")
    run("--fast", "--fix", path)
    assert path.read_text() == (
        "rlhf_type: grpo\nuse_vllm: true  # fast\nvllm_mode: colocate\n"
        "scale_rewards: group  # why\n"
    )
    path = tmp_path / "old.json"
    path.write_text('{\n  "rlhf_type": "grpo",\n  "use_vllm": "true",\n  "beta": 0\n}\n')
    run("--fast", "--fix", path)
    assert json.loads(path.read_text())["vllm_mode"] == "colocate"


def test_fix_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "old.sh"
    path.write_text(OLD)

    def refused(path, text):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("swift_vlrft.recipe.fix.write_fixed", refused)
    shown = run("--fast", "--fix", path)
    assert shown.exit_code == 2 and "cannot be written: Permission denied" in shown.output
    assert path.read_text() == OLD


def test_a_home_of_nobody():
    found = findings(GOOD.replace("Qwen/Qwen2.5-VL-3B-Instruct", "~nobody-here/model"))
    assert "model" in {f.rule for f in found}


@pytest.mark.parametrize(
    ("added", "rule", "said"),
    [
        ("--tuner_typ lora", "abbreviated-flag", "--tuner_type"),
        ("--lerning_rate 1e-5", "unknown-flag", "Did you mean --learning_rate"),
        ("--num_generations many", "value", "a whole number is needed, 1 or more"),
        (f"--lora_rank {'9' * 400}", "value", "a whole number is needed, of 18 digits at most"),
        ("--scale_rewards sum", "value", "sum: known are group, batch"),
        ("--beta 0 1", "value", "takes one value, got 2"),
        ("--no_log_completions", "unknown-flag", "Did you mean --log_completions"),
        ("--report none", "unknown-flag", "Did you mean --report_to"),
        ('--columns {"answer": "solution"}', "json", "Write it in single quotes"),
        ("--reward_funcs vlrft_clasification", "reward", "Did you mean vlrft_classification"),
        ("--external_plugins --reward_funcs vlrft_format", "reward", "vlrft plugin"),
    ],
)
def test_what_only_ms_swift_knows(added, rule, said):
    shown = run("--json", GOOD + added)
    found = [f for f in json.loads(shown.output)["findings"] if f["rule"] == rule]
    assert len(found) == 1 and said in found[0]["text"]
    assert shown.exit_code == (0 if rule == "abbreviated-flag" else 1)


def test_rewards_of_a_command_that_takes_none():
    found = findings("swift sft --model m --dataset d --reward_funcs format\n")
    assert {f.rule for f in found} == {"unknown-flag"}


def test_rewards_of_another_plugin_count(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text("from swift.rewards import orms\norms['mine'] = None\n")
    shown = run("--json", GOOD + f"--external_plugins {plugin} --reward_funcs mine other")
    found = [f["text"] for f in json.loads(shown.output)["findings"] if f["rule"] == "reward"]
    assert len(found) == 1 and "no reward is named other" in found[0]


def test_exit_codes_and_several_recipes(tmp_path):
    bad = tmp_path / "bad.sh"
    bad.write_text(GOOD + "--train_type lora\n")
    assert run("--fast", RECIPES[0]).exit_code == 0
    assert run("--fast", RECIPES[0], bad).exit_code == 1
    shown = run("--fast", "--json", bad, tmp_path / "none.sh")
    assert shown.exit_code == 2
    said = json.loads(shown.output)
    rules = [found["rule"] for found in said["findings"] if found["level"] == PROBLEM]
    assert rules == ["removed-flag"]
    assert "none.sh: cannot be read" in said["unreadable"][0]


def test_the_program_that_parses_scripts_is_missing(monkeypatch):
    from swift_vlrft.recipe.shell import tree

    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    tree._shfmt.cache_clear()
    shown = run("--fast", GOOD + "--run_name another")
    tree._shfmt.cache_clear()
    assert shown.exit_code == 2 and "pip install shfmt-py" in " ".join(shown.output.split())


def test_a_command_longer_than_a_file_name():
    command = GOOD.replace(PLUGIN, "none.py").replace(
        "--model", "--temperature 0.9 " * 30 + "--model"
    )
    shown = run("--fast", command)
    assert shown.exit_code == 1 and "no such file" in shown.output


def test_the_command_imports_neither_swift_nor_torch():
    import subprocess
    import sys

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


QWEN3_5 = GOOD.replace("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen3.5-4B")


@pytest.mark.parametrize(
    ("more", "level", "text"),
    [
        ("", NOTE, r"qwen3_5 begins each completion with '<think>\n\n</think>\n\n': not counted"),
        ("--enable_thinking false", NOTE, r"'<think>\n\n</think>\n\n': not counted"),
        ("--enable_thinking true", NOTE, r"'<think>\n', counted by vlrft_format as if"),
        (
            "--template glm4_7",
            PROBLEM,
            "'</think>', so none of them earns vlrft_format. Give --resp",
        ),
        ("--response_prefix '<think>'", None, None),
        ("--response_prefix '</think>'", PROBLEM, "--response_prefix begins each completion with"),
        ("--response_prefix ''", None, None),
        ("--template qwen2_5_vl", None, None),
        ("--model zai-org/GLM-4.6V-Flash", NOTE, r"glm4_5v begins each completion with"),
        ("--model zai-org/GLM-4.1V-9B-Thinking", None, None),
        ("--model google/gemma-4-E4B-it", None, None),  # its template writes nothing
        ("--model google/gemma-4-31B-it", NOTE, "gemma4 begins each completion with '<|channel>"),
        ("--enable_thinking $THINKS", None, None),
    ],
)
def test_what_the_template_writes_is_said(more, level, text):
    given = [
        f for f in findings(f"{QWEN3_5} --reward_funcs vlrft_classification vlrft_format {more}")
    ]
    given = [f for f in given if f.rule == "response-prefix"]
    assert [f.level for f in given] == ([level] if level else [])
    assert not level or text in given[0].text


def test_without_a_format_reward_the_answer_is_read_behind_what_the_template_writes():
    (found,) = [f for f in findings(QWEN3_5) if f.rule == "response-prefix"]
    assert found.level == NOTE and found.text.endswith("; the answer is read behind it")


def test_a_checkpoint_names_its_template(tmp_path):
    (tmp_path / "args.json").write_text('{"model_type": "qwen3_5", "template": "qwen3_5"}')
    text = QWEN3_5.replace("Qwen/Qwen3.5-4B", str(tmp_path))
    assert [f.rule for f in findings(text) if "'<think>" in f.text] == ["response-prefix"]
    (tmp_path / "args.json").write_text("[]")
    assert [f for f in findings(text) if f.rule == "response-prefix"] == []


LEN = "a stream has no length"
ONE = "compares answers to different prompts"
OURS = "--external_plugins plugins/vlrft.py --max_steps 9"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--dataset d --streaming true", [LEN, ONE]),
        ("--dataset d --streaming --max_steps 9", [ONE]),
        ("--dataset d --streaming false", []),
        ("--dataset d", []),
        ("--dataset d --streaming true --max_steps 9 --rlhf_type dpo", []),
        (f"--dataset SET --streaming true {OURS}", []),
        (f"--dataset SET --val_dataset SET --streaming true {OURS}", ["length of --val_dataset"]),
        (f"--dataset s3://bucket/set:pixels#9 --streaming true {OURS}", []),
        (f"--dataset s3://bucket/set {OURS}", ["needs --streaming true"]),
        (f"--dataset s3://me:secret@bucket/set --streaming true {OURS}", ["neither credentials"]),
    ],
)
def test_streams(tmp_path, flags, says):
    """On a disk and in a store, which is not asked."""
    recipe = tmp_path / "run.sh"
    flags = flags.replace("SET", str(write_shards(tmp_path / "set", 2, 4)))
    recipe.write_text(f"swift rlhf --rlhf_type grpo --model m --reward_funcs x {flags}\n")
    texts = [f.text for f in check(recipe) if f.rule in ("dataset", "streaming")]
    assert len(texts) == len(says) and not any("secret" in text for text in texts)
    assert all(part in text for part, text in zip(says, texts, strict=True))


def test_megatron_counts_a_stream_by_train_iters(tmp_path):
    recipe = tmp_path / "run.sh"
    recipe.write_text("megatron pt --model m --dataset d --streaming true --train_iters 9\n")
    assert not [f for f in check(recipe) if f.rule == "streaming"]
