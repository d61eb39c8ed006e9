"""Describe a model for the planner: a transformers configuration and its parameter counts.

    read_model("Qwen/Qwen2.5-VL-3B-Instruct").parameters.total      3_754_622_976
    read_model("path/to/checkpoint")    its config.json; nothing is downloaded and no weight is read

families/models.json has for each model the numbers of its published config.json and the parameter
counts of its transformers class (dev/count_parameters.py writes them, a test counts again), and
checkpoints that are "like" another one except for name and context.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from swift_vlrft import chatglm4v
from swift_vlrft.families import IMAGE_TYPES, UNKNOWN_IMAGES, family_of, why_not_shared
from swift_vlrft.families.family import Family, MemoryFacts
from swift_vlrft.families.published import published_models, published_name
from swift_vlrft.families.resize import ImageRule
from swift_vlrft.files.jsonl import read_json


@dataclass(frozen=True)
class Parameters:
    """Counts of parameters by part; ``head`` is zero if the output layer shares the embedding."""

    vit: int
    aligner: int
    embedding: int
    layers: int
    head: int
    largest_layer: int

    @property
    def llm(self) -> int:
        return self.embedding + self.layers + self.head

    @property
    def total(self) -> int:
        return self.vit + self.aligner + self.llm


class _Number:
    """Reads an integer of the language model or the ViT, by its first name in config.json."""

    def __init__(self, part: str, *names: str, default: int | None = None) -> None:
        self.part, self.names, self.default = part, names, default

    def __get__(self, model: Model | None, _: type) -> int:
        values: dict[str, Any] = getattr(model, self.part, {})
        value = next((values[name] for name in self.names if values.get(name)), self.default)
        if value is None:
            raise KeyError(self.names[0])
        return int(value[0] if isinstance(value, list | tuple) else value)


@dataclass(frozen=True)
class Model:
    name: str
    config: dict[str, Any]
    parameters: Parameters

    hidden = _Number("text", "hidden_size")
    layers = _Number("text", "num_hidden_layers", "num_layers")
    heads = _Number("text", "num_attention_heads")
    kv_heads = _Number(
        *("text", "num_key_value_heads", "multi_query_group_num", "num_attention_heads")
    )
    vocabulary = _Number("text", "vocab_size", "padded_vocab_size")
    experts = _Number(
        *("text", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        default=0,
    )
    chosen_experts = _Number("text", "num_experts_per_tok", "top_k_experts", "moe_k", default=1)
    expert_width = _Number("text", "moe_intermediate_size", "intermediate_size")
    patch = _Number("vision", "patch_size", default=14)
    vit_layers = _Number("vision", "depth", "num_hidden_layers", default=0)
    vit_hidden = _Number("vision", "embed_dim", "hidden_size", default=0)
    vit_heads = _Number("vision", "num_heads", "num_attention_heads", default=16)

    @property
    def type(self) -> str:
        return str(self.config["model_type"])

    @property
    def text(self) -> dict[str, Any]:
        return self.config.get("text_config") or self.config

    @property
    def vision(self) -> dict[str, Any]:
        return self.config.get("vision_config") or {}

    @property
    def sees(self) -> bool:
        return bool(self.vision)

    @property
    def family(self) -> Family | None:
        return family_of(config=self.config)

    @property
    def facts(self) -> MemoryFacts:
        return self.family.memory if self.family else MemoryFacts()

    @property
    def knows_images(self) -> bool:
        return self.family is not None and self.family.images is not None

    @property
    def image_rule(self) -> ImageRule:
        """Return the rule that resizes images; another family's for an unknown one."""
        return (self.family and self.family.images) or UNKNOWN_IMAGES

    @property
    def merge(self) -> int:
        """Return the number of patches along each side of an image token."""
        return self.image_rule.factor // self.patch if self.knows_images else 2

    @property
    def why_not_shared(self) -> str | None:
        return why_not_shared(self.config)

    @property
    def attention_layers(self) -> int:
        """Count layers with keys and values; linear attention keeps a state of fixed size."""
        types = self.text.get("layer_types") or []
        return self.layers - types.count("linear_attention")

    @property
    def head_size(self) -> int:
        size = self.text.get("head_dim") or self.text.get("kv_channels")
        return int(size or self.hidden // self.heads)

    @property
    def intermediate(self) -> int:
        """Return the MLP width that a token passes: all active experts together."""
        if self.experts:
            return self.chosen_experts * self.expert_width
        width = self.text.get("intermediate_size") or self.text.get("ffn_hidden_size")
        # Gemma 4 E2B: in the layers that share keys and values, more than half of them.
        wide = 2 if self.text.get("use_double_wide_mlp") else 1
        return wide * int(width or 4 * self.hidden)

    @property
    def vit_intermediate(self) -> int:
        times = self.vision.get("mlp_ratio", 4)
        return int(self.vision.get(self.facts.vit_intermediate) or self.vit_hidden * times)

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """Return inputs and outputs of a decoder layer's linear layers, by their last names.

        transformers keeps the weights of all experts of a layer in one parameter, which is no
        linear layer: experts have no adapters. Linear attention counts as any other.
        """
        hidden, wide = self.hidden, self.intermediate
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        if self.facts.llm_mlp == "dense_h_to_4h":
            mixed = {"query_key_value": (hidden, query + 2 * key), "dense": (query, hidden)}
            return mixed | {"dense_h_to_4h": (hidden, 2 * wide), "dense_4h_to_h": (wide, hidden)}
        layers = {"q_proj": (hidden, query), "k_proj": (hidden, key), "v_proj": (hidden, key)}
        layers["o_proj"] = (query, hidden)
        if self.experts:
            return layers
        joined = self.facts.llm_mlp == "gate_up_proj"
        gates = ("gate_up_proj",) if joined else ("gate_proj", "up_proj")
        return (
            layers | dict.fromkeys(gates, (hidden, wide << joined)) | {"down_proj": (wide, hidden)}
        )

    @property
    def vit_linear(self) -> dict[str, tuple[int, int]]:
        """Return inputs and outputs of a ViT layer's linear layers, by their last names."""
        hidden, wide, first = self.vit_hidden, self.vit_intermediate, self.facts.vit_attention
        layers = {first: (hidden, 3 * hidden)}
        if first == "q_proj":
            layers = dict.fromkeys(("q_proj", "k_proj", "v_proj"), (hidden, hidden))
        layers["dense" if first == "query_key_value" else "proj"] = (hidden, hidden)
        gated = self.facts.vit_gated
        names = ("gate_proj", "up_proj", "down_proj") if gated else ("fc1", "fc2")
        return layers | dict.fromkeys(names[:-1], (hidden, wide)) | {names[-1]: (wide, hidden)}

    @property
    def context(self) -> int | None:
        """Return the longest row by the configuration, if it says: vLLM's default of max_model_len
        (vllm's config/model.py: _get_and_verify_max_len).
        """
        return self.text.get("max_position_embeddings") or self.text.get("seq_length")


def known_models() -> list[str]:
    return [name for name, entry in published_models().items() if "like" not in entry]


def read_model(name: str) -> Model:
    """Read a model by hub id or plain name, checkpoint folder or config.json; else ValueError."""
    path = Path(os.path.expanduser(name))
    is_folder = path.is_dir()
    if is_folder and not (path / "config.json").is_file():
        kind = "an adapter" if (path / "adapter_config.json").is_file() else "no checkpoint"
        raise ValueError(f"model {name!r} is {kind}, without a config.json; give the model itself")
    if is_folder or path.suffix == ".json":
        return _from_file(path)
    plain = name.rstrip("/").rsplit("/", 1)[-1]
    known_name = published_name(name)
    if known_name is None:
        raise ValueError(
            f"model {name!r}: no configuration of it is shipped, and no folder or config.json has "
            "this path; give the path of its checkpoint or config.json. "
            f"Shipped: {', '.join(known_models())}"
        )
    entry = published_models()[known_name]
    like = entry.get("like", known_name)
    config = dict(published_models()[like])
    counts = Parameters(**config.pop("parameters"))
    if context := entry.get("context"):
        config["max_position_embeddings"] = context
    return Model(plain, config, counts)


def part_of(name: str) -> str:
    """Return the part of a parameter: vit, aligner or llm, as in swift/model/model_arch.py."""
    if re.search(
        r"(?<!vit_)merger|projector|embed_vision|embed_audio|vision\.(?:linear_proj|conv)\b", name
    ):
        return "aligner"
    return "vit" if re.search("visual|vision|audio", name) else "llm"


def makes_known(config: dict[str, Any]) -> None:
    """Let transformers build a model that this package has the classes of."""
    family = family_of(config=config)
    if family is None and config["model_type"] in IMAGE_TYPES:
        raise ValueError("it has no vision_config, and no language model of this type is known")
    if family and family.own_classes:
        chatglm4v.register()


def on_meta(config: dict[str, Any]) -> Any:
    """Build the transformers model on the meta device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    makes_known(config)
    auto = AutoModelForImageTextToText if config.get("vision_config") else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(AutoConfig.for_model(**config))
    model.tie_weights()
    return model


def count_parameters(config: dict[str, Any]) -> Parameters:
    import torch

    model = on_meta(config)
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():  # a tied one stands once
        counts[part_of(name)] += parameter.numel()
    lists = (n_p for n_p in model.named_modules() if isinstance(n_p[1], torch.nn.ModuleList))
    layers = [layer for name, part in lists if part_of(name) == "llm" for layer in part]
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    own_head = 0 if head is embedding else head.numel()
    return Parameters(
        **{"vit": counts["vit"], "aligner": counts["aligner"]},
        **{"embedding": embedding.numel(), "head": own_head},
        layers=counts["llm"] - embedding.numel() - own_head,
        largest_layer=max(sum(p.numel() for p in layer.parameters()) for layer in layers),
    )


def _from_file(path: Path) -> Model:
    file = path / "config.json" if path.is_dir() else path
    config = read_json(file)
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(f"model {path}: {file} has no model_type, so it is no model's config.json")
    try:
        return Model(str(path), *_built(json.dumps(config)))
    except Exception as error:  # a foreign file in a foreign class: whatever transformers raises
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(
            f"model {path}: transformers {metadata.version('transformers')} cannot build what "
            f"{file} describes (model_type {config['model_type']}): {why}"
        ) from None


@cache
def _built(text: str) -> tuple[dict[str, Any], Parameters]:
    """Return a model's configuration in transformers' usual form, and its parameter counts.

    Defaults are filled in, names are the usual ones (not gpt2's n_embd), and numbers are nested
    (until 2025 the language model's were at the top).
    """
    from transformers import AutoConfig

    config = json.loads(text)
    makes_known(config)
    built = AutoConfig.for_model(**config)
    complete, llm = built.to_dict(), built.get_text_config()
    said = {**config, **(config.get("text_config") or {})}
    for name in ("num_hidden_layers", "hidden_size"):
        if not said.keys() & {name, llm.attribute_map.get(name)}:
            raise ValueError(f"it does not say {name}, which a plan needs")
    llm.allow_global_per_layer_attribute_access = True  # Gemma 4: head_dim of most layers
    names = {name: getattr(llm, name) for name in _TEXT if getattr(llm, name, None) is not None}
    (complete.get("text_config") or complete).update(names)
    return complete, count_parameters(complete)


_TEXT = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size", "head_dim", "max_position_embeddings"),
)
