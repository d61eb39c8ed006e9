"""What may tell the cause of a difference: settings of both sides, and other conditions tried."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch

from swift_vlrft.agreement.figures import of_rows
from swift_vlrft.agreement.weights import part_of
from swift_vlrft.swift_plugin.agreement.sides import Samples, Sides

STORED = re.compile(r"\.(qweight|qzeros|g_idx|weight_packed|weight_scale\w*)$")
"""Parameters that only a quantised model has."""
NOT_READ = (
    "the server tells the names of its parameters alone: its type, processor options and weights "
    "were not read"
)


UNFILTERED = {"top_k": -1, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""The engine's log-probabilities are then those of the model."""


def facts(sides: Sides) -> dict[str, tuple[str, str]]:
    """Of the trainer and of the engine, what can be read off them."""
    if not sides.vllm:
        return {}
    ours = [name for name, _ in sides.model.named_parameters()]
    quantised = str(getattr(sides.model.model_info, "quant_method", None))
    if not sides.colocated:
        return _server_facts(sides, ours, quantised)
    engine = sides.trainer.engine.engine.model_config
    names = [name for name, _ in sides.trainer.engine.inner_model.named_parameters()]
    dtype = next(p.dtype for n, p in sides.model.named_parameters() if "lora_" not in n)
    media = getattr(engine, "multimodal_config", None)
    return {
        "dtype": (str(dtype)[6:], str(engine.dtype)[6:]),  # without "torch."
        "quantisation": (quantised.replace("bnb", "bitsandbytes"), str(engine.quantization)),
        "tied embeddings": (tied(ours), tied(names)),
        "processor options": ("{}", str(getattr(media, "mm_processor_kwargs", None) or {})),
    }


def _server_facts(sides: Sides, ours: list[str], quantised: str) -> dict[str, tuple[str, str]]:
    """From the names of its parameters, which it tells the main process."""
    names = []
    if sides.trainer.accelerator.is_main_process:
        with suppress(Exception):  # an older server: requests' and ms-swift's own errors
            names = sides.trainer.vllm_client.get_model_state_keys()
    found = {"tied embeddings": (tied(ours), tied(names))} if names else {}
    if quantised == "None" and any(map(STORED.search, names)):
        found["quantisation"] = (quantised, "quantised weights")
    return found


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
    kept = {name: getattr(config, name) for name in UNFILTERED}
    if any(value not in (None, UNFILTERED[name]) for name, value in kept.items()):
        vars(config).update(UNFILTERED)
        unfiltered = of_rows(sides.compare()[0])
        vars(config).update(kept)
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
