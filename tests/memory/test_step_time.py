"""Seconds of a step: what must hold of any estimate, what a user sees, and published step times."""

import importlib.util
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory import step_time as timing
from swift_vlrft.memory.advice import Change
from swift_vlrft.memory.analytic import analytic
from swift_vlrft.memory.by_time import first_by_time
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.generation import Answers
from swift_vlrft.memory.models import read_model
from swift_vlrft.memory.recipe_plan import plan_recipe
from swift_vlrft.memory.settings import CAPACITY, GIB, Gpus, Settings, parse_gpus
from swift_vlrft.memory.speeds import SPEEDS, speed_of
from swift_vlrft.memory.step_time import answers_of, step_time

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.sh"))
run = CliRunner().invoke

spec = importlib.util.spec_from_file_location("cases", REPOSITORY / "benchmarks" / "time_cases.py")
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

BASE = Settings(
    model=read_model("Qwen/Qwen2.5-VL-3B-Instruct"),
    gpu_bytes=round(78.8 * GIB),
    processes=4,
    tuning="full",
    sharding="zero3",
    rollout="vllm_colocate",
    vllm_utilization=0.5,
    sleep_level=1,
    batch=2,
    accumulation=4,
    completion=512,
    grids=((1, 44, 44),),
    reference=True,
    old_logps=True,
)
SHARED = replace(BASE, batch=8, accumulation=1)


def seconds(s, kind="H100", answer=None):
    return step_time(s, SPEEDS[kind], answers_of(s, answer)).seconds


def operations(s):
    return sum(p.operations.total for p in step_time(s, None, answers_of(s)).phases)


# What must hold ---------------------------------------------------------------------------------


def test_tokens_of_a_shipped_recipe_by_hand(monkeypatch):
    """4 GPUs x batch 2 x 4 accumulated, groups of 8, a prompt of 256 tokens of text and 484 of
    image, answers of 512; a rollout serves two steps."""
    path = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    shared = plan_recipe(path, "4xH100", quick=True).time()
    assert shared.generated == 32 * 512 / 2
    assert shared.trained == 16 * (256 + 484) + 32 * 512  # two completions behind each prompt
    monkeypatch.setenv("VLRFT_SHARED_PREFIX", "0")
    step = plan_recipe(path, "4xH100", quick=True).time()
    assert step.generated == 32 * 512 / 2
    assert step.prompts == 4 * (256 + 484) / 2
    assert step.trained == 32 * (256 + 484 + 512)
    phases = {phase.name: phase.operations for phase in step.phases}
    weights, head = 2_774_771_712, 2048 * 151_936
    attention = 4 * 36 * 16 * 128
    decoded = 2 * 32 * 512 * (weights + head) + attention * 32 * 512 * (740 + 256)
    assert phases["decode"].total == pytest.approx(decoded / 2)
    whole = 2 * 32 * 1252 * weights + attention * 32 * 1252 * 1253 / 2
    heads = 2 * 32 * 513 * head
    # The old policy's and the reference's forward passes; forward, again, and twice backward.
    assert phases["log-probabilities"].llm == pytest.approx(2 * whole / 2)
    assert phases["log-probabilities"].head == pytest.approx(2 * heads / 2)
    scores = attention * 32 * 1252 * 1253 / 2
    assert phases["forward, backward"].llm == pytest.approx(4 * (whole - scores) + 4.5 * scores)
    assert phases["forward, backward"].head == pytest.approx(3 * heads)


def test_seconds_by_hand():
    """Decode: bytes of the weights and of the KV cache over 70 % of 3350 GB/s, and 4 ms a token."""
    s = replace(BASE, vllm_tp=2, offload_model=True, offload_optimizer=True)
    step = step_time(s, SPEEDS["H100"], Answers(200, 400))
    phases = {phase.name: phase for phase in step.phases}
    layers, head, every = 2_774_771_712, 2048 * 151_936, 3_754_622_976
    # Two engines of two GPUs with 16 rows each; both of 2 heads of keys and values, 128 wide.
    weights = 400 * 2 * (layers + head) / 2
    cache = 16 * 200 * (2 * 2 * 36 * 1 * 128) * (740 + 100)
    rows = 16 * 200 / 400  # of 16, as all are not as long as the longest
    reading = (weights + cache) / (0.7 * 3350e9)
    waiting = 400 * (4e-3 + 20e-6 * rows + 2 * 36 * 15e-6)
    assert phases["decode"].seconds == pytest.approx(reading + waiting, rel=1e-3)
    # The whole model gathered, copied, and over PCIe twice: the engine's part, ours and the
    # reference's quarter, and the moments in 32 bits of what trains.
    gathered = 2 * every * 3 / 4 / (0.6 * 450e9)
    copied = 2 * 2 * every / 2 / (0.7 * 3350e9)
    moments = 2 * 4 * 3_085_938_688 / 4
    moved = 2 * (2 * every / 2 + 2 * 2 * every / 4 + moments) / (0.6 * 64e9)
    expected = 1 + gathered + copied + moved
    assert phases["weight sync"].seconds == pytest.approx(expected, rel=1e-3)
    # Two passes in each of four micro-batches, each gathering the model: launches take longer.
    launches = 2 * 4 * (36 + 32) * 0.6e-3 * 2
    assert phases["log-probabilities"].seconds == pytest.approx(launches)
    assert phases["log-probabilities"].bound == "launches"
    slow = replace(SPEEDS["H100"], link=20.0)
    linked = {p.name: p for p in step_time(s, slow, Answers(200, 400)).phases}
    gathers = 8 * 2 * every * 3 / 4 / (0.6 * 20e9)
    assert linked["log-probabilities"].seconds == pytest.approx(gathers, rel=1e-3)
    assert linked["log-probabilities"].bound == "link"
    # Forward and backward gather it again, and every micro-batch's gradients go to their owner.
    reduced = 4 * 2 * 3_085_938_688 * 3 / 4 / (0.6 * 20e9)
    assert linked["forward, backward"].seconds == pytest.approx(gathers + reduced, rel=1e-3)


@pytest.mark.parametrize("fewer", [{"vllm_max_sequences": 2}, {"vllm_utilization": 0.104}])
def test_rows_beyond_the_engine_wait(fewer):
    """A limit on rows, or a KV cache with room for few beside 7.5 GB of weights."""
    long = replace(BASE, completion=8192, batch=16, accumulation=4)
    answers = Answers(4096, 8192)
    free, full = (
        {p.name: p for p in step_time(s, SPEEDS["H100"], answers).phases}
        for s in (long, replace(long, **fewer))
    )
    assert full["decode"].seconds > 3 * free["decode"].seconds
    assert full["decode"].operations == free["decode"].operations


@pytest.mark.parametrize(("side", "shared"), [("stock", False), ("ours", True)])
def test_passes_have_the_operations_that_torch_counted(side, shared):
    """benchmarks/shared_prefix.py ran one pass of 8 completions of 150 tokens after one prompt of
    950, 768 of them an image, with FlopCounterMode: all pairs of attention, the masked ones too.
    """
    file = REPOSITORY / "benchmarks" / "results" / "shared_prefix_operations.json"
    rows = json.loads(file.read_text())["rows"]
    counted = next(r for r in rows if (r["prompt"], r["completion"], r["G"]) == (950, 150, 8))
    s = replace(BASE, processes=1, sharding="none", batch=8, accumulation=1, completion=150)
    s = replace(s, prompt=950 - 768, grids=((1, 64, 48),), reference=False, shared_prefix=shared)
    phases = {p.name: p.operations for p in step_time(s, None, answers_of(s)).phases}
    one, torchs = phases["log-probabilities"], counted["operations"][side]["forward"]
    masked = (950**2 + 8 * 150**2) / 2 if shared else 8 * 1100**2 / 2
    whole = one.llm + 4 * 36 * 16 * 128 * masked
    assert whole == pytest.approx(torchs["llm"], rel=0.001)
    assert one.head == pytest.approx(torchs["head"], rel=0.01)
    assert one.vit == pytest.approx(torchs["vit"], rel=0.1)


def test_completions_used_twice_are_generated_and_scored_for_half():
    once, twice = (
        {p.name: p for p in step_time(s, SPEEDS["H100"], answers_of(s)).phases}
        for s in (BASE, replace(BASE, iterations=2))
    )
    for name, phase in once.items():
        half = name in ("weight sync", "prefill", "decode", "log-probabilities")
        assert twice[name].seconds == pytest.approx(phase.seconds / (2 if half else 1))


@pytest.mark.parametrize(
    ("tuning", "trains", "recomputed", "passes"),
    [
        *[("full", True, True, 4), ("full", True, False, 3), ("full", False, True, 1)],
        # Adapters need the gradients of inputs, not those of the weights beside them.
        *[("lora", True, True, 3), ("lora", True, False, 2), ("lora", False, False, 1)],
    ],
)
def test_passes_of_a_vit(tuning, trains, recomputed, passes):
    s = replace(BASE, tuning=tuning, train_vit=trains, checkpoint_vit=recomputed)
    phases = {p.name: p.operations for p in step_time(s, None, answers_of(s)).phases}
    forward = phases["log-probabilities"].vit / 2  # the old policy's and the reference's
    assert phases["forward, backward"].vit == pytest.approx(passes * forward)


@pytest.mark.parametrize("rollout", ["vllm_colocate", "vllm_server"])
def test_of_several_generations_in_a_step_the_first_syncs_weights(rollout):
    """ms-swift: only where global_step has changed, or with sleep level 2, which drops them."""
    s = replace(BASE, rollout=rollout, offload_model=False, sleep_level=0)

    def sync(s):
        phases = step_time(s, SPEEDS["H100"], answers_of(s)).phases
        return next(phase.seconds for phase in phases if phase.name == "weight sync")

    four = replace(s, rollout_batch=2)  # of the 8 completions of a process
    assert sync(four) == pytest.approx(sync(s))
    assert sync(replace(four, sleep_level=2)) == pytest.approx(4 * sync(s))
    half = replace(s, rollout_batch=16)
    assert sync(half) == pytest.approx(sync(s) / 2)
    # Waking and the copies that sleep level 1 and offloading make are of every generation.
    if rollout == "vllm_colocate":
        once, often = (sync(replace(one, sleep_level=1, offload_model=True)) for one in (s, four))
        assert 3 * once < often < 4 * once


MORE = {
    "generations": lambda s: replace(s, generations=16, accumulation=8),
    "completions": lambda s: replace(s, accumulation=8),
    "longer answers": lambda s: replace(s, completion=1024),
    "longer prompts": lambda s: replace(s, prompt=2000),
    "larger images": lambda s: replace(s, grids=((1, 88, 88),)),
    "more images": lambda s: replace(s, grids=s.grids * 3),
    "a larger model": lambda s: replace(s, model=read_model("Qwen2.5-VL-7B")),
    "a ViT that trains": lambda s: replace(s, train_vit=True, train_aligner=True),
    "the optimizer on the CPU": lambda s: replace(s, cpu_states=True),
    "parameters on the CPU": lambda s: replace(s, cpu_states=True, cpu_parameters=True),
    "offloading": lambda s: replace(s, offload_model=True, offload_optimizer=True),
    "no CUDA graphs": lambda s: replace(s, vllm_eager=True),
    "no prefix cache": lambda s: replace(s, prefix_caching=False),
    "two nodes": lambda s: replace(s, nodes=2),
    "transformers instead of vLLM": lambda s: replace(s, rollout="transformers", rollout_batch=2),
}
LESS = {
    "no reference": lambda s: replace(s, reference=False),
    "nothing recomputed": lambda s: replace(s, checkpoint_llm=False, checkpoint_vit=False),
    "completions used twice": lambda s: replace(s, iterations=2),
    "LoRA": lambda s: replace(s, tuning="lora"),
    "shorter answers": lambda s: replace(s, completion=256),
    "twice the GPUs": lambda s: replace(s, processes=8, accumulation=2),
}


@pytest.mark.parametrize("kind", ["H100", "A100-80", "4090"])
@pytest.mark.parametrize("change", [*MORE, *LESS])
def test_more_work_takes_longer_and_less_does_not(change, kind):
    other = (MORE | LESS)[change](BASE)
    before, after = seconds(BASE, kind), seconds(other, kind)
    assert after > before if change in MORE else after < before


def test_shared_prefixes_save_trained_tokens_operations_and_seconds():
    separate, packed = SHARED, replace(SHARED, shared_prefix=True)
    answers = answers_of(SHARED)
    alone, shared = (step_time(s, SPEEDS["A100-80"], answers) for s in (separate, packed))
    # 8 rows of a micro-batch are one group: its prompt once.
    assert alone.trained - shared.trained == 4 * 7 * (256 + 484)
    assert operations(packed) < operations(separate)
    assert shared.seconds < alone.seconds
    assert shared.generated == alone.generated and shared.rollout == alone.rollout
    # A frozen ViT's features are kept: its operations are in the log-probabilities alone.
    vit = {p.name: p.operations.vit for p in shared.phases}
    assert vit["forward, backward"] == 0 < vit["log-probabilities"]


KINDS = st.sampled_from(list(SPEEDS.values()))


@settings(max_examples=60, deadline=None)
@given(
    speed=KINDS,
    factor=st.floats(1, 10),
    way=st.sampled_from(["tflops", "memory", "link", "pcie"]),
    sharding=st.sampled_from(["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]),
    rollout=st.sampled_from(["vllm_colocate", "vllm_server", "transformers", "none"]),
    answer=st.integers(1, 5000),
    iterations=st.integers(1, 3),
    tp=st.sampled_from([1, 2, 4]),
)
def test_a_faster_gpu_is_never_slower(
    speed, factor, way, sharding, rollout, answer, iterations, tp
):
    s = replace(BASE, sharding=sharding, rollout=rollout, iterations=iterations, vllm_tp=tp)
    s = replace(s, gpu_bytes=round(CAPACITY[speed.kind] * GIB))
    faster = replace(speed, **{way: getattr(speed, way) * factor})
    answers = answers_of(s, answer)
    slow, fast = (step_time(s, one, answers) for one in (speed, faster))
    assert 0 < fast.seconds <= slow.seconds * (1 + 1e-9)
    assert slow.generated == (0 if rollout == "none" else 32 / iterations * answers.mean)
    assert all(p.operations.total >= 0 and p.seconds >= 0 for p in slow.phases)
    parts = sum(p.seconds for p in slow.phases)
    assert slow.seconds == pytest.approx(parts) and (slow.rollout > 0) == (rollout != "none")


def test_steps_per_generation_share_one_rollout():
    """Two optimizer steps on the completions of one generation: half a rollout each."""
    two = replace(BASE, rollout_batch=16)
    one, half = (step_time(s, SPEEDS["H100"], answers_of(s)) for s in (BASE, two))
    assert half.generated == one.generated  # of twice the completions for every second step
    assert half.rollout < one.rollout and half.trained == one.trained


# Names of GPUs ----------------------------------------------------------------------------------


def test_every_known_size_has_a_speed_and_its_source():
    assert list(sorted(SPEEDS)) == list(sorted(CAPACITY))
    for speed in SPEEDS.values():
        assert "NVIDIA" in speed.source and min(speed.tflops, speed.memory, speed.pcie) > 0
        assert speed.link >= speed.pcie


@pytest.mark.parametrize(
    ("name", "gib", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", 79.2, "H100"),
        ("NVIDIA A100-SXM4-80GB", 79.3, "A100-80"),
        ("NVIDIA A100-SXM4-40GB", 39.5, "A100-40"),
        ("NVIDIA GeForce RTX 4090", 23.6, "4090"),
        ("NVIDIA GeForce RTX 3090", 23.7, "3090"),
        ("Tesla V100-SXM2-32GB", 31.7, "V100-32"),
        ("Tesla V100-SXM2-16GB", 15.8, "V100-16"),
        ("Tesla T4", 14.7, "T4"),
        ("NVIDIA L40S", 44.4, "L40S"),
        ("NVIDIA H20", 95.1, "H20"),
        ("NVIDIA H200", 139.8, "H200"),
        ("NVIDIA RTX A6000", 47.5, "A6000"),
        ("a100 80g", 79.2, "A100-80"),
        # Slower than those of the table, or not in it.
        ("NVIDIA H100 PCIe", 79.2, None),
        ("NVIDIA H100 NVL", 93.1, None),
        ("NVIDIA A100 80GB PCIe", 79.2, None),
        ("NVIDIA A10G", 22.1, "A10G"),
        ("NVIDIA GeForce RTX 4090 D", 23.6, None),
        ("NVIDIA GeForce RTX 3090 Ti", 23.7, None),
        ("NVIDIA B200", 178.0, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 15.7, None),
        ("AMD Instinct MI300X", 192.0, None),
        ("", 80.0, None),
    ],
)
def test_a_gpu_by_the_name_that_nvidia_smi_prints(name, gib, kind):
    found = speed_of(Gpus(4, gib, name))
    assert (found.speed and found.speed.kind) == kind
    assert found.speed or found.why


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((f"2x{kind}", kind) for kind in CAPACITY if kind != "A100"),
        ("2xh100", "H100"),
        ("4xA100-80G", "A100-80"),
        ("1xRTX4090", "4090"),
        ("1xNVIDIA H100 80GB HBM3", "H100"),
        ("1xNVIDIA A10G", "A10G"),
        ("1xa10g-24g", "A10G"),
        ("8×H20", "H20"),
        *((f"4x{size}", None) for size in (80, 24, 32, 96, 90, 16, 48, 40, 141, "80gb", "80g")),
    ],
)
def test_gpus_as_given(text, kind):
    found = speed_of(parse_gpus(text))
    assert (found.speed and found.speed.kind) == kind
    if kind is None:
        assert "name the GPU, as --gpus" in found.why and "H100" in found.why


# What a user sees -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_recipe_has_seconds(path):
    count, size = re.search(r"(\d+)(?:\+\d+)?x(\d+)g", path.name).groups()
    kind = {"24": "4090", "80": "A100-80G", "96": "H20"}[size]
    given = ["plan", str(path), "--gpus", f"{count}x{kind}", "--quick", "--json"]
    found = json.loads(run(app, given).stdout)
    step = found["time"]
    assert step["label"] == "estimate, not yet measured on a GPU" and step["gpu"]
    assert 0.3 < step["seconds"] < 120
    assert step["tokens"]["trained"] > step["tokens"]["generated"]
    assert (step["larger_half"] is None) == ("sft" in path.name)
    parts = [phase["seconds"] for phase in step["phases"].values()]
    assert sum(parts) == pytest.approx(step["seconds"], rel=0.03, abs=0.05)
    # The plan of memory is what it was.
    assert {"verdict", "phase", "peak_gib", "phases", "changes", "raise", "gpus"} <= set(found)


def test_the_server_of_a_recipe_is_read():
    path = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_server_6+2x80g.sh"
    planned = plan_recipe(path, "6xH100", quick=True)
    settings = planned.plan.settings
    two, one = (
        step_time(settings, SPEEDS["H100"], answers_of(settings), server_gpus=n) for n in (2, 1)
    )
    assert planned.time().seconds == two.seconds < one.seconds


@pytest.mark.parametrize(("tokens", "more"), [(600, True), (10**9, True), (512, False), (9, False)])
def test_answers_longer_than_allowed_are_said(tokens, more):
    path = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    given = ["plan", str(path), "--gpus", "4xH100", "--quick", "--answer-tokens", str(tokens)]
    out = run(app, given).stdout
    told = f"--answer-tokens {tokens}: no answer is longer than 512 (max_completion_length)"
    assert (told in out) == more
    assert "--answer-tokens says what is usual" not in out  # it has been said
    found = json.loads(run(app, [*given, "--json"]).stdout)["time"]
    assert found["answer_tokens"]["mean"] == min(tokens, 512)
    assert (told in found["assumptions"]) == more


def test_without_a_name_there_are_tokens_operations_and_one_line_how_to_get_seconds():
    given = ["plan", str(RECIPES[-1]), "--gpus", "8x80", "--quick"]
    step = json.loads(run(app, [*given, "--json"]).stdout)["time"]
    assert step["seconds"] is None and step["gpu"] is None and step["operations"] > 1e14
    shown = run(app, given).output
    assert "for seconds name the GPU, as --gpus 8xA100-80" in shown
    assert "PFLOP" in shown and "a step:" not in shown


def test_shorter_answers_are_asked_for_with_a_flag():
    path = str(REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh")
    given = ["plan", path, "--gpus", "4xH100", "--quick"]
    long, short = (
        json.loads(run(app, [*given, "--json", *more]).stdout)["time"]
        for more in ((), ("--answer-tokens", "100"))
    )
    assert short["answer_tokens"] == {"mean": 100, "longest": 200}
    assert short["seconds"] < long["seconds"]
    shown = run(app, [*given, "--answer_tokens", "100"]).output
    assert "answers of 100, the longest 200, as assumed" in shown
    assert "estimate, not yet measured on a GPU" in shown and "is the larger half" in shown
    assert "published steps took 1.5 times" in shown
    # No answer is longer than allowed.
    more = json.loads(run(app, [*given, "--json", "--answer-tokens", "9999"]).stdout)["time"]
    assert more["answer_tokens"] == {"mean": 512, "longest": 512}
    for wrong in ("0", "-3", "many", "1.5"):
        assert run(app, [*given, "--answer-tokens", wrong]).exit_code == 2


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ('--vllm_enable_prefix_caching "$X"', "vllm_enable_prefix_caching cannot be read"),
        ("--vllm_enable_prefix_caching maybe", "vllm_enable_prefix_caching cannot be read"),
        ('--dynamic_sample "$X"', "dynamic_sample cannot be read"),
        ("--dynamic_sample true", "what dynamic_sample generates again"),
        ("--async_generate true", "not at once (async_generate)"),
        ('--multi_turn_scheduler "$X"', "one turn of a row is counted"),
        ("--torch_dtype float32", "in float32 it is several times slower"),
        ("--vllm_mode server", "server's GPUs are not in this file"),
        ("--num_iterations 3", ""),
        ("--steps_per_generation 8", ""),
        ("--vllm_max_num_seqs 1", ""),
        ("--max_completion_length 1", ""),
        ("--use_vllm false", ""),
    ],
)
def test_what_only_the_seconds_rest_on_never_prevents_a_plan(tmp_path, more, note):
    path = tmp_path / "recipe.sh"
    text = (REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh").read_text()
    path.write_text(text.replace('    "$@"', f"    {more}"))
    done = run(app, ["plan", str(path), "--gpus", "4xH100", "--quick", "--json"])
    step = json.loads(done.stdout)["time"]
    assert step["seconds"] > 0 and bool(step["assumptions"]) == bool(note)
    assert note in "".join(step["assumptions"])


def test_the_page_shows_what_is_printed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = (REPOSITORY / "docs" / "plan.md").read_text()
    command, shown = re.search(
        r"## Seconds of a step\n\n```bash\nvlrft (.*?)\n```.*?```text\n(.*?)```", text, re.S
    ).groups()
    printed = run(app, [*command.split(), "--quick"]).stdout
    lines = [line.rstrip() for line in printed[printed.index("an optimizer step") :].splitlines()]
    assert lines == shown.rstrip().splitlines()


def test_a_plan_of_time_is_quick():
    start = time.perf_counter()
    for _ in range(100):
        seconds(BASE)
    assert time.perf_counter() - start < 2


# Recipes written by time ------------------------------------------------------------------------


def test_a_new_recipe_has_the_quickest_batch_and_tensor_parallel(tmp_path):
    out, given = tmp_path / "new.sh", ["--model", "Qwen/Qwen2.5-VL-7B-Instruct", "--quick"]
    written = run(app, ["recipe", "new", str(out), *given, "--gpus", "4x4090", "--json"])
    found = json.loads(written.stdout)
    flags = found["for_time"]
    assert flags and found["verdict"] == "fits"
    planned = plan_recipe(out, "4x4090", quick=True)
    chosen = planned.plan.settings
    for name, value in flags.items():
        assert f"--{name} {value} " in out.read_text().replace("\\\n", " ")
    assert json.loads(run(app, ["check", str(out), "--json"]).stdout)["findings"] == []
    # No other division of the same completions that fits is clearly quicker.
    rows, now = chosen.batch * chosen.accumulation, seconds(chosen, "4090")
    assert len(flags) == 1  # nothing that does not save time is changed
    for batch in (1, 2, 4, 8):
        for tp in (1, 2, 4):
            other = replace(chosen, batch=batch, accumulation=rows // batch, vllm_tp=tp)
            if estimate(other, analytic).verdict == "fits":
                assert seconds(other, "4090") > 0.96 * now
    # Without a named GPU nothing is chosen by time.
    other = run(app, ["recipe", "new", str(out), *given, "--gpus", "4x24", "--json"])
    assert json.loads(other.stdout)["for_time"] == {}


def test_of_several_batches_that_fit_the_quickest_is_applied():
    def change(**flags):
        names = {"batch": "per_device_train_batch_size", "tp": "vllm_tensor_parallel_size"}
        made = replace(BASE, batch=flags.get("batch", 2), vllm_tp=flags.get("tp", 1))
        made = replace(made, accumulation=8 // made.batch)
        plan = estimate(made, analytic)
        assert plan.fits
        return Change({names[n]: str(v) for n, v in flags.items()}, "", plan=plan)

    slow, quick = change(batch=1), change(tp=4)
    beside = Change({"sleep_level": "1"}, "", plan=slow.plan)
    assert first_by_time([slow, quick, beside], SPEEDS["A10"]) is quick
    assert first_by_time([slow, quick, beside], None) is slow
    assert first_by_time([beside, quick], SPEEDS["A10"]) is beside  # of another kind: as it was


# Measured seconds -------------------------------------------------------------------------------


def compared(tmp_path, rows, *more):
    folder = tmp_path / "run" / "v0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "logging.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = str(REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh")
    return run(app, ["plan-compare", path, str(tmp_path / "run"), "--quick", *more])


LOG = {
    "step_time": 20.0,
    "train_speed(s/it)": 25.0,
    "completions/mean_length": 180.0,
    "completions/max_length": 400.0,
    "memory(GiB)": 55.0,
}
TRACKED = LOG | {
    "memory/backward_allocated_gib": 20.0,
    "memory/rollout_seconds": 8.0,
    "memory/log_probabilities_seconds": 1.0,
    "memory/forward_seconds": 2.0,
    "memory/backward_seconds": 3.0,
}


def test_measured_seconds_stand_beside_the_estimate(tmp_path):
    first = TRACKED | {"step_time": 300.0, "memory/rollout_seconds": 200.0}  # what is done once
    done = compared(tmp_path, [first, TRACKED, TRACKED], "--gpus", "4xH100", "--json")
    rows = {row["phase"]: row for row in json.loads(done.stdout)}
    assert rows["backward"]["allocated"] == 20.0
    assert rows["step"]["measured_seconds"] == 20.0
    assert rows["rollout"]["measured_seconds"] == 8.0
    assert rows["forward, backward, step"]["measured_seconds"] == 5.0
    # Estimated for answers as long as the run's, not as long as they may be.
    path = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    step = plan_recipe(path, "4xH100", quick=True).time(Answers(180, 400))
    assert rows["step"]["planned_seconds"] == round(step.seconds, 2)
    assert rows["step"]["error"] == f"{step.seconds / 20 - 1:+.0%}"


def test_seconds_need_a_name_and_no_tracked_memory(tmp_path):
    done = compared(tmp_path, [TRACKED], "--gpus", "4x80")
    assert "for seconds name the GPU" in done.output and "backward" in done.output
    done = compared(tmp_path, [LOG, LOG], "--gpus", "4xH100")
    assert done.exit_code == 0 and "VLRFT_TRACK_MEMORY=1" in done.output and "20.0" in done.output
    old = {key: value for key, value in LOG.items() if key != "step_time"}
    rows = json.loads(compared(tmp_path, [old], "--gpus", "4xH100", "--json").stdout)
    assert [row["measured_seconds"] for row in rows] == [25.0]
    # A run without a GPU cannot be compared, as before; nor a log that tells nothing.
    cpu = {key: value for key, value in LOG.items() if key != "memory(GiB)"}
    for log in ([cpu], [cpu | {"memory/forward_rss_gib": 1.0}], [{"loss": 1}], []):
        assert compared(tmp_path, log, "--gpus", "4xH100").exit_code == 2
    odd = [LOG | {"step_time": odd} for odd in (None, "x", float("nan"), -1, [], True)]
    assert compared(tmp_path, odd, "--gpus", "4xH100").exit_code == 0


# Published step times ---------------------------------------------------------------------------


def test_published_steps_have_sources_and_say_what_is_unknown():
    known = cases.read_cases()
    assert len(known) >= 20 and len({case["id"] for case in known}) == len(known)
    for case in known:
        assert case["url"].startswith("https://") and case["fact"] and case["unknown"]
        assert case["lengths"] in ("stated", "derived", "limit", "assumed")
        assert case["gpu"] in SPEEDS and case["seconds"] > 0
        assert 0 < case["answer_mean"] <= case["answer_longest"] <= case["max_completion"]


def test_the_stated_error_is_that_of_the_published_steps():
    results = [cases.judged(case) for case in cases.read_cases()]
    found = cases.summary(results)["all"]
    ratios = (found["three_quarters"], found["median"], found["quarter"])
    assert tuple(round(1 / ratio, 1) for ratio in ratios) == timing.PUBLISHED
    text = (REPOSITORY / "docs" / "plan.md").read_text()
    shown = {m[0]: m for m in re.findall(r"^\| `([\w.-]+)` \|.*\| ([\d.]+) \|$", text, re.M)}
    for result in results:
        assert float(shown[result["id"]][1]) == round(result["ratio"], 2), result["id"]
    assert set(shown) == {result["id"] for result in results}
    assert f"{found['within_factor_2']} of {found['cases']}" in text


@pytest.mark.parametrize("odd", ["abc", None, -3.0, 0.0, float("nan"), float("inf"), [8.0], True])
def test_a_log_without_a_number_of_seconds_is_refused(tmp_path, odd):
    done = compared(tmp_path, [LOG | {"step_time": odd, "train_speed(s/it)": odd}])
    assert done.exit_code == 2 and "no memory/ values" in done.stderr


def test_answers_that_the_recipe_does_not_allow_are_said(tmp_path):
    rows = [LOG | {"completions/mean_length": 900.0, "completions/max_length": 2048.0}]
    done = compared(tmp_path, rows, "--gpus", "4xH100")
    assert done.exit_code == 0 and "answers of 900 tokens, where" in done.stderr
    assert "allows 512" in done.stderr
    assert "answers of" not in compared(tmp_path, [LOG], "--gpus", "4xH100").stderr
