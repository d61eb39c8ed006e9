"""What sharing prompts and images saves in the training phase of a GRPO step, stock beside ours.

    python benchmarks/shared_prefix.py --json                     # the whole grid; an hour
    python benchmarks/shared_prefix.py --json --only 950/150/8    # one cell, and nothing repeated
    python benchmarks/shared_prefix.py --json --part operations --model qwen3_5_4b

The training phase of one micro-batch is what ms-swift does after the rollout at its defaults: the
old policy's log-probabilities without gradients, then the update's forward and backward pass, the
ViT frozen. Stock computes separate rows with transformers' own sdpa attention; ours packs.

- Operations: the real Qwen2.5-VL-3B architecture under fake tensors, torch's FlopCounterMode,
  forward and backward of one update by part, without gradient checkpointing. Attention is counted
  as full rectangles on both sides, Gated DeltaNet (Qwen3.5) as transformers writes it in torch.
- Kept for backward: bytes of all tensors that autograd saves in that forward pass, in bf16,
  without gradient checkpointing, parameters not counted.
- Peak of activations: the most bytes alive at once in that forward and backward pass, in bf16,
  parameters and their gradients not counted; with gradient checkpointing, as by default in
  ms-swift, and without. The features of the images are given: a frozen ViT keeps nothing.
- Seconds: 56 M parameters of the same architecture, float32, gradient checkpointing as by
  default in ms-swift, on the CPU; medians. CPU seconds stand beside wall time: a busy machine
  stretches only the latter.

The last line is JSON: flops_ratio and cpu_time_ratio at 950/150, G 8 (stock / ours), and
no_repeat_ratio: time of ours / stock for 4 different prompts, where nothing repeats.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from trl.trainer.utils import selective_log_softmax

from swift_vlrft.memory.models import MODELS_FILE
from swift_vlrft.shared_prefix.attention import use_shared_attention
from swift_vlrft.shared_prefix.features import FeatureCache, ImageFeatures
from swift_vlrft.shared_prefix.forward import forward, values_of
from swift_vlrft.shared_prefix.images import Images
from swift_vlrft.shared_prefix.layout import pack

GRIDS = {950: (64, 48), 300: (32, 24)}  # patches of the image; 768 and 192 tokens
CELLS = [(p, c, g) for p, c in ((950, 150), (950, 400), (300, 400)) for g in (4, 8, 16)]
HEADLINE = (950, 150, 8)
TEMPERATURE = 0.9  # ms-swift's default
Cell = tuple[int, int, int]
IMAGE, START, END = 990, 991, 992


def config(size: str) -> Any:
    """Qwen2.5-VL-3B or Qwen3.5-4B as in its published config.json, or the former in 56 M."""
    if size == "qwen3_5_4b":
        values = json.loads(MODELS_FILE.read_text())["Qwen3.5-4B"]
        ids = {"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END}
        return AutoConfig.for_model(**values, **ids)
    text = {
        "3b": {
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008,
            "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 2,
        },
        "56m": {
            "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1408,
            "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 2,
        },
    }[size]  # fmt: skip
    vision = {
        "3b": {
            "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
            "out_hidden_size": 2048, "fullatt_block_indexes": [7, 15, 23, 31],
        },
        "56m": {
            "depth": 8, "hidden_size": 384, "intermediate_size": 1024, "num_heads": 6,
            "out_hidden_size": 512, "fullatt_block_indexes": [3, 7],
        },
    }[size]  # fmt: skip
    sections = [16, 24, 24] if size == "3b" else [8, 12, 12]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections}
    return Qwen2_5_VLConfig(
        text_config=text | {"rope_parameters": rope, "pad_token_id": None},
        vision_config=vision,
        image_token_id=IMAGE,
        vision_start_token_id=START,
        vision_end_token_id=END,
        tie_word_embeddings=True,
    )


@dataclass
class Batch:
    """A micro-batch as ms-swift collates it."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    completion_mask: torch.Tensor
    images: Images


def make_batch(
    model: Any, prompt: int, completion: int, copies: int, prompts: int = 1, patch: int = 14
) -> Batch:
    """``prompts`` prompts with one image each, ``copies`` completions of every one."""
    torch.manual_seed(0)
    h, w = GRIDS[prompt]
    tokens, rows, pixels = h * w // 4, [], []
    for _ in range(prompts):
        text = torch.randint(0, 900, (prompt - tokens - 2,))
        image = torch.tensor([START] + [IMAGE] * tokens + [END])
        head = torch.cat([text[:20], image, text[20:]])
        patches = torch.randn(h * w, 3 * 2 * patch**2)
        for _ in range(copies):
            rows.append(torch.cat([head, torch.randint(0, 900, (completion,))]))
            pixels.append(patches)
    input_ids = torch.stack(rows)
    images = Images(torch.cat(pixels), torch.tensor([[1, h, w]] * len(rows)), IMAGE, 2)
    position_ids, _ = model.model.get_rope_index(
        input_ids,
        mm_token_type_ids=(input_ids == IMAGE).int(),
        image_grid_thw=images.grid_thw,
        attention_mask=torch.ones_like(input_ids),
    )
    mask = torch.ones(len(rows), completion, dtype=torch.bool)
    return Batch(input_ids, position_ids, mask, images)


def stock_logps(model: Any, batch: Batch, features: Any = None) -> torch.Tensor:
    """What ms-swift's ``_get_logps_via_local_forward`` computes."""
    keep = batch.completion_mask.shape[1]
    if features is None:
        images: dict[str, Any] = batch.images.inputs(range(len(batch.images.parts)))
    else:
        images = {"mm_encoder_outputs": {"image": features}}
    logits = model(
        input_ids=batch.input_ids,
        attention_mask=torch.ones_like(batch.input_ids),
        position_ids=batch.position_ids,
        logits_to_keep=keep + 1,
        use_cache=False,
        **images,
    ).logits[:, -(keep + 1) : -1]
    logits.div_(TEMPERATURE)
    return selective_log_softmax(logits, batch.input_ids[:, -keep:])


def shared_logps(model: Any, packed: Any, features: Any = None) -> torch.Tensor:
    return values_of(forward(model, packed, features), packed.targets, TEMPERATURE)[0]


def packed_of(batch: Batch) -> Any:
    return pack(batch.input_ids, None, batch.position_ids, batch.completion_mask, batch.images)


def stock_phase(model: Any, batch: Batch) -> None:
    with torch.no_grad():
        old = stock_logps(model, batch)
    (stock_logps(model, batch) - old).exp().mean().backward()


def shared_phase(model: Any, batch: Batch) -> None:
    """As ``SharedPrefixes`` does it with a frozen ViT: images are encoded once."""
    packed, encoder, kept = packed_of(batch), model.model.visual, FeatureCache(1 << 30)
    digests = [packed.images.digest(i) for i in packed.distinct_images]
    with torch.no_grad(), kept.fill(encoder, digests, packed.distinct_tokens):
        old = shared_logps(model, packed)
    features = kept.get(encoder, digests)
    (shared_logps(model, packed, features) - old).exp().mean().backward()


def no_repeat_phase(model: Any, batch: Batch) -> None:
    """Nothing repeats: the trainer finds that out, lets ms-swift compute the first pass and keeps
    the features of it; the update packs what is left, each prompt with its one completion.
    """
    packed, encoder, kept = packed_of(batch), model.model.visual, FeatureCache(1 << 30)
    digests = [packed.images.digest(i) for i in packed.distinct_images]
    with torch.no_grad(), kept.fill(encoder, digests, packed.distinct_tokens):
        old = stock_logps(model, batch).reshape(-1)
    features = kept.get(encoder, digests)
    (shared_logps(model, packed, features) - old).exp().mean().backward()


def no_repeat_trainable_phase(model: Any, batch: Batch) -> None:
    """Nothing repeats and nothing is kept: what the trainer adds to stock is finding that out."""
    packed_of(batch)
    stock_phase(model, batch)


def build(size: str, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """One set of weights, behind transformers' attention and behind ours; the ViT frozen."""
    stock, ours = (
        AutoModelForImageTextToText.from_config(
            config(size), dtype=dtype, attn_implementation="sdpa"
        )
        for _ in range(2)
    )
    for name, parameter in stock.named_parameters():
        owner, _, leaf = name.rpartition(".")
        setattr(ours.get_submodule(owner), leaf, parameter)
    ours.tie_weights()
    use_shared_attention(ours)
    for model in (stock, ours):
        model.train()
        model.model.visual.requires_grad_(False)
    return stock, ours


# Operations ---------------------------------------------------------------------------------------


def attention_ahead(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(q, k, v))


def attention_back(grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(grad, q, k, v))


def triangular(a: Any, b: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    """Gated DeltaNet's chunks: a multiplication and an addition for half of the square."""
    return int(math.prod(out_shape) * a[-1])


def convolution_back(grad: Any, x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Twice the way ahead; torch's own count takes a convolution by channel for a dense one."""
    return int(4 * math.prod(grad) * math.prod(weight[1:]))


# torch's counter knows the CUDA kernels; the CPU's has the same shapes.
COUNTED = {
    torch.ops.aten.linalg_solve_triangular: triangular,
    torch.ops.aten.convolution_backward: convolution_back,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention_ahead,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_back,
}


def operations(model: Any, logps: Callable[[], torch.Tensor]) -> dict[str, dict[str, float]]:
    """Floating-point operations of one update of the language model and its head, and what it
    keeps for backward.
    """
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
        with kept_bytes(model) as kept:
            loss = logps().sum()
        ahead = by_part(counter)
        loss.backward()
    total = by_part(counter)
    return {
        "forward": ahead,
        "backward": {part: total[part] - ahead[part] for part in total},
        "kept": kept,
    }


def by_part(counter: FlopCounterMode) -> dict[str, float]:
    counts = counter.get_flop_counts()
    return {
        part: float(sum(sum(counts[m].values()) for m in counts if m.rpartition(".")[2] == module))
        for part, module in {"llm": "language_model", "head": "lm_head"}.items()
    }


def one_image(model: Any, batch: Batch) -> tuple[float, torch.Tensor]:
    """Operations of the frozen ViT for one image, and its features."""
    images = batch.images.inputs([0])
    pixels = images["pixel_values"].to(torch.bfloat16)
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter, torch.no_grad():
        output = model.model.visual(pixels, grid_thw=images["image_grid_thw"])
    return float(counter.get_total_flops()), output.pooler_output


class Alive(TorchDispatchMode):
    """The most bytes alive at once of all that operators made while this mode was on."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.now: int = 0
        self.most: int = 0
        known = [*model.parameters(), *model.buffers()]
        self.storages: dict[int, Any] = {t.untyped_storage()._cdata: None for t in known}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.see, result)
        return result

    def see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.storages:
            return

        def freed(_: Any) -> None:
            del self.storages[key]
            self.now -= size

        self.storages[key] = weakref.ref(storage, freed)
        self.now += size
        self.most = max(self.most, self.now)


def peak_gib(model: Any, logps: Callable[[], torch.Tensor]) -> float:
    """Of one update, forward and backward; a parameter's gradient is dropped once it is whole."""

    def drop(parameter: torch.Tensor) -> None:
        parameter.grad = None

    trained = [p for p in model.parameters() if p.requires_grad]
    hooks = [p.register_post_accumulate_grad_hook(drop) for p in trained]
    with Alive(model) as alive:
        logps().exp().mean().backward()
    for hook in hooks:
        hook.remove()
    return float(alive.most / 2**30)


@contextmanager
def kept_bytes(model: Any) -> Iterator[dict[str, float]]:
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    seen: dict[int, int] = {}
    result: dict[str, float] = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in own:
            seen[storage._cdata] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        yield result
    result["gib"] = sum(seen.values()) / 2**30


def count(models: tuple[Any, Any], batch: Batch) -> dict[str, Any]:
    """Both sides of one cell; the models' weights are fake, so nothing is computed from them.

    All images are of one size, so the ViT is counted for one of them and multiplied.
    """
    (stock, ours), packed = models, packed_of(batch)
    vit, features = one_image(stock, batch)
    images = {"stock": len(batch.images.tokens), "ours": len(packed.distinct_images)}
    given = {side: ImageFeatures((features,) * n) for side, n in images.items()}
    sides = {
        "stock": (stock, lambda: stock_logps(stock, batch, given["stock"])),
        "ours": (ours, lambda: shared_logps(ours, packed, given["ours"])),
    }
    found: dict[str, Any] = {}
    for side, (model, logps) in sides.items():
        found[side] = operations(model, logps)
        found[side]["forward"]["vit"], found[side]["backward"]["vit"] = images[side] * vit, 0.0
        found[side]["peak"] = {"gib": peak_gib(model, logps)}
        model.gradient_checkpointing_enable({"use_reentrant": False})
        found[side]["peak_checkpointed"] = {"gib": peak_gib(model, logps)}
        model.gradient_checkpointing_disable()
    return found


# Seconds ------------------------------------------------------------------------------------------


def seconds(phases: dict[str, Callable[[], None]], repeats: int) -> dict[str, dict[str, float]]:
    """Medians of phases that take turns, so that a busy machine slows all alike."""
    wall: dict[str, list[float]] = {name: [] for name in phases}
    process: dict[str, list[float]] = {name: [] for name in phases}
    for _ in range(repeats):
        for name, phase in phases.items():
            start = time.perf_counter(), time.process_time()
            phase()
            wall[name].append(time.perf_counter() - start[0])
            process[name].append(time.process_time() - start[1])
    return {
        name: {"wall": statistics.median(wall[name]), "cpu": statistics.median(process[name])}
        for name in phases
    }


def timed_cell(models: tuple[Any, Any], batch: Batch, repeats: int) -> dict[str, dict[str, float]]:
    stock, ours = models
    phases = {"stock": lambda: stock_phase(stock, batch), "ours": lambda: shared_phase(ours, batch)}
    return seconds(phases, repeats)


def timed_without_repeats(
    models: tuple[Any, Any], batch: Batch, repeats: int
) -> dict[str, dict[str, float]]:
    stock, ours = models
    phases = {
        "stock": lambda: stock_phase(stock, batch),
        "ours": lambda: no_repeat_phase(ours, batch),
        "ours, nothing kept": lambda: no_repeat_trainable_phase(ours, batch),
    }
    return seconds(phases, repeats)


def counted_rows(cells: list[Cell], size: str) -> list[dict[str, Any]]:
    """Operations of every cell."""
    small = Qwen2_5_VLForConditionalGeneration(config("56m"))  # for position ids only
    # Token ids and grids stay real, as the model reads their values.
    with FakeTensorMode(allow_non_fake_inputs=True):
        models = build(size, dtype=torch.bfloat16)
    rows = []
    for cell in cells:
        batch = make_batch(small, *cell, patch=models[0].config.vision_config.patch_size)
        found = count(models, batch)
        total = {
            side: sum(found[side]["forward"].values()) + sum(found[side]["backward"].values())
            for side in found
        }
        row = named(cell) | {
            "operations": found,
            "flops_ratio": total["stock"] / total["ours"],
        }
        for name in ("kept", "peak", "peak_checkpointed"):
            row[f"{name}_ratio"] = found["stock"][name]["gib"] / found["ours"][name]["gib"]
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def timed_rows(cells: list[Cell], repeats: int) -> tuple[list[dict[str, Any]], float]:
    """Seconds of every cell, and the ratio ours / stock where nothing repeats."""
    models = build("56m")
    timed_cell(models, make_batch(models[0], 300, 20, 2), 1)
    for model in models:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    rows = []
    for cell in cells:
        found = timed_cell(models, make_batch(models[0], *cell), repeats)
        row = named(cell) | {
            "seconds": found,
            "cpu_time_ratio": found["stock"]["wall"] / found["ours"]["wall"],
            "cpu_seconds_ratio": found["stock"]["cpu"] / found["ours"]["cpu"],
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    single = make_batch(models[0], 300, 150, 1, prompts=4)
    found = timed_without_repeats(models, single, 2 * repeats)
    print("no repeats", json.dumps(found), flush=True)
    # CPU seconds: the differences looked for are below what a busy machine does to wall time.
    worst = max(found[name]["cpu"] for name in found if name != "stock")
    return rows, worst / found["stock"]["cpu"]


def named(cell: Cell) -> dict[str, Any]:
    return dict(zip(("prompt", "completion", "G"), cell, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--part", choices=("operations", "seconds"), help="one half of it")
    parser.add_argument("--model", choices=("3b", "qwen3_5_4b"), default="3b", help="of operations")
    parser.add_argument("--only", help="one cell, PROMPT/COMPLETION/G")
    parser.add_argument("--repeats", type=int, default=3, help="measurements per median")
    parser.add_argument("--out", type=Path, help="write all rows to this JSON file")
    arguments = parser.parse_args()
    cells = CELLS
    if arguments.only:
        prompt, completion, copies = map(int, arguments.only.split("/"))
        cells = [(prompt, completion, copies)]
    headline: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    if arguments.part != "seconds":
        rows += counted_rows(cells, arguments.model)
    if arguments.part != "operations":
        timed, no_repeats = timed_rows(cells, arguments.repeats)
        rows += timed
        headline["no_repeat_ratio"] = round(no_repeats, 3)
    for row in rows:
        if (row["prompt"], row["completion"], row["G"]) == HEADLINE:
            headline |= {k: round(v, 3) for k, v in row.items() if k.endswith("_ratio")}
    if arguments.out:
        arguments.out.write_text(json.dumps({"rows": rows, **headline}, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(headline))


if __name__ == "__main__":
    main()
