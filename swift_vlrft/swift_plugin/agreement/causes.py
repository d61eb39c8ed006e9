"""What may tell the cause of a difference: settings of both sides, and other conditions tried."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch

from swift_vlrft.agreement.figures import of_rows
from swift_vlrft.agreement.weights import part_of
from swift_vlrft.swift_plugin.agreement.sides import Samples, Sides


def facts(sides: Sides) -> dict[str, tuple[str, str]]:
    """Of the trainer and of the engine, what can be read off them."""
    if not sides.colocated:
        return {}
    engine = sides.trainer.engine.engine.model_config
    names = [name for name, _ in sides.trainer.engine.inner_model.named_parameters()]
    ours = [name for name, _ in sides.model.named_parameters()]
    dtype = next(p.dtype for n, p in sides.model.named_parameters() if "lora_" not in n)
    media = getattr(engine, "multimodal_config", None)
    quantised = str(getattr(sides.model.model_info, "quant_method", None))
    return {
        "dtype": (str(dtype)[6:], str(engine.dtype)[6:]),  # without "torch."
        "quantisation": (quantised.replace("bnb", "bitsandbytes"), str(engine.quantization)),
        "tied embeddings": (tied(ours), tied(names)),
        "processor options": ("{}", str(getattr(media, "mm_processor_kwargs", None) or {})),
    }


def tied(names: Iterable[str]) -> str:
    return "separate" if any(part_of(n) == "language output layer" for n in names) else "tied"


def conditions(sides: Sides, samples: Samples) -> dict[str, float]:
    """The mean difference under conditions that an engine might have, by their names."""
    tried = {}
    with suppress(TypeError):  # a model that takes no positions
        found = sides.against(samples, sides.score(samples, 1, _in_order))
        if found:
            tried["sequential positions"] = found.mean
    config = sides.trainer.request_config
    if (config.top_k or -1) > 0 or config.top_p not in (None, 1.0) or config.min_p:
        kept = config.top_k, config.top_p, config.min_p
        config.top_k, config.top_p, config.min_p = -1, 1.0, None
        unfiltered = of_rows(sides.compare()[0])
        config.top_k, config.top_p, config.min_p = kept
        if unfiltered:
            tried["no sampling filters"] = unfiltered.mean
    return tried


def _in_order(inputs: dict[str, Any]) -> None:
    """Positions that count every token, those of images as well."""
    for name in ("position_ids", "text_position_ids"):
        if torch.is_tensor(inputs.get(name)):
            places = torch.arange(inputs[name].shape[-1], device=inputs[name].device)
            inputs[name] = places.expand_as(inputs[name]).clone()
    if inputs.get("position_ids") is None:
        ids = inputs["input_ids"]
        inputs["position_ids"] = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
