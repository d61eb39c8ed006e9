"""The planner: counts against transformers, phases against arithmetic, and what a user types."""

import base64
import io
import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory import vllm
from swift_vlrft.memory.advice import changes
from swift_vlrft.memory.analytic import analytic
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.images import longest_row
from swift_vlrft.memory.models import count_parameters, known_models, read_model
from swift_vlrft.memory.phases import PHASES
from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.memory.settings import GIB, Settings, gpu_gib, parse_gpus
from swift_vlrft.memory.stages import batch_shape
from swift_vlrft.memory.states import trainable_parameters
from swift_vlrft.recipe.reader import read_recipe
from swift_vlrft.report.plan_text import HEADINGS

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.sh"))
run = CliRunner().invoke

BASE = Settings(
    model=read_model("Qwen/Qwen2.5-VL-3B-Instruct"),
    gpu_bytes=round(78.8 * GIB),
    processes=4,
    tuning="full",
    sharding="zero3",
    rollout="vllm_colocate",
    vllm_tp=1,
    vllm_utilization=0.4,
    sleep_level=1,
    offload_model=True,
    offload_optimizer=True,
    batch=2,
    accumulation=4,
    completion=512,
    grids=((1, 44, 44),),
    reference=True,
)

COMMAND = (
    "export NPROC_PER_NODE={processes} MAX_PIXELS=401408\n"
    "swift rlhf --rlhf_type grpo --model {model} --dataset x --tuner_type full "
    '--deepspeed zero3 --external_plugins "$(vlrft plugin)" --use_vllm true '
    "--vllm_mode colocate --vllm_gpu_memory_utilization 0.5 --vllm_tensor_parallel_size {tp} "
    "--sleep_level 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 "
    "--max_completion_length 512 --vllm_max_model_len 2048\n"
)


def recipe_file(folder, *, model="Qwen/Qwen2.5-VL-3B-Instruct", processes=4, tp=1, more=""):
    path = folder / "recipe.sh"
    text = COMMAND.format(model=model, processes=processes, tp=tp)
    path.write_text(text.rstrip() + more + "\n")
    return path


def phases(settings):
    return {phase.name: phase for phase in estimate(settings, analytic).phases}


def test_every_shipped_configuration_counts_as_transformers_builds_it():
    for name in known_models():
        model = read_model(name)
        assert model.parameters == count_parameters(model.config), name


def test_totals_are_those_of_the_published_checkpoints():
    # metadata.total_size / 2 of model.safetensors.index.json of each repository.
    published = {
        "Qwen2-VL-2B": 2_208_985_600,
        "Qwen2.5-VL-3B": 3_754_622_976,
        "Qwen2.5-VL-7B": 8_292_166_656,
        "Qwen2.5-7B": 7_615_616_512,
    }
    for name, total in published.items():
        assert read_model(name).parameters.total == total


def test_zero_states_agree_with_deepspeeds_own_estimator():
    """Its 18 bytes a parameter are ours (2 weights, 2 gradients, 12 optimizer) and 2 to spare."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    settings = replace(BASE, rollout="none", reference=False, train_vit=True, train_aligner=True)
    parts = phases(settings)["save"].parts
    ours = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    total = settings.model.parameters.total
    theirs = estimate_zero3_model_states_mem_needs(total, 0, 4, 1, False, False, True)[1]
    assert ours == pytest.approx(theirs * 16 / 18, rel=0.01)


def test_what_a_flag_changes_and_what_it_leaves():
    base = phases(BASE)
    awake = phases(replace(BASE, sleep_level=0))
    assert awake["backward"].total > base["backward"].total + 20 * GIB
    tall = phases(replace(BASE, vllm_utilization=0.6))
    assert tall["rollout"].total - base["rollout"].total == pytest.approx(0.2 * 78.8 * GIB)
    assert tall["backward"].total == base["backward"].total
    # In server mode the share is on other cards (ms-swift#3359 lowered it to no purpose).
    server = replace(BASE, rollout="vllm_server", sleep_level=0)
    assert (
        phases(server)["backward"].total
        == phases(replace(server, vllm_utilization=0.3))["backward"].total
    )
    assert phases(replace(BASE, reference=False))["backward"].parts.get("reference model") is None
    open_ = phases(replace(BASE, checkpoint_llm=False))
    assert open_["backward"].total > base["backward"].total + 5 * GIB
    # More completions per prompt do not change training memory in ms-swift (VLM-R1#122).
    assert phases(replace(BASE, generations=16))["backward"].total == base["backward"].total
    grouped = phases(replace(BASE, move_model_batches=16))
    assert grouped["weight sync"].total < base["weight sync"].total - 3 * GIB
    lora = phases(replace(BASE, tuning="lora"))
    assert lora["optimizer step"].parts["optimizer"] < GIB / 10
    eight = phases(replace(BASE, processes=8))
    assert eight["optimizer step"].parts["optimizer"] == pytest.approx(
        base["optimizer step"].parts["optimizer"] / 2, rel=0.01
    )


def test_offloading_moves_bytes_to_the_host():
    plan = estimate(replace(BASE, cpu_states=True, cpu_parameters=True), analytic)
    assert plan.host > 16 * BASE.model.parameters.llm * 0.9
    assert "optimizer" not in plan.phases[0].parts and plan.fits


def test_weights_that_no_card_holds_are_out_of_memory_and_said():
    settings = replace(
        BASE, model=read_model("Qwen2.5-VL-72B"), gpu_bytes=24 * GIB, vllm_utilization=0.9
    )
    plan = estimate(settings, analytic)
    assert plan.verdict == "out of memory"
    assert "vLLM start" in plan.failures[0] and "vllm_tensor_parallel_size" in plan.failures[0]


def test_advice_fits_and_is_ranked(tmp_path):
    made = plan_recipe(recipe_file(tmp_path), "4x24", quick=True)
    assert not made.plan.fits
    found = made.changes()
    assert found and all(change.plan.fits for change in found)
    assert [change.rank for change in found] == sorted(change.rank for change in found)
    assert found[0].rank < 10, "LoRA, another method, must not come first"


def test_every_change_is_a_flag_of_ms_swift():
    from dataclasses import fields

    from swift.arguments import RLHFArguments

    known = {field.name for field in fields(RLHFArguments)}
    settings = replace(BASE, checkpoint_llm=False, completion=2048, batch=4, sleep_level=0)
    everything = changes(settings) + changes(replace(settings, sharding="ddp", sleep_level=1))
    names = {name for change in everything for name in change.flags if not name.isupper()}
    assert len(names) > 10 and names <= known


@pytest.mark.parametrize(
    ("text", "count", "gib"),
    [
        *[("4x80", 4, 78.8), ("1x24", 1, 23.64), ("4xA100-80G", 4, 79.2), ("8xH20", 8, 95.1)],
        # The size in a name adds nothing to what a GPU has.
        *[("1xA10-24G", 1, 22.1), ("4xL40S-48GB", 4, 44.4), ("2xT4-16", 2, 14.7)],
        *[("2xNVIDIA L4 24GB", 2, 22.2), ("8xH20-141G", 8, 141 * 0.985), ("1xRTX 4090 D", 1, 23.6)],
    ],
)
def test_cards(text, count, gib):
    gpus = parse_gpus(text)
    assert gpus.count == count and gpus.gib == pytest.approx(gib)


@pytest.mark.parametrize(
    "text", ["80", "x80", "4x", "0x80", "4xB9000", "4x9999", "4xA100", "4xRTX PRO 6000"]
)
def test_cards_that_are_none(text):
    with pytest.raises(ValueError, match=r"--gpus|GPU|sizes"):
        parse_gpus(text)


def test_a_card_of_several_sizes_is_asked_back():
    with pytest.raises(ValueError, match="A100-40 or A100-80G|A100-80 or A100-40G"):
        gpu_gib("A100")


def test_a_checkpoints_folder_is_read_in_the_old_flat_form(tmp_path):
    config = dict(read_model("Qwen2.5-VL-3B").config)
    flat = {**config.pop("text_config"), **config}
    (tmp_path / "config.json").write_text(json.dumps(flat))
    assert read_model(str(tmp_path)).parameters.total == 3_754_622_976


LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}


def test_any_checkpoints_folder_is_planned_or_refused_in_one_line(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    # metadata of meta-llama/Llama-3.2-1B: 1.24 B parameters.
    assert read_model(str(tmp_path)).parameters.total == 1_235_814_400
    gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    (tmp_path / "config.json").write_text(json.dumps(gpt2))
    path = recipe_file(tmp_path, model=str(tmp_path))
    done = run(app, ["plan", str(path), "--gpus", "4x80", "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["how"] == "analytic"
    assert any("closed form: gpt2 cannot be run" in note for note in plan["assumptions"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([1], "no model_type"),
        ({**LLAMA, "hidden_size": "large"}, "cannot build what"),
        ({"model_type": "chatglm", "num_layers": 40}, "cannot build what"),
        ("{", "is not JSON"),
    ],
)
def test_a_config_that_is_none_is_refused_in_one_line(config, said, tmp_path):
    text = config if isinstance(config, str) else json.dumps(config)
    (tmp_path / "config.json").write_text(text)
    path = recipe_file(tmp_path, model=str(tmp_path))
    done = run(app, ["plan", str(path), "--gpus", "4x80"])
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert done.output.count("error:") == 1


def test_a_quantized_checkpoint_is_said_to_be_planned_in_16_bits(tmp_path):
    config = {**LLAMA, "quantization_config": {"bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = recipe_file(tmp_path, model=str(tmp_path))
    settings = settings_of(read_recipe(path), parse_gpus("4x80"))
    assert any("quantized" in note for note in settings.assumptions)


def test_the_plan_of_a_recipe(tmp_path):
    path = recipe_file(tmp_path)
    done = run(app, ["plan", str(path), "--gpus", "4x80", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["verdict"] == "fits" and plan["capacity_gib"] == 78.8
    assert plan["phases"]["rollout"]["KV cache"] > 20
    assert any("MAX_PIXELS" in note for note in plan["assumptions"])
    assert {change["change"] for change in plan["raise"]} >= {"num_generations 16"}
    small = run(app, ["plan", str(path), "--gpus", "4x24", "--quick"])
    assert small.exit_code == 1
    assert "out of memory in weight sync" in small.output
    assert "to make it fit, cheapest first" in small.output


def test_apply_writes_a_recipe_that_fits(tmp_path):
    path, out = recipe_file(tmp_path), tmp_path / "fits.sh"
    arguments = ["recipe", "apply", str(path), str(out), "--gpus", "4x24", "--quick"]
    assert run(app, arguments).exit_code == 0
    assert run(app, ["plan", str(out), "--gpus", "4x24", "--quick"]).exit_code == 0
    text = out.read_text()
    assert '"$(vlrft plugin)"' in text and "changed by vlrft" in text
    assert subprocess.run(["bash", "-n", str(out)], check=False).returncode == 0
    before, after = read_recipe(path), read_recipe(out)
    for name in ("model", "dataset", "use_vllm", "tuner_type", "max_completion_length"):
        assert after.values(name) == before.values(name)


def test_without_torch_a_coarser_plan_answers_and_says_so(tmp_path):
    path = recipe_file(tmp_path)
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        f"sys.argv = ['vlrft', 'plan', {str(path)!r}, '--gpus', '4x80']\n"
        "from swift_vlrft.cli import app; app()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not traced: torch is not installed" in " ".join(done.stdout.split())


def test_the_readme_shows_what_the_planner_prints(tmp_path):
    """Its numbers, by the closed form where the peak is not a pass of the trainer."""
    readme = (REPOSITORY / "README.md").read_text()
    (shown,) = re.findall(r"```text\n( *detection_4x80g.*?)```", readme, re.S)
    path = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    done = run(app, ["plan", str(path), "--gpus", "4x24"], env={"COLUMNS": "80"})
    printed = {" ".join(line.split()) for line in done.output.splitlines()}
    for line in shown.splitlines():
        assert " ".join(line.split()) in printed, line
    out = tmp_path / "smaller.sh"
    done = run(app, ["recipe", "apply", str(path), str(out), "--gpus", "4x24"])
    assert "move_model_batches 16" in done.stdout and "move_model_batches 16" in out.read_text()


def test_a_recipe_from_nothing_fits(tmp_path):
    out = tmp_path / "new.sh"
    arguments = ["--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--task", "detection", "--quick"]
    done = run(app, ["recipe", "new", str(out), *arguments, "--gpus", "8x24"])
    assert done.exit_code == 0, done.output
    recipe = read_recipe(out)
    assert estimate(settings_of(recipe, parse_gpus("8x24")), analytic).fits
    assert recipe.values("reward_funcs") == ("vlrft_detection_iou", "vlrft_detection_format")
    checked = run(app, ["check", str(out), "--json"])
    assert checked.exit_code == 0 and json.loads(checked.stdout)["findings"] == []


@pytest.mark.parametrize(
    ("changed", "arguments", "said"),
    [
        (
            {"model": "Qwen/Qwen9-VL"},
            [],
            "model 'Qwen/Qwen9-VL': no configuration of it is shipped",
        ),
        (
            {"model": "adapter"},
            [],
            "model 'adapter' is an adapter, without a config.json; give the",
        ),
        ({"tp": 3}, [], "3 does not divide the 4 processes"),
        ({"processes": 8}, [], "starts 8 processes"),
        ({"more": " --deepspeed nothing.json"}, [], "neither zero0 to zero3_offload nor"),
        ({"more": " --max_completion_length many"}, [], "a whole number is needed"),
        ({"more": ' --max_completion_length "$(cat x)"'}, [], "cannot be read without"),
        ({"more": " --model_kwargs '{'"}, [], "neither a JSON object nor its file"),
        ({"more": " --vllm_mode sideways"}, [], "--vllm_mode sideways: known are server, colocate"),
        ({}, ["--dataset", "/no/such"], "/no/such does not exist"),
        ({}, ["--gpus", "lots"], "--gpus lots: not of the form"),
    ],
)
def test_bad_input_is_one_line(changed, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    path = recipe_file(tmp_path, **changed)
    given = ["plan", str(path), "--quick", "--gpus", "4x80", *arguments]
    done = run(app, given)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert "Traceback" not in done.output


def planned(path, gpus="4x80", nodes=None, **environment):
    return settings_of(read_recipe(path, environment=environment), parse_gpus(gpus), nodes=nodes)


def flags_of(settings, name):
    """The flags of every change that sets ``name``."""
    return [change.flags for change in changes(settings) if name in change.flags]


def test_without_a_length_vllm_must_hold_a_row_of_the_models_context(tmp_path):
    more = " --tuner_type lora --deepspeed zero2 --max_length 1024 --offload_model true"
    path = recipe_file(tmp_path, processes=1, more=more)
    path.write_text(path.read_text().replace("--vllm_max_model_len 2048", ""))
    made = plan_recipe(path, "1x24", quick=True)
    plan = made.plan
    assert plan.settings.vllm_max_length == 128000
    assert any("128000 tokens" in note for note in plan.settings.assumptions)
    assert "128000 tokens" in plan.failures[0] and "--vllm_max_model_len" in plan.failures[0]
    first = made.changes()[0]
    assert first.flags == {"vllm_max_model_len": "2048"}


def test_every_shipped_model_has_a_context():
    assert all(read_model(name).context for name in known_models())
    assert read_model("GLM-4.1V-9B-Thinking").context == 65536
    assert read_model("Qwen3-30B-A3B-Instruct-2507").context == 262144


def test_vllm_profiles_the_checkpoints_largest_image_whatever_max_pixels(tmp_path):
    assert vllm.largest_image(BASE.model) == 65536  # 16384 tokens of 2 x 2 patches
    assert vllm.largest_image(read_model("GLM-4.1V-9B")) == 6144 * 4
    path = recipe_file(tmp_path)
    sizes = {vllm.engine(planned(path, MAX_PIXELS=n)).profile for n in ("200704", "802816")}
    assert len(sizes) == 1 and sizes.pop() > 2.5 * GIB
    # A card holds one head of keys and values at least (Qwen2.5-VL-3B has two).
    rows = [vllm.row_bytes(replace(BASE, vllm_tp=tp), 100) for tp in (1, 2, 4)]
    assert rows == [rows[0], rows[0] // 2, rows[0] // 2]


def test_cards_and_machines_are_the_recipes_own(tmp_path):
    path = recipe_file(tmp_path)
    assert planned(path).processes == 4
    assert planned(path, NNODES="3").processes == 12
    assert planned(path, nodes=2, NNODES="3").processes == 8
    with pytest.raises(ValueError, match="NNODES=1:2"):
        planned(path, NNODES="1:2")
    path.write_text(path.read_text().replace("export NPROC_PER_NODE=4 ", "export "))
    one = planned(path, CUDA_VISIBLE_DEVICES="0")
    assert one.processes == 1 and any("names 1 of 4" in note for note in one.assumptions)
    assert planned(path, CUDA_VISIBLE_DEVICES="0,1").processes == 2
    assert planned(path, "2x80", CUDA_VISIBLE_DEVICES="0,1,2,3").processes == 2
    two = next(file for file in RECIPES if "2nodes" in file.name)
    assert planned(two, "8x80").processes == 16


@pytest.mark.parametrize("gpus", ["8x24", "8x16"])
def test_a_recipe_from_nothing_for_two_machines_asks_for_its_place(gpus, tmp_path):
    out = tmp_path / "new.sh"
    given = ["--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--quick", "--nodes", "2"]
    done = run(app, ["recipe", "new", str(out), *given, "--gpus", gpus])
    assert done.exit_code == 0, done.output
    assert planned(out, gpus).processes == 16
    here = {"PATH": os.environ["PATH"]}
    started = subprocess.run(["bash", str(out)], env=here, capture_output=True, text=True)
    assert started.returncode and "NODE_RANK" in started.stderr


def test_a_changed_recipe_for_two_machines_asks_for_its_place(tmp_path):
    path, out = recipe_file(tmp_path), tmp_path / "fits.sh"
    arguments = ["recipe", "apply", str(path), str(out), "--gpus", "4x16", "--nodes", "2"]
    assert run(app, [*arguments, "--quick"]).exit_code == 0
    assert planned(out, "4x16").processes == 8 and "${NODE_RANK:?" in out.read_text()


def test_pixels_are_advised_where_the_run_reads_them(tmp_path):
    path = recipe_file(tmp_path)
    path.write_text(path.read_text().replace("MAX_PIXELS=401408", ""))
    plain = planned(path, MAX_PIXELS="401408")
    assert {"MAX_PIXELS": "200704"} in flags_of(plain, "MAX_PIXELS")
    tokens = planned(path, MAX_PIXELS="200704", IMAGE_MAX_TOKEN_NUM="512")
    assert tokens.image_tokens > 400 and not flags_of(tokens, "MAX_PIXELS")
    assert {"IMAGE_MAX_TOKEN_NUM": "256"} in flags_of(tokens, "IMAGE_MAX_TOKEN_NUM")
    glm = recipe_file(tmp_path, model="zai-org/GLM-4.1V-9B-Thinking", more=" --max_pixels 401408")
    assert planned(glm).image_tokens < 520 and not flags_of(planned(glm), "MAX_PIXELS")
    assert {"max_pixels": "200704"} in flags_of(planned(glm), "max_pixels")
    path = recipe_file(tmp_path, more=""" --model_kwargs '{"max_pixels": 200704, "fps": 2}'""")
    given = planned(path)
    assert given.image_tokens <= 256
    larger = replace(given, grids=((1, 44, 44),))
    (flags,) = flags_of(larger, "model_kwargs")
    assert json.loads(flags["model_kwargs"]) == {"max_pixels": 200704, "fps": 2}


def test_a_recipe_for_glm_bounds_its_images_by_the_flag(tmp_path):
    out = tmp_path / "new.sh"
    given = ["--model", "zai-org/GLM-4.1V-9B-Thinking", "--quick", "--gpus", "8x80"]
    done = run(app, ["recipe", "new", str(out), *given])
    assert done.exit_code == 0, done.output
    assert read_recipe(out).get("max_pixels") == "602112" and "MAX_PIXELS" not in out.read_text()


def test_a_smaller_batch_keeps_the_rows_of_a_generation(tmp_path):
    more = " --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --num_generations 16"
    for steps in (1, 2, 4):
        path = recipe_file(tmp_path, more=f"{more} --steps_per_generation {steps}")
        found = flags_of(planned(path), "per_device_train_batch_size")
        assert len(found) == 2
        for flags in found:
            size, each = (flags[n] for n in ("per_device_train_batch_size", "steps_per_generation"))
            assert int(size) * int(each) == 4 * steps
        for change in plan_recipe(path, "4x80", quick=True).headroom():
            if size := change.flags.get("per_device_train_batch_size"):
                assert int(size) * int(change.flags["steps_per_generation"]) == 4 * steps
    unset = planned(recipe_file(tmp_path, more=more))
    assert not flags_of(unset, "steps_per_generation")


@pytest.mark.parametrize(
    ("more", "shares", "liger"),
    [
        ("", True, True),
        (" --padding_free true", False, False),
        (" --sequence_parallel_size 2", False, False),
        (" --external_plugins other.py", False, True),
        (" --log_entropy true", True, False),
        (" --delta 1.5", True, False),
        (" --top_entropy_quantile 0.2", True, False),
    ],
)
def test_what_cannot_work_is_not_advised(more, shares, liger, tmp_path):
    settings = planned(recipe_file(tmp_path, more=more))
    assert bool(flags_of(settings, "VLRFT_SHARED_PREFIX")) == shares
    assert bool(flags_of(settings, "use_liger_kernel")) == liger
    if not shares:
        asked = planned(recipe_file(tmp_path, more=more), VLRFT_SHARED_PREFIX="1")
        assert not asked.shared_prefix
        assert "VLRFT_SHARED_PREFIX changes nothing here" in " ".join(asked.assumptions)


def test_old_log_probabilities_are_planned_in_every_run(tmp_path):
    settings = planned(recipe_file(tmp_path, more=" --beta 0"))
    assert not settings.reference and "old/reference log-probabilities" in phases(settings)


def test_states_of_each_way_to_train(tmp_path):
    def parts(phase="backward", **values):
        made = replace(BASE, rollout="none", reference=False, **values)
        return phases(made)[phase].parts, trainable_parameters(made)

    # LoRA without DeepSpeed: float32 adapters, gradients and two moments (PEFT).
    alone, count = parts(tuning="lora", sharding="none", processes=1)
    under, _ = parts(tuning="lora", sharding="zero2", processes=1)
    assert alone["gradients"] == 4 * count and alone["optimizer"] == 8 * count
    assert alone["weights"] - under["weights"] == 2 * count
    # accelerate upcasts what trains under FSDP, and only that.
    low, count = parts(sharding="fsdp")
    high, _ = parts(sharding="fsdp", float32_trainable=True)
    assert high["weights"] - low["weights"] == pytest.approx(2 * count / 4, abs=4)
    assert high["gradients"] == pytest.approx(4 * count / 4, abs=4)
    # Stage 0 divides nothing; stages 1 and 2 take their bucket whatever trains.
    zero0, count = parts(sharding="zero0")
    assert zero0["optimizer"] == 12 * count and zero0["gradients"] == 2 * count
    assert parts("optimizer step", sharding="zero0")[0]["temporaries"] == 4 * count
    assert parts(tuning="lora", sharding="zero1")[0]["temporaries"] >= 2 * 2 * 10**8


def test_deepspeed_keeps_the_weights_that_train_when_the_model_is_offloaded():
    count = trainable_parameters(BASE)
    for sharding, share in (("zero2", 1), ("zero3", 4)):
        made = phases(replace(BASE, sharding=sharding))
        assert made["rollout"].parts["weights"] == 2 * count // share
        # Copied back beside the flat buffer, until the step makes one of the two.
        extra = made["backward"].parts["weights"] - made["save"].parts["weights"]
        assert extra == 2 * count // share
        assert made["weight sync"].parts["weights"] == made["save"].parts["weights"]
    assert "weights" not in phases(replace(BASE, sharding="zero0"))["rollout"].parts
    assert "weights" not in phases(replace(BASE, cpu_parameters=True))["rollout"].parts
    lora = phases(replace(BASE, tuning="lora"))["rollout"].parts
    assert lora.get("weights", 0) < GIB / 50


def test_a_server_recipe_says_that_the_servers_gpus_are_not_planned():
    (path,) = [file for file in RECIPES if "server" in file.name]
    notes = " ".join(planned(path, "6x80").assumptions)
    assert "the rollout server's GPUs are not planned" in notes
    assert "vllm_max_model_len" not in notes


def test_a_data_set_plans_for_its_longest_row(tmp_path):
    from PIL import Image

    rows = []
    for name, size in (("small.png", (320, 240)), ("large.png", (1400, 700))):
        Image.new("RGB", size).save(tmp_path / name)
        rows.append({"images": [name], "messages": [{"role": "user", "content": "x" * 300}]})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8-sig")
    longest = longest_row(tmp_path / "rows.jsonl", BASE.model.image_rule, 3136, 401408)
    assert longest.images == ((1400, 700),) and longest.text == 100
    path = recipe_file(tmp_path)
    given = ["plan", str(path), "--quick", "--gpus", "4x80", "--json"]
    plan = json.loads(run(app, [*given, "--dataset", str(tmp_path / "rows.jsonl")]).stdout)
    assert any("868 x 448" in note or "868 x 434" in note or "x 4" in note
               for note in plan["assumptions"] if "longest row of" in note)  # fmt: skip


def test_any_set_that_training_reads_has_a_longest_row(tmp_path):
    from PIL import Image

    rule = BASE.model.image_rule
    encoded = io.BytesIO()
    Image.new("RGB", (640, 480)).save(encoded, "WEBP")
    url = "data:image/webp;base64," + base64.b64encode(encoded.getvalue()).decode()
    turns = [{"role": "user", "content": "hello"}]
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([{"images": [url], "messages": turns}]))
    assert longest_row(rows, rule, 3136, 401408).images == ((640, 480),)
    (tmp_path / "1.webp").write_bytes(encoded.getvalue())
    (tmp_path / "instances_train.json").write_text(
        json.dumps(
            {
                "images": [{"id": 1, "file_name": "1.webp", "width": 640, "height": 480}],
                "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [9, 9, 20, 20]}],
                "categories": [{"id": 1, "name": "dog"}],
            }
        )
    )
    longest = longest_row(tmp_path / "instances_train.json", rule, 3136, 401408)
    assert longest.images == ((640, 480),) and longest.text > 50
    rows.write_text(json.dumps([{"picture": url, "question": "x"}]))
    with pytest.raises(ValueError, match="has the columns picture, question; one of image, "):
        longest_row(rows, rule, 3136, 401408)


def test_a_plan_for_a_set_reads_the_model_by_its_older_flag(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"query": "x"}\n')
    path = recipe_file(tmp_path)
    path.write_text(path.read_text().replace("--model ", "--model_id_or_path "))
    given = ["plan", str(path), "--quick", "--gpus", "4x80", "--json"]
    plan = json.loads(run(app, [*given, "--dataset", str(tmp_path / "rows.jsonl")]).stdout)
    assert any("1 tokens (characters/3)" in note for note in plan["assumptions"])


ONE_A100 = (
    "swift sft --model zai-org/{model} --dataset x --split_dataset_ratio 0.1 --tuner_type lora "
    "--lora_rank 8 --lora_dropout 0.1 --target_modules query_key_value --torch_dtype bfloat16 "
    "--max_length {length} --max_new_tokens 512 --gradient_checkpointing false "
    "--use_logits_to_keep false --predict_with_generate true --per_device_eval_batch_size 4 "
    "--gradient_accumulation_steps 1 --per_device_train_batch_size {batch}\n"
)


def plan_on_one_a100(folder, batch, *, model="glm-4v-9b", length=2626, quick=()):
    path = folder / "sft.sh"
    path.write_text(ONE_A100.format(model=model, length=length, batch=batch))
    done = run(app, ["plan", str(path), "--gpus", "1xA100-80G", "--json", *quick])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


@pytest.mark.slow
def test_glm_4v_on_one_a100_as_published(tmp_path):
    """LoRA with the ViT in the makers' scripts, which recompute nothing: "at least 70GB" at 2,048
    tokens (CogAgent's README), and a user's run out of memory with two rows a GPU, which a batch
    of one mended.
    """
    published = plan_on_one_a100(tmp_path, 1, model="cogagent-9b-20241220", length=2048)
    assert published["how"] == "traced" and published["verdict"] != "out of memory"
    assert 70 <= published["peak_gib"] <= published["capacity_gib"]
    two = plan_on_one_a100(tmp_path, 2)
    assert two["verdict"] == "out of memory" and two["phase"] == "backward"
    assert two["phases"]["backward"]["activations ViT"] > 50
    assert two["changes"][0]["flags"].keys() >= {"vit_gradient_checkpointing"}


def test_evaluation_that_writes_answers_is_planned(tmp_path):
    plan = plan_on_one_a100(tmp_path, 1, quick=["--quick"])
    assert "rollout" not in plan["phases"] and plan["phases"]["eval"]["KV cache"] > 0.2
    assert any("rows of 2626 tokens" in note for note in plan["assumptions"])
    assert any("1120 x 1120 pixels, 1600 tokens" in note for note in plan["assumptions"])
    assert any("names layers of the ViT" in note for note in plan["assumptions"])
    assert not any("pixels" in c["change"] or "length" in c["change"] for c in plan["changes"])
    settings = replace(BASE, rollout="none", eval_generates=True, eval_batch=64, completion=4096)
    plan = estimate(settings, analytic)
    assert plan.peak.name == "eval"
    assert any(change.flags == {"per_device_eval_batch_size": "1"} for change in changes(settings))


@pytest.mark.parametrize("limit", ["export MAX_PIXELS=200704\n", "", "--max_pixels 200704"])
def test_nothing_makes_glm_4vs_images_smaller(limit, tmp_path):
    path = recipe_file(tmp_path, model="THUDM/glm-4v-9b", more=f" {limit}" * ("--" in limit))
    path.write_text(limit * ("export" in limit) + path.read_text())
    settings = planned(path)
    assert settings.image_tokens == 1600 and settings.patches == 6400
    assert settings.model.vit_layers == 63 and settings.model.kv_heads == 2
    assert not any("pixels" in name.lower() for c in changes(settings) for name in c.flags)


def test_a_new_recipe_for_glm_4v_limits_no_pixels(tmp_path):
    out = tmp_path / "new.sh"
    arguments = ["--model", "zai-org/glm-4v-9b", "--task", "classification", "--quick"]
    done = run(app, ["recipe", "new", str(out), *arguments, "--gpus", "8x80"])
    assert done.exit_code == 0, done.output
    assert "pixels" not in out.read_text().lower()
    assert json.loads(run(app, ["check", str(out), "--json"]).stdout)["findings"] == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_run_is_compared_with_its_plan(tmp_path, encoding):
    path = recipe_file(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    rows = [20.0, 9.0, None]  # the first line holds the largest
    lines = [json.dumps({"memory/backward_allocated_gib": value}) + "\n" for value in rows]
    text = "".join(lines) + '{"memory/backward'  # cut short by a killed run
    (folder / "logging.jsonl").write_text(text, encoding=encoding)
    given = ["plan-compare", str(path), str(folder), "--quick", "--gpus", "4x80", "--json"]
    (row,) = json.loads(run(app, given).stdout)
    assert row["phase"] == "backward" and row["allocated"] == 20.0
    assert 10 < row["planned"] < 30
    nothing = run(app, ["plan-compare", str(path), str(tmp_path / "none"), "--gpus", "4x80"])
    assert nothing.exit_code == 2 and "no memory/ values" in nothing.output


PACKS = " --per_device_train_batch_size 16 --gradient_accumulation_steps 1 --num_generations 8"


def test_shared_prefixes_are_planned_and_a_larger_micro_batch_fits(tmp_path, monkeypatch):
    monkeypatch.delenv("VLRFT_SHARED_PREFIX", raising=False)
    path = recipe_file(tmp_path, more=PACKS)

    def largest(**environment):
        recipe = read_recipe(path, environment=environment)
        settings = replace(settings_of(recipe, parse_gpus("4x80")), checkpoint_llm=False)
        sizes = [n for n in (4, 8, 16, 24, 32, 48, 64)
                 if estimate(replace(settings, batch=n), analytic).fits]  # fmt: skip
        return settings, max(sizes)

    separate, rows = largest()
    shared, more = largest(VLRFT_SHARED_PREFIX="1")
    assert not separate.shared_prefix and shared.shared_prefix
    assert shared.prompts == 2 and replace(shared, batch=4).prompts == 1
    assert more > rows
    assert any("each prompt of a micro-batch" in note for note in shared.assumptions)
    # In the recipe itself as well as from the shell; one row has nothing to share.
    path.write_text("export VLRFT_SHARED_PREFIX=1\n" + path.read_text())
    assert settings_of(read_recipe(path, environment={}), parse_gpus("4x80")).shared_prefix
    one = recipe_file(tmp_path, more=" --per_device_train_batch_size 1")
    recipe = read_recipe(one, environment={"VLRFT_SHARED_PREFIX": "1"})
    settings = settings_of(recipe, parse_gpus("4x80"))
    assert not settings.shared_prefix and "one row" in " ".join(settings.assumptions)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("shared_prefix_operations.json", "Qwen/Qwen2.5-VL-3B-Instruct"),
        ("shared_prefix_qwen3_5.json", "Qwen/Qwen3.5-4B"),
    ],
)
def test_shared_prefixes_save_what_their_own_benchmark_counted(file, name):
    """What autograd keeps, counted on the real forward pass (benchmarks/shared_prefix.py), where
    keys are repeated for every head; a GPU's kernel takes them as they are, so that ours saves
    more, but never more than the ratio of the tokens.
    """
    results, base = (
        REPOSITORY / "benchmarks" / "results" / file,
        replace(BASE, model=read_model(name)),
    )
    for row in json.loads(results.read_text())["rows"]:
        prompt, completion, count = row["prompt"], row["completion"], row["G"]
        rows = replace(
            base, batch=count, generations=count, prompt=prompt, completion=completion, grids=(),
            checkpoint_llm=False, train_vit=False,
        )  # fmt: skip
        kept = [
            analytic(s.model, batch_shape(s)).peaks["forward of the LLM"]["activations LLM"]
            for s in (rows, replace(rows, shared_prefix=True))
        ]
        tokens = count * (prompt + completion) / (prompt + count * completion)
        assert row["kept_ratio"] <= kept[0] / kept[1] <= tokens


def test_the_table_fits_into_a_terminal_of_80_columns(tmp_path):
    done = run(app, ["plan", str(recipe_file(tmp_path)), "--gpus", "4x80", "--quick"],
               env={"COLUMNS": "80"})  # fmt: skip
    table = done.output.split("fits:")[0]
    assert "…" not in table and all(len(line) <= 80 for line in table.splitlines())
    peak = re.search(r"peak (\d+\.\d) GiB in (\w+)", done.output)
    (line,) = [line for line in table.splitlines() if line.startswith(peak[2])]
    *parts, total = [float(cell) for cell in re.findall(r"\d+\.\d", line)]
    assert total == float(peak[1]) == pytest.approx(sum(parts), abs=0.3)


def test_the_page_explains_every_head_of_the_table():
    text = (REPOSITORY / "docs" / "plan.md").read_text()
    for name, head in HEADINGS.items():
        row = f"\n| LLM, ViT | {name}" if head == "LLM" else f"\n| {head} | {name}"
        assert head in ("ViT", "sum") or row in text, head
    (table,) = re.findall(r"## Phases\n\n.*?\n\|---.*?\n(.*?)\n\n", text, re.S)
    named = [name for line in table.splitlines() for name in line.split("|")[1].strip().split(", ")]
    short = {"old/reference log-probabilities": "log-probs", "optimizer step": "step"}
    assert named == [short.get(phase, phase) for phase in PHASES]


def test_the_pages_say_how_many_published_runs_are_predicted_right():
    """In closed form; traced, the same verdicts come out (docs/plan.md's peaks are traced)."""
    script = runpy.run_path(str(REPOSITORY / "benchmarks" / "memory_cases.py"))
    cases = list(script["read_cases"](script["FILE"]))
    assert all(case["score_it"] and case["url"].startswith("https://") for case in cases)
    results = [script["judge"](case, trace=False) for case in cases]
    right, scored = sum(result["agrees"] for result in results), len(results)
    pages = {
        "README.md": f"{right} of {scored} published runs are predicted correctly",
        "README_CN.md": f"{scored} 个公开报告的训练中有 {right} 个预测正确",
        "docs/plan.md": f"Of the {scored} with enough stated, {right} verdicts agree",
    }
    for page, said in pages.items():
        assert said in " ".join((REPOSITORY / page).read_text().split()), page
    table = (REPOSITORY / "docs" / "plan.md").read_text()
    rows = re.findall(
        r"^\| `([\w-]+)` \|.*(?:fits|tight|out of memory)(.*?) \| \S+ of", table, re.M
    )
    assert dict(rows) == {r["id"]: "" if r["agrees"] else " **missed**" for r in results}


def test_published_cases_are_judged_and_counted(tmp_path):
    row = {
        "id": "made-a",
        "score_it": True,
        "framework": "TRL",
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "algorithm": "grpo",
        "tuning": "full",
        "gpu_mem_gb": 96,
        "train_gpus": 4,
        "parallelism": "DDP",
        "per_device_train_batch_size": 1,
        "max_completion_length": 512,
        "max_prompt_length": 256,
        "outcome": "oom",
    }
    rows = [row, {**row, "id": "made-b", "tuning": "lora", "outcome": "fits"}]
    rows.append({**row, "id": "made-c", "model": "nobody/knows", "outcome": "fits"})
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = REPOSITORY / "benchmarks" / "memory_cases.py"
    done = subprocess.run(
        [sys.executable, str(script), str(file), "--json", "--analytic"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1] == {"right": 2, "scored": 3}
    assert "no configuration" in lines[2]["why"]


def test_a_model_that_is_not_shipped_is_planned_by_its_size():
    path = REPOSITORY / "benchmarks" / "memory_cases.py"
    model_of_size = runpy.run_path(str(path))["model_of_size"]
    for name, sees, billions in (
        ("meta-llama/Llama-3.2-3B-Instruct", False, 3),
        ("OpenGVLab/InternVL2_5-26B", True, 26),
        ("Qwen/Qwen3-Omni-30B-A3B-Instruct", True, 30),
    ):
        model = model_of_size(name, sees=sees)
        assert model.parameters.total == pytest.approx(billions * 1e9, rel=0.05)
        assert model.sees == sees and "by the size in its name" in model.source


def test_a_plan_refuses_what_only_bash_knows(tmp_path):
    def settings(before="", after="", **given):
        path = recipe_file(tmp_path)
        path.write_text(before + path.read_text().rstrip() + after + "\n")
        return settings_of(read_recipe(path, environment=given), parse_gpus("4x80"))

    small = '[ "${DEBUG:-0}" = 1 ] && export MAX_PIXELS=50176\n'
    lines = recipe_file(tmp_path).read_text().splitlines(keepends=True)
    path = tmp_path / "conditional.sh"
    path.write_text("".join([lines[0], small, *lines[1:]]))
    with pytest.raises(ValueError, match=r"only bash knows MAX_PIXELS \(line 2: .*`&&` of line 2"):
        settings_of(read_recipe(path, environment={}), parse_gpus("4x80"))
    path.write_text("".join([lines[0], "export NPROC_PER_NODE=$(count)\n", *lines[1:]]))
    made = settings_of(read_recipe(path, environment={}), parse_gpus("8x80"))
    assert made.processes == 8 and any("one for each GPU" in said for said in made.assumptions)
    with pytest.raises(ValueError, match="--deepspeed .* cannot be read without running"):
        settings(after=" --deepspeed $(choose)")
    with pytest.raises(ValueError, match="--optim cannot be read"):
        settings(before='[ -n "$X" ] && MORE="--optim sgd"\n', after=" $MORE")
    assert any("planned as if not" in said for said in settings("source none.sh\n").assumptions)
