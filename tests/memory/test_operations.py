"""Operations of a model's passes: by hand, against torch's own counter, and against full models."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory.analytic import analytic
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.models import Model, Parameters, known_models, read_model
from swift_vlrft.memory.operations import (
    ATTENTION_BACKWARD,
    causal_pairs,
    forward,
    layer_parameters,
    training,
)
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.states import trainable_parameters
from swift_vlrft.memory.work import step_work

REPOSITORY = Path(__file__).resolve().parents[2]
GRIDS = {950: ((1, 64, 48),), 300: ((1, 32, 24),)}  # benchmarks/shared_prefix.py: GRIDS


def cells(name):
    file = REPOSITORY / "benchmarks" / "results" / name
    for row in json.loads(file.read_text())["rows"]:
        yield row["prompt"], row["completion"], row["G"], row["operations"]


def test_a_tiny_model_by_hand():
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 100, "intermediate_size": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3}
    layer = 2 * 8 * 12 + 2 * 8 * 6 + 3 * 8 * 16  # query and output, keys and values, MLP
    parts = Parameters(0, 0, 800, 2 * layer, 800, layer)
    model = Model("tiny", {"model_type": "qwen3", **sizes, **heads}, "", parts)
    passed = forward(model, tokens=10, pairs=causal_pairs(10), logits=3)
    attention = 2 * 4 * 55 * 12  # layers, products, pairs of 10 tokens, channels
    linear = 2 * 2 * 672 * 10
    assert (layer, passed.attention, passed.llm) == (672, attention, linear + attention)
    assert passed.head == 2 * 8 * 100 * 3
    full = training(passed, llm="full", vit="none", checkpoint_llm=True, checkpoint_vit=True)
    assert full.llm == 4 * linear + attention * (2 + ATTENTION_BACKWARD)
    assert full.head == 3 * passed.head
    lora = training(passed, llm="inputs", vit="none", checkpoint_llm=False, checkpoint_vit=True)
    assert lora.llm == 2 * linear + attention * (1 + ATTENTION_BACKWARD)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "llama"])
def test_torchs_counter_counts_the_same(family):
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128, "head_dim": 16}
    config = AutoConfig.for_model(family, **sizes, attn_implementation="eager")
    built = AutoModelForCausalLM.from_config(config)
    layers = sum(p.numel() for p in built.model.layers.parameters())
    one = sum(p.numel() for p in built.model.layers[0].parameters())
    norms = sum(p.numel() for n, p in built.model.layers.named_parameters() if "norm" in n)
    biases = sum(p.numel() for n, p in built.model.layers.named_parameters() if "bias" in n)
    parts = Parameters(0, 0, 128 * 64, layers - norms - biases, 0, one)
    model = Model(family, {"model_type": family, **sizes}, "", parts)
    rows, length = 2, 24
    with FlopCounterMode(display=False) as counter:
        loss = built(torch.zeros(rows, length, dtype=torch.long)).logits.sum()
        ahead = counter.get_total_flops()
        loss.backward()
    # Without flash attention every token meets every other, and is not computed again.
    pairs = rows * length**2
    passed = forward(model, tokens=rows * length, pairs=pairs, logits=rows * length)
    assert ahead == passed.total
    done = training(passed, llm="full", vit="none", checkpoint_llm=False, checkpoint_vit=False)
    flash = (ATTENTION_BACKWARD - 2) * passed.attention
    assert counter.get_total_flops() == done.total - flash


@pytest.mark.parametrize(
    ("name", "file", "within"),
    [
        ("Qwen2.5-VL-3B", "shared_prefix_operations.json", 0.001),
        # Three of four layers keep a state instead of keys; what that takes is left out.
        ("Qwen3.5-4B", "shared_prefix_qwen3_5.json", 0.05),
    ],
)
def test_full_models_counted_by_torch(name, file, within):
    """Kept results of benchmarks/shared_prefix.py, which counts kernels with FlopCounterMode."""
    model, seen = read_model(name), 0
    for prompt, answer, group, counted in cells(file):
        grids, length = GRIDS[prompt], prompt + answer
        stock = {"tokens": group * length, "pairs": group * length**2, "images": group}
        # The shared prefix: the prompt once, each completion behind it.
        pairs = prompt**2 + group * answer * (prompt + answer)
        ours = {"tokens": prompt + group * answer, "pairs": pairs}
        for values, of, logits in (
            (stock, counted["stock"], answer + 1),
            (ours, counted["ours"], answer),
        ):
            passed = forward(model, logits=group * logits, grids=grids, **values)
            assert passed.llm == pytest.approx(of["forward"]["llm"], rel=within)
            assert passed.head == pytest.approx(of["forward"]["head"], rel=1e-9)
            assert passed.vit == pytest.approx(of["forward"]["vit"], rel=0.1)
            trained = training(
                passed, llm="full", vit="none", checkpoint_llm=False, checkpoint_vit=False
            )
            both = of["forward"]["llm"] + of["backward"]["llm"]
            assert trained.llm == pytest.approx(both, rel=within)
        seen += 1
    assert seen >= 3


BASE = Settings(
    model=read_model("Qwen/Qwen2.5-VL-3B-Instruct"),
    gpu_bytes=0,
    processes=4,
    tuning="full",
    rollout="vllm_colocate",
    batch=2,
    accumulation=4,
    grids=((1, 44, 44),),
    reference=True,
    old_logps=True,
)
"""A prompt of 256 tokens of text and 484 of an image, answers of 512, groups of 8."""


def test_the_work_of_a_step_by_hand():
    weights, head, attention = 2_774_771_712, 2048 * 151_936, 4 * 36 * 16 * 128
    once = 2 * 32 * 1252 * weights + attention * 32 * 1252 * 1253 / 2
    scores = attention * 32 * 1252 * 1253 / 2
    rollout = 2 * (4 * 740 + 32 * 512) * weights
    rollout += attention * (4 * 740 * 741 / 2 + 32 * (512 * 740 + 512 * 513 / 2))
    # The old policy's and the reference's forward passes; forward, again, and twice backward.
    whole = rollout + 2 * once + 4 * (once - scores) + (2 + ATTENTION_BACKWARD) * scores
    work = step_work(BASE)
    assert work.llm == pytest.approx(whole)
    assert work.head == pytest.approx(2 * head * 32 * (512 + 5 * 513))
    twice = step_work(replace(BASE, iterations=2))  # a rollout for two steps
    assert twice.llm == pytest.approx(whole - rollout / 2 - once)


@pytest.mark.parametrize(("side", "shared"), [("stock", False), ("ours", True)])
def test_a_pass_has_the_operations_that_torch_counted(side, shared):
    """As above, of all pairs of attention: the masked ones, too."""
    found = cells("shared_prefix_operations.json")
    counted = next(of for *cell, of in found if cell == [950, 150, 8])
    s = replace(BASE, processes=1, batch=8, accumulation=1, completion=150, rollout="none")
    s = replace(s, prompt=950 - 768, grids=GRIDS[950], reference=False, shared_prefix=shared)
    one = step_work(s) + step_work(replace(s, old_logps=False)) * -1
    masked = (950**2 + 8 * 150**2) / 2 if shared else 8 * 1100**2 / 2
    whole = one.llm + 4 * 36 * 16 * 128 * masked
    assert whole == pytest.approx(counted[side]["forward"]["llm"], rel=0.001)
    assert one.head == pytest.approx(counted[side]["forward"]["head"], rel=0.01)
    assert one.vit == pytest.approx(counted[side]["forward"]["vit"], rel=0.1)


@pytest.mark.parametrize(
    ("tuning", "trains", "recomputed", "passes"),
    [
        *[("full", True, True, 4), ("full", True, False, 3), ("full", False, True, 1)],
        # Adapters need the gradients of inputs, not those of the weights beside them.
        *[("lora", True, True, 3), ("lora", True, False, 2), ("lora", False, False, 1)],
    ],
)
def test_passes_of_a_vit(tuning, trains, recomputed, passes):
    s = replace(BASE, tuning=tuning, train_vit=trains, checkpoint_vit=recomputed, rollout="none")
    forward = step_work(s).vit - step_work(replace(s, reference=False)).vit
    assert step_work(s).vit == pytest.approx((passes + 2) * forward)


CHANGES = {
    "completions": (1, {"accumulation": 8}),
    "longer answers": (1, {"completion": 1024}),
    "longer prompts": (1, {"prompt": 2000}),
    "larger images": (1, {"grids": ((1, 88, 88),)}),
    "a larger model": (1, {"model": read_model("Qwen2.5-VL-7B")}),
    "a ViT that trains": (1, {"train_vit": True, "train_aligner": True}),
    "transformers instead of vLLM": (1, {"rollout": "transformers"}),
    "no reference": (-1, {"reference": False}),
    "nothing recomputed": (-1, {"checkpoint_llm": False}),
    "completions used twice": (-1, {"iterations": 2}),
    "LoRA": (-1, {"tuning": "lora"}),
    "shared prefixes": (-1, {"shared_prefix": True}),
    "another division into passes": (0, {"batch": 8, "accumulation": 1}),
    "weights elsewhere": (0, {"sharding": "zero3", "sleep_level": 1, "offload_model": True}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_more_work_is_more_operations(change):
    sign, values = CHANGES[change]
    share = step_work(replace(BASE, **values)).total / step_work(BASE).total
    assert sign * (share - 1) > 0 if sign else share == pytest.approx(1)


def test_a_suggestion_says_by_how_much_it_changes_the_work_of_a_step(tmp_path):
    recipe = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    said = CliRunner().invoke(app, ["plan", str(recipe), "--gpus", "4x24", "--quick", "--json"])
    changes = {one["change"]: one["operations"] for one in json.loads(said.stdout)["changes"]}
    assert changes["move_model_batches 16"] == 1
    assert changes["beta 0"] < 0.95


def test_every_shipped_model_has_operations():
    """Two for each weight of a dense model, those of the chosen experts of another."""
    chosen = {"A3B": 2.73e9, "A22B": 20.9e9}
    for name in known_models():
        model = read_model(name)
        layers, active = model.parameters.layers, layer_parameters(model)
        published = next((count for size, count in chosen.items() if f"-{size}" in name), None)
        assert 0 < active <= layers, name
        if published:
            assert active == pytest.approx(published, rel=0.02), name
        elif not model.experts and not model.type.startswith("gemma"):
            assert active == pytest.approx(layers, rel=1e-3), name
        if model.sees:
            small, large = (
                forward(model, tokens=0, pairs=0, logits=0, grids=((1, side, side),)).vit
                for side in (32, 64)
            )
            assert small > 0 and large > 4 * small, name


@pytest.mark.parametrize(
    ("experts", "active"),
    [
        # Each as its family writes it: all of 8 experts, of which a token passes two.
        ({"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 512}, 2),
        ({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}, 2),
        ({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512}, 2),
        ({"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 512}, 2),
        ({"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 512}, 2),
        ({"num_experts": 8, "moe_intermediate_size": 512}, 1),
    ],
)
def test_experts_as_families_name_them(experts, active):
    """A layer of attention of 4 x 256 x 256 weights and 8 experts of 3 x 256 x 512; with LoRA,
    adapters of rank 8 beside all of them."""
    layer, each = 4 * 256 * 256, 3 * 256 * 512
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "mixtral", "vocab_size": 1000, **sizes, **experts}
    whole = layer + 8 * each
    model = Model("", config, "", Parameters(0, 0, 256_000, 2 * whole, 256_000, whole))
    assert layer_parameters(model) == 2 * (layer + active * each)
    assert model.intermediate == active * 512
    lora = Settings(model, 80 * 2**30, tuning="lora")
    assert trainable_parameters(lora) == 2 * 8 * (4 * (256 + 256) + 8 * 3 * (256 + 512))
    assert estimate(lora, analytic).fits
