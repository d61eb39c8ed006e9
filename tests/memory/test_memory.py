"""The planner: counts against transformers, phases against arithmetic, and what a user types."""

import json
import re
import runpy
import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from PIL import Image
from support.command_line import vlrft
from support.drawn_rows import write_coco
from support.nightly import first_now
from support.peak_memory import peak_of

from swift_vlrft.memory import vllm
from swift_vlrft.memory.activations import LORA_SAVED, evaluating_pass, training_passes
from swift_vlrft.memory.advice import changes
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.images import longest_row
from swift_vlrft.memory.models import count_parameters, known_models, read_model
from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.memory.settings import GIB, Settings, parse_gpus
from swift_vlrft.memory.states import trainable_parameters
from swift_vlrft.recipe.run import read_run

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
RECIPES_FOLDER = REPOSITORY / "recipes"

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

GRPO = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --dataset x "
    '--tuner_type full --deepspeed zero3 --external_plugins "$(vlrft plugin)" --use_vllm true '
    "--vllm_mode colocate --vllm_gpu_memory_utilization 0.5 "
    "--sleep_level 1 --per_device_train_batch_size 2 --gradient_accumulation_steps 4 "
    "--max_completion_length 512 --vllm_max_model_len 2048"
)
PLANS = list(map(json.loads, Path(__file__).with_name("plans.jsonl").open()))


def recipe_file(folder, more="", *, processes=4):
    path = folder / "recipe.sh"
    path.write_text(f"export NPROC_PER_NODE={processes} MAX_PIXELS=401408\n{GRPO}{more}\n")
    return path


def printed_plan(path, *more, gpus="4x80"):
    done = vlrft("plan", path, "--gpus", gpus, "--json", *more)
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


def planned(path, gpus="4x80", nodes=None, **environment):
    return settings_of(read_run(path, environment), parse_gpus(gpus), nodes=nodes)


def phases(settings):
    return {phase.name: phase for phase in estimate(settings).phases}


def flags_of(settings, name):
    """The flags of every change that sets ``name``."""
    return [change.flags for change in changes(settings) if name in change.flags]


# By type, its first; the other sizes of a type run nightly.
TYPES = {read_model(name).type: name for name in reversed(known_models())}


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", first_now(sorted(TYPES.values()), set(known_models()) - set(TYPES.values()))
)
def test_every_shipped_configuration_counts_as_transformers_builds_it(names):
    for name in names:
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
    assert {name: read_model(name).parameters.total for name in published} == published


@pytest.mark.slow
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

    def more(phase, before=base, **values):
        """GiB that the phase takes more with these values."""
        return (phases(replace(BASE, **values))[phase].total - before[phase].total) / GIB

    assert more("backward", sleep_level=0) > 20
    assert more("rollout", vllm_utilization=0.6) == pytest.approx(0.2 * 78.8)
    assert more("backward", vllm_utilization=0.6) == 0
    # In server mode the share is on other cards (ms-swift#3359 lowered it to no purpose).
    server = {"rollout": "vllm_server", "sleep_level": 0}
    apart = phases(replace(BASE, **server))
    assert more("backward", apart, vllm_utilization=0.3, **server) == 0
    without = phases(replace(BASE, reference=False, old_logps=True))
    assert "reference model" not in without["backward"].parts
    assert "old/reference log-probabilities" in without
    assert more("backward", checkpoint_llm=False) > 5
    # More completions per prompt do not change training memory in ms-swift (VLM-R1#122).
    assert more("backward", generations=16) == 0
    assert more("weight sync", move_model_batches=16) < -3
    states = base["optimizer step"].parts["optimizer"]
    lora, eight = (
        phases(replace(BASE, **values))["optimizer step"].parts["optimizer"]
        for values in ({"tuning": "lora"}, {"processes": 8})
    )
    assert lora < GIB / 10 and eight == pytest.approx(states / 2, rel=0.01)
    on_host = estimate(replace(BASE, cpu_states=True, cpu_parameters=True))
    assert on_host.host > 16 * BASE.model.parameters.llm * 0.9
    assert "optimizer" not in on_host.phases[0].parts and on_host.fits


def test_weights_that_no_card_holds_are_out_of_memory_and_said():
    model = read_model("Qwen2.5-VL-72B")
    settings = replace(BASE, model=model, gpu_bytes=24 * GIB, vllm_utilization=0.9)
    plan = estimate(settings)
    assert plan.verdict == "out of memory"
    assert "vLLM start" in plan.failures[0] and "vllm_tensor_parallel_size" in plan.failures[0]


@pytest.mark.parametrize(
    ("text", "count", "gib"),
    [
        *[("4x80", 4, 78.8), ("1x24", 1, 23.64), ("4xA100-80G", 4, 79.2), ("8xH20", 8, 95.1)],
        *[("1x4090", 1, 23.6), ("2xa10", 2, 22.1), ("2x48GB", 2, 48 * 0.985)],
    ],
)
def test_cards(text, count, gib):
    gpus = parse_gpus(text)
    assert gpus.count == count and gpus.gib == pytest.approx(gib)


@pytest.mark.parametrize(
    "text", ["80", "x80", "4x", "0x80", "4xB9000", "4x9999", "4xA100", "4xRTX 4090", "1xA10-24"]
)
def test_cards_that_are_none(text):
    with pytest.raises(ValueError, match="A100-40, A100-80" if "A100" in text else "--gpus|GPU"):
        parse_gpus(text)


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


@pytest.mark.slow
def test_any_checkpoints_folder_is_planned(tmp_path):
    def model_of(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return read_model(str(tmp_path))

    # metadata of meta-llama/Llama-3.2-1B: 1.24 B parameters.
    assert model_of(LLAMA).parameters.total == 1_235_814_400
    config = dict(read_model("Qwen2.5-VL-3B").config)
    old_and_flat = {**config.pop("text_config"), **config}
    assert model_of(old_and_flat).parameters.total == 3_754_622_976
    path = recipe_file(tmp_path, f" --model {tmp_path}")
    model_of({**LLAMA, "quantization_config": {"bits": 4}})
    with pytest.raises(ValueError, match="is quantized, which is not planned"):
        planned(path)
    model_of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 99})
    plan = printed_plan(path)
    assert plan["verdict"] == "fits"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([1], "model_type"),
        ({**LLAMA, "hidden_size": "large"}, "cannot build"),
        ({k: v for k, v in LLAMA.items() if k != "num_hidden_layers"}, "not say num_hidden_layers"),
        ({"model_type": "chatglm", "num_layers": 40}, "cannot build"),
        ("{", "JSON"),
    ],
)
def test_a_config_that_is_none_is_refused_in_one_line(config, said, tmp_path):
    text = config if isinstance(config, str) else json.dumps(config)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        read_model(str(tmp_path))
    assert "\n" not in str(error.value)


def test_the_plan_of_a_recipe(tmp_path):
    path = recipe_file(tmp_path)
    plan = printed_plan(path)
    assert plan["verdict"] == "fits" and plan["capacity_gib"] == 78.8
    assert plan["phases"]["rollout"]["KV cache"] > 20
    assert any("MAX_PIXELS" in note for note in plan["assumptions"])
    small = vlrft("plan", path, "--gpus", "4x24")
    assert small.exit_code == 1
    assert "in the phase `weight sync`" in small.output and "cheapest first" in small.output
    advised = plan_recipe(path, "4x24").changes()
    assert advised and all(change.plan.fits for change in advised)
    assert advised[0].rank < 10, "LoRA, another method, must not come first"
    for listed in (advised, changes(planned(path, "4x24"))):
        assert [change.rank for change in listed] == sorted(change.rank for change in listed)


def test_the_table_adds_up_and_fits_into_a_terminal_of_80_columns(tmp_path):
    done = vlrft("plan", recipe_file(tmp_path), "--gpus", "4x80", COLUMNS="80")
    table = done.output.split("of each phase")[1].split("assumed:")[0]
    assert "…" not in table and all(len(line) <= 80 for line in table.splitlines())
    peak = re.search(r"needs (\d+\.\d) of .* in the phase `(\w+)`", " ".join(done.output.split()))
    (line,) = [line for line in table.splitlines() if line.split()[:1] == [peak[2]]]
    *parts, allocated, reserved = [float(cell) for cell in re.findall(r"\d+\.\d", line)]
    assert allocated == pytest.approx(sum(parts), abs=0.3)
    assert reserved == float(peak[1]) > allocated


def test_further_turns_are_planned_with_their_crops(tmp_path):
    """Of 22 x 22 tokens each under 401408 pixels: an answer a turn, and a crop between two."""
    path = recipe_file(tmp_path, " --max_length 1024")
    plain = plan_recipe(path, "4x80").plan.settings
    path = recipe_file(
        tmp_path, " --max_length 1024 --multi_turn_scheduler vlrft_zoom --max_turns 3"
    )
    turns = plan_recipe(path, "4x80").plan.settings
    crops = 2 * plain.image_tokens
    assert turns.patches == 3 * plain.patches and crops == 2 * 484
    assert 0 <= turns.completion - (3 * 512 + crops) <= 64
    assert turns.length - plain.length == turns.completion - plain.completion
    assert any("3 turns" in note for note in turns.assumptions)
    assert not any("not planned" in note for note in turns.assumptions)
    assert not turns.may_share_prefixes and plain.may_share_prefixes


def test_without_a_length_vllm_must_hold_a_row_of_the_models_context(tmp_path):
    more = " --tuner_type lora --deepspeed zero2 --max_length 1024 --offload_model true"
    path = recipe_file(tmp_path, more, processes=1)
    path.write_text(path.read_text().replace("--vllm_max_model_len 2048", ""))
    made = plan_recipe(path, "1x24")
    assert made.plan.settings.vllm_max_length == 128000
    assert any("128000 tokens" in note for note in made.plan.settings.assumptions)
    assert "128000" in made.plan.failures[0] and "--vllm_max_model_len" in made.plan.failures[0]
    assert made.changes()[0].flags == {"vllm_max_model_len": "2048"}
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


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case["why"])
def test_what_a_command_is_read_as_and_advised(case, tmp_path):
    """plans.jsonl: a ``script``, or a shipped ``recipe``; the ``settings`` that are read, a value
    or the least and the most; what the notes say, and the flags of changes, with any value or one.
    """
    path = RECIPES_FOLDER / f"{case.get('recipe')}.sh"
    if script := case.get("script"):
        path = tmp_path / "recipe.sh"
        path.write_text(script.replace("@GRPO@", GRPO).replace("FOLDER", str(tmp_path)))
    for name, content in case.get("files", {}).items():
        (tmp_path / name).write_text(content)
    asked = (path, case.get("gpus", "4x80"), case.get("nodes"))
    if "refused" in case:
        with pytest.raises(ValueError, match=case["refused"]):
            planned(*asked, **case["environment"])
        return
    settings = planned(*asked, **case.get("environment", {}))
    for name, expected in case.get("settings", {}).items():
        value = attrgetter(name)(settings)
        low, high = expected if isinstance(expected, list) else (expected, expected)
        assert low <= value <= high, (name, value)
    said = " ".join(settings.assumptions)
    assert all(text in said for text in case.get("says", ())), said
    assert not any(text in said for text in case.get("never", ())), said
    for name, value in case.get("advised", {}).items():
        flags = flags_of(settings, name)
        assert flags and (value is None or {name: value} in flags), (name, flags)
    assert not [name for name in case.get("not_advised", ()) if flags_of(settings, name)]


def test_a_smaller_batch_keeps_the_rows_of_a_generation(tmp_path):
    more = " --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --num_generations 16"
    for steps in (1, 2, 4):
        path = recipe_file(tmp_path, f"{more} --steps_per_generation {steps}")
        smaller = flags_of(planned(path), "per_device_train_batch_size")
        assert len(smaller) == 2
        for flags in smaller:
            size = int(flags["per_device_train_batch_size"])
            assert size * int(flags["steps_per_generation"]) == 4 * steps
    assert not flags_of(planned(recipe_file(tmp_path, more)), "steps_per_generation")


def test_states_of_each_way_to_train():
    def parts(phase="backward", **values):
        settings = replace(BASE, rollout="none", reference=False, **values)
        return phases(settings)[phase].parts, trainable_parameters(settings)

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


def test_any_set_that_training_reads_has_a_longest_row(tmp_path):
    def longest(name, content):
        (tmp_path / name).write_text(content, encoding="utf-8-sig")
        return longest_row(tmp_path / name, BASE.model.image_rule.within(3136, 401408))

    rows = []
    for name, size in (("small.png", (320, 240)), ("large.png", (1400, 700))):
        Image.new("RGB", size).save(tmp_path / name)
        rows.append({"images": [name], "messages": [{"role": "user", "content": "x" * 300}]})
    found = longest("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert found.images == ((1400, 700),) and found.text == 100
    plan = printed_plan(recipe_file(tmp_path), "--dataset", tmp_path / "rows.jsonl")
    assert any("896 x 448" in note for note in plan["assumptions"] if "longest row of" in note)
    found = longest("instances_train.json", write_coco(tmp_path, 1, (640, 480)).read_text())
    assert found.images == ((640, 480),) and found.text > 50
    video = [{"images": ["small.png"], "videos": ["a.mp4"], "query": "x"}]
    with pytest.raises(ValueError, match=r"rows.json.* a row with videos, which are not planned"):
        longest("rows.json", json.dumps(video))
    with pytest.raises(ValueError, match=r"rows.json .*columns picture, question"):
        longest("rows.json", json.dumps([{"picture": "small.png", "question": "x"}]))


def supervised(folder, more, *, model="Qwen/Qwen2.5-VL-7B-Instruct", gpus="1x80", before=""):
    """The plan of `swift sft` with these flags, as --json prints it, and its settings."""
    path = folder / "sft.sh"
    path.write_text(
        f"export MAX_PIXELS=1003520 {before}\nswift sft --model {model} --dataset x "
        f"--torch_dtype bfloat16 --max_length 2048 {more}\n"
    )
    return printed_plan(path, gpus=gpus), planned(path, gpus)


ONE_A100 = (
    "--split_dataset_ratio 0.1 --tuner_type lora --lora_rank 8 --lora_dropout 0.1 "
    "--target_modules query_key_value --max_length {length} --max_new_tokens 512 "
    "--gradient_checkpointing false --use_logits_to_keep false --predict_with_generate true "
    "--per_device_eval_batch_size 4 --gradient_accumulation_steps 1 "
    "--per_device_train_batch_size {batch}"
)


def plan_on_one_a100(folder, batch, model="glm-4v-9b", length=2626):
    flags = ONE_A100.format(length=length, batch=batch)
    return supervised(folder, flags, model=f"zai-org/{model}", gpus="1xA100-80G")[0]


@pytest.mark.slow
def test_glm_4v_on_one_a100_as_published(tmp_path):
    """LoRA with the ViT in the makers' scripts, which recompute nothing: "at least 70GB" at 2,048
    tokens (CogAgent's README), and a user's run out of memory with two rows a GPU, which a batch
    of one mended.
    """
    published = plan_on_one_a100(tmp_path, 1, model="cogagent-9b-20241220", length=2048)
    assert published["verdict"] != "out of memory"
    assert 70 <= published["peak_gib"] <= published["capacity_gib"]
    two = plan_on_one_a100(tmp_path, 2)
    assert two["verdict"] == "out of memory" and two["phase"] == "backward"
    assert two["phases"]["backward"]["activations ViT"] > 40
    assert two["changes"][0]["flags"].keys() >= {"vit_gradient_checkpointing"}


def test_evaluation_that_writes_answers_is_planned(tmp_path):
    plan = plan_on_one_a100(tmp_path, 1)
    assert "rollout" not in plan["phases"] and plan["phases"]["eval"]["KV cache"] > 0.2
    notes = " ".join(plan["assumptions"])
    assert "rows of 2626 tokens" in notes and "1120 x 1120 pixels, 1600 tokens" in notes
    assert "names layers of the ViT" in notes
    assert not any("pixels" in c["change"] or "length" in c["change"] for c in plan["changes"])
    settings = replace(BASE, rollout="none", eval_generates=True, eval_batch=64, completion=4096)
    assert estimate(settings).peak.name == "eval"
    assert {"per_device_eval_batch_size": "1"} in [change.flags for change in changes(settings)]


def test_shared_prefixes_are_planned_and_a_larger_micro_batch_fits(tmp_path):
    more = " --gradient_accumulation_steps 1 --num_generations 8 --per_device_train_batch_size"
    path = recipe_file(tmp_path, f"{more} 16")
    separate, shared = planned(path), planned(path, VLRFT_SHARED_PREFIX="1")
    assert not separate.shared_prefix and shared.shared_prefix
    assert shared.prompts == 2 and replace(shared, batch=4).prompts == 1
    assert any("VLRFT_SHARED_PREFIX" in note for note in shared.assumptions)
    rows, more_rows = (
        sum(
            estimate(replace(settings, batch=n, checkpoint_llm=False)).fits for n in range(4, 64, 2)
        )
        for settings in (separate, shared)
    )
    assert more_rows > rows
    # In the recipe itself as well as from the shell; one row has nothing to share.
    path.write_text("export VLRFT_SHARED_PREFIX=1\n" + path.read_text())
    assert planned(path).shared_prefix
    alone = planned(recipe_file(tmp_path, f"{more} 1"), VLRFT_SHARED_PREFIX="1")
    assert not alone.shared_prefix and "one row" in " ".join(alone.assumptions)


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
    base = replace(BASE, model=read_model(name), grids=(), checkpoint_llm=False, train_vit=False)
    for row in json.loads((RESULTS / file).read_text())["rows"]:
        prompt, completion, count = row["prompt"], row["completion"], row["G"]
        rows = replace(base, batch=count, generations=count, prompt=prompt, completion=completion)
        kept = [
            training_passes(s).forward["activations LLM"]
            for s in (rows, replace(rows, shared_prefix=True))
        ]
        tokens = count * (prompt + completion) / (prompt + count * completion)
        assert row["kept_ratio"] <= kept[0] / kept[1] <= tokens


def test_supervised_rows_have_a_cross_entropy_in_32_bits_and_no_rollout(tmp_path):
    plan, settings = supervised(tmp_path, "", model="Qwen/Qwen2.5-7B-Instruct")
    assert {"rollout", "old/reference log-probabilities"}.isdisjoint(plan["phases"])
    assert (settings.length, settings.completion) == (2048, 1792)
    copy = 2 * 1793 * settings.model.vocabulary / GIB  # of the logits, in 16 bits
    assert plan["phases"]["backward"]["logits"] == pytest.approx(7 * copy, abs=0.02)
    packed, its = supervised(tmp_path, "--packing true --packing_length 4096")
    assert its.length == 4096 and its.completion > 2000
    assert any("packed rows of 4096" in note for note in packed["assumptions"])
    liger, _ = supervised(tmp_path, "--packing true --use_liger_kernel true")
    assert liger["phases"]["backward"].get("logits", 0) < 0.2
    # An image that --max_length has no room for is left out by ms-swift.
    short, its = supervised(tmp_path, "--max_length 1024")
    assert its.image_tokens <= 768 and its.length == 1024
    assert any("room in --max_length 1024" in note for note in short["assumptions"])


def test_adapters_in_the_language_model_beside_a_vit_that_trains(tmp_path):
    """--tuner_type lora_llm: ViT and aligner train whatever --freeze_vit says."""
    _, settings = supervised(tmp_path, "--tuner_type lora_llm --freeze_vit true --lora_rank 16")
    parameters = settings.model.parameters
    _, lora = supervised(tmp_path, "--tuner_type lora --lora_rank 16")
    whole = trainable_parameters(settings) - trainable_parameters(lora)
    assert whole == parameters.vit + parameters.aligner
    assert phases(settings)["load"].parts["weights"] < 2.1 * parameters.total
    _, saved = supervised(tmp_path, "--lora_rank 16 --modules_to_save embed_tokens lm_head")
    more = trainable_parameters(saved) - trainable_parameters(lora)
    assert more == 2 * parameters.embedding


def test_qlora_quantizes_decoder_layers_alone(tmp_path):
    bnb = "--quant_method bnb --quant_bits"
    sizes = []
    for bits in ("4", "8"):
        _, settings = supervised(tmp_path, f"{bnb} {bits}")
        adapters = 4 * trainable_parameters(settings)
        layers = settings.model.parameters.layers
        others = 2 * (settings.model.parameters.total - layers)
        sizes.append((phases(settings)["load"].parts["weights"] - adapters - others) / layers)
    assert sizes == pytest.approx([0.5625, 1.01], abs=0.001)
    assert supervised(tmp_path, "--quant_bits 4")[1].tuning == "lora"  # no method, no bits


def test_one_process_with_several_gpus_spreads_the_layers(tmp_path):
    one, _ = supervised(tmp_path, "")
    two, settings = supervised(tmp_path, "", gpus="2x80")
    assert (settings.processes, settings.spread) == (1, 2)
    load = [plan["phases"]["load"]["weights"] for plan in (one, two)]
    assert load[1] == pytest.approx(load[0] / 2, abs=0.02)
    assert any("device_map" in note for note in two["assumptions"])


def test_a_sequence_is_shared_by_its_group_of_gpus(tmp_path):
    kept = [
        supervised(tmp_path, more, gpus="4x80", before="NPROC_PER_NODE=4")[0]["phases"]["backward"]
        for more in ("--max_length 8192", "--max_length 8192 --sequence_parallel_size 4")
    ]
    assert kept[1]["activations LLM"] == pytest.approx(kept[0]["activations LLM"] / 4, abs=0.02)


def test_experts_are_planned_whole_and_have_no_adapters(tmp_path):
    four = {"gpus": "4x80", "before": "NPROC_PER_NODE=4"}
    name = "Qwen/Qwen3.5-35B-A3B"
    plan, settings = supervised(tmp_path, "--deepspeed zero3", model=name, **four)
    assert settings.model.parameters.total == pytest.approx(35e9, rel=0.01)
    assert trainable_parameters(settings) < 20e6
    weights = 2 * settings.model.parameters.total / 4 / GIB
    assert plan["phases"]["load"]["weights"] == pytest.approx(weights, rel=0.01)


@pytest.mark.slow
def test_the_constants_are_what_autograd_keeps():
    refit = runpy.run_path(str(REPOSITORY / "dev" / "refit.py"))
    model, tokens = read_model("Qwen2.5-VL-3B"), refit["TOKENS"]
    whole = (refit["of_llm"](model, 2) - refit["of_llm"](model, 1)) / tokens
    known = model.facts.llm_saved * model.hidden + 8 * model.intermediate
    assert known == pytest.approx(whole, rel=0.02)
    vit = (refit["of_vit"](model, 2) - refit["of_vit"](model, 1)) / tokens / model.vit_hidden
    assert model.facts.vit_saved == pytest.approx(vit, rel=0.02)
    for size, known in LORA_SAVED.items():
        more = (refit["of_llm"](model, 2, size) - refit["of_llm"](model, 1, size)) / tokens - whole
        inputs = 6 * model.hidden + model.intermediate
        assert known == pytest.approx(more / inputs, rel=0.1)
    alone = replace(BASE, tuning="lora", checkpoint_llm=False, batch=1, grids=())
    for names in (("q_proj", "v_proj"), ("gate_proj", "up_proj", "down_proj"), ("down_proj",)):
        s = replace(alone, lora_targets=names)
        ours = training_passes(s).forward["activations LLM"] / model.layers / s.length
        kept = (refit["of_llm"](model, 2, 2, names) - refit["of_llm"](model, 1, 2, names)) / tokens
        assert ours == pytest.approx(kept, rel=0.02)


@pytest.mark.slow
def test_shared_prefixes_keep_as_many_logits_as_planned():
    """And give the values of TRL's rows, though they are computed in parts of the sequence."""
    import torch
    from trl.trainer.utils import selective_log_softmax

    from swift_vlrft.shared_prefix.forward import values_of

    words, settings = 4000, replace(BASE, batch=2, completion=512, shared_prefix=True)
    head, targets = torch.randn(words, 8).bfloat16(), torch.randint(0, words, (1024,))
    states = torch.randn(1024, 8)

    def logps(of=lambda logits: values_of(logits, targets, 0.9)[0]):
        hidden = states.clone().requires_grad_()
        return of((hidden.bfloat16() @ head.T)[None].squeeze(0)), hidden

    def planned(passed):
        return pytest.approx(passed["logits"] / settings.model.vocabulary * words, rel=0.02)

    with torch.no_grad():
        assert peak_of(logps) == planned(evaluating_pass(settings))
    back = peak_of(lambda: logps()[0].float().sum().backward())
    assert back == planned(training_passes(settings).backward)
    sides = []
    for values, hidden in (logps(), logps(lambda x: selective_log_softmax(x / 0.9, targets))):
        values.float().square().sum().backward()
        sides.append((values, hidden.grad))
    torch.testing.assert_close(*sides)


@pytest.fixture(scope="module")
def benchmark():
    return runpy.run_path(str(REPOSITORY / "benchmarks" / "memory_cases.py"))


def test_readme_says_how_many_published_runs_are_predicted_right(benchmark, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["memory_cases.py", "--json"])
    assert benchmark["main"]() == 0
    *_, counted = map(json.loads, capsys.readouterr().out.splitlines())
    assert counted["error_of_others"] <= 0.15
    page = " ".join((REPOSITORY / "README.md").read_text().split())
    assert f"{counted['right']} of {counted['scored']} published runs" in page
    took = f"{counted['records']} that say how much they took, it is off by {counted['error']:.0%}"
    assert f"{took} in" in page


def test_every_phase_measured_on_a_gpu_is_planned_within_six_percent(benchmark):
    runs = list(benchmark["read_records"](benchmark["OWN"]))
    rows = [row for run in runs for row in benchmark["by_phase"](run)]
    assert len(runs) == 4 and {row["phase"] for row in rows} >= {
        "vLLM start",
        "rollout",
        "backward",
    }
    off = [r for r in rows if r["planned_gib"] != pytest.approx(r["measured_gib"], rel=0.06)]
    assert off == []
