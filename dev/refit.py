"""The planner's constants of each family, from what autograd keeps of the real transformers models.

    python dev/refit.py [MODEL ...]        names in swift_vlrft/families/models.json

A model of one and of two layers runs forward on the meta device, which computes shapes and no
numbers (the ViT on the CPU); the tensors that are saved for the backward pass are counted once
each, weights left out. The difference is a layer's. Printed are llm_saved and vit_saved
(families/family.py: MemoryFacts) and what adapters add (LORA_SAVED in memory/activations.py),
beside those in use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from transformers import AttentionInterface

from swift_vlrft.memory.activations import LORA_SAVED
from swift_vlrft.memory.models import Model, on_meta, read_model

MODELS = ("Qwen2-VL-2B", "Qwen2.5-VL-3B", "Qwen3-VL-2B", "GLM-4.1V-9B", "Qwen2.5-3B", "Qwen3-1.7B")
TOKENS = 1024
FLASH = "flash_counted"
"""Name of the stand-in for flash attention; transformers makes no mask for names with "flash"."""


class Kernel(torch.autograd.Function):
    """What flash attention keeps: queries, keys, values, the output, a float32 per row and head."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any) -> torch.Tensor:
        out = torch.empty_like(q)
        rows = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, rows)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError  # what is kept is counted; nothing runs backward


def attention(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> Any:
    return Kernel.apply(query, key, value).transpose(1, 2), None


AttentionInterface.register(FLASH, attention)


def saved(run: Callable[[], Any], model: torch.nn.Module) -> int:
    """Bytes of the tensors that ``run`` saves for the backward pass, without the model's own."""
    storages: dict[int, Any] = {}
    own = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run()
    del result
    return sum(storage.nbytes() for storage in storages.values())


def shallow(model: Model, layers: int) -> torch.nn.Module:
    """The model with this many layers in each part, in bfloat16."""
    config = deepcopy(model.config)
    parts = [config.get("text_config") or config, config.get("vision_config") or {}]
    for part in parts:
        for name in ("num_hidden_layers", "depth"):
            if name in part:
                part[name] = layers
        if "layer_types" in part:
            part["layer_types"] = part["layer_types"][:layers]
    parts[1].pop("deepstack_visual_indexes", None)
    made = on_meta(config).to(torch.bfloat16).train()
    for module in made.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation_internal = FLASH
    return made


def adapt(model: torch.nn.Module, size: int, names: tuple[str, ...] = ()) -> None:
    """LoRA on every linear layer but the head, or on those of these names, its weights of ``size``
    bytes.
    """
    from peft import LoraConfig, inject_adapter_in_model

    head = model.get_output_embeddings()  # type: ignore[operator]
    linear = [n for n, p in model.named_modules() if isinstance(p, torch.nn.Linear) and p != head]
    linear = [n for n in linear if not names or n.rsplit(".", 1)[-1] in names]
    model.requires_grad_(False)
    with torch.device("meta"):
        inject_adapter_in_model(LoraConfig(r=8, lora_dropout=0.05, target_modules=linear), model)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(torch.float32 if size == 4 else torch.bfloat16)


def of_llm(model: Model, layers: int, adapters: int = 0, names: tuple[str, ...] = ()) -> int:
    made = shallow(model, layers)
    if adapters:
        adapt(made, adapters, names)
    llm = getattr(made.model, "language_model", made.model)
    shape = (1, TOKENS, model.hidden)
    embeds = torch.empty(shape, dtype=torch.bfloat16, device="meta", requires_grad=True)
    return saved(lambda: llm(inputs_embeds=embeds, use_cache=False), made)


def of_vit(model: Model, layers: int) -> int:
    made = shallow(model, layers)
    visual = made.model.visual.to_empty(device="cpu")  # its image grids are numbers
    side = int(TOKENS**0.5)
    width = 3 * int(model.vision.get("temporal_patch_size", 2)) * model.patch**2
    pixels = torch.empty(TOKENS, width, dtype=torch.bfloat16, requires_grad=True)
    return saved(lambda: visual(pixels, grid_thw=torch.tensor([[1, side, side]])), made)


def main(names: tuple[str, ...]) -> None:
    for name in names:
        model = read_model(name)
        whole = (of_llm(model, 2) - of_llm(model, 1)) / TOKENS
        llm = (whole - 8 * model.intermediate) / model.hidden
        print(f"{name}: llm_saved {llm:.1f} (in use {model.facts.llm_saved})", end="")
        inputs = 6 * model.hidden + model.intermediate
        for size in LORA_SAVED:
            more = (of_llm(model, 2, size) - of_llm(model, 1, size)) / TOKENS - whole
            print(f", LORA_SAVED[{size}] {more / inputs:.1f} ({LORA_SAVED[size]})", end="")
        if model.sees:
            vit = (of_vit(model, 2) - of_vit(model, 1)) / TOKENS / model.vit_hidden
            print(f", vit_saved {vit:.1f} ({model.facts.vit_saved})", end="")
        print()


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or MODELS)
