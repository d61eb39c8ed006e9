"""What a model is to memory: a transformers configuration and the parameters it makes.

    read_model("Qwen/Qwen2.5-VL-3B-Instruct").parameters.total      3_754_622_976
    read_model("path/to/checkpoint")    its config.json; nothing is downloaded and no weight is read

models.json holds the numbers of the published config.json of each model; a test builds every one of
them with transformers on the meta device and compares the counts.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

MODELS_FILE = Path(__file__).with_name("models.json")

VISION_TOWERS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v")
"""Model types with a ViT that is counted and simulated part by part."""

ALIASES = {
    "qwq-32b": "Qwen2.5-32B",
    "deepseek-r1-distill-qwen-32b": "Qwen2.5-32B",
    "deepseek-r1-distill-qwen-14b": "Qwen2.5-14B",
    "deepseek-r1-distill-qwen-7b": "Qwen2.5-7B",
    "qwen2-7b": "Qwen2.5-7B",
    "qwen2-72b": "Qwen2.5-72B",
    "qwen2-1.5b": "Qwen2.5-1.5B",
    "qwen2-0.5b": "Qwen2.5-0.5B",
}
"""Checkpoints of the same shape under another name (published config.json compared)."""

CONTEXTS = {"-2507": 262144, "deepseek-r1-distill": 131072}
"""Contexts of checkpoints that share another one's shape and not its context."""

SUFFIXES = ("-instruct", "-thinking", "-base", "-2507", "-2512", "-bf16", "-math", "-coder", "-hf")


class ModelError(ValueError):
    """A model whose configuration is not known; the message lists those that are."""


@dataclass(frozen=True)
class Parameters:
    """Counts by part; ``head`` is zero where the output layer shares the embedding."""

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


@dataclass(frozen=True)
class Model:
    name: str
    config: dict[str, Any]
    source: str

    @property
    def type(self) -> str:
        return str(self.config["model_type"])

    @property
    def text(self) -> dict[str, Any]:
        return dict(self.config.get("text_config") or self.config)

    @property
    def vision(self) -> dict[str, Any] | None:
        return self.config.get("vision_config") or None

    @property
    def sees(self) -> bool:
        return self.vision is not None

    @property
    def simulated(self) -> bool:
        """Whether simulate.py can run it: no expert routing, no tower of another kind."""
        return not self.experts and (not self.sees or self.type in VISION_TOWERS)

    @property
    def experts(self) -> int:
        return int(self.text.get("num_experts") or self.text.get("num_local_experts") or 0)

    @property
    def hidden(self) -> int:
        return int(self.text["hidden_size"])

    @property
    def layers(self) -> int:
        return int(self.text["num_hidden_layers"])

    @property
    def heads(self) -> int:
        return int(self.text["num_attention_heads"])

    @property
    def kv_heads(self) -> int:
        return int(self.text.get("num_key_value_heads") or self.heads)

    @property
    def head_size(self) -> int:
        return int(self.text.get("head_dim") or self.hidden // self.heads)

    @property
    def intermediate(self) -> int:
        """Of the layers that one token passes: the active experts' together."""
        if self.experts:
            chosen = int(self.text.get("num_experts_per_tok") or 1)
            return chosen * int(self.text["moe_intermediate_size"])
        return int(self.text.get("intermediate_size") or 4 * self.hidden)

    @property
    def vocabulary(self) -> int:
        return int(self.text.get("vocab_size") or self.config["vocab_size"])

    @property
    def context(self) -> int | None:
        """Longest row of its configuration: vLLM's max_model_len where no flag says one (vllm's
        config/model.py: _get_and_verify_max_len). None where the file does not say.
        """
        plain = self.name.rstrip("/").rsplit("/", 1)[-1].lower()
        if not Path(self.name).exists():
            for part, length in CONTEXTS.items():
                if part in plain:
                    return length
        value = self.text.get("max_position_embeddings")
        return int(value) if value else None

    @property
    def tied(self) -> bool:
        # Whether it says so at the top (the newer files) or inside; transformers' default is no.
        said = self.config.get("tie_word_embeddings")
        return bool(self.text.get("tie_word_embeddings", False) if said is None else said)

    @property
    def patch(self) -> int:
        size = (self.vision or {}).get("patch_size", 14)
        return int(size[0] if isinstance(size, list) else size)

    @property
    def merge(self) -> int:
        return int((self.vision or {}).get("spatial_merge_size", 2))

    @property
    def vit_layers(self) -> int:
        vision = self.vision or {}
        return int(vision.get("depth") or vision.get("num_hidden_layers") or 0)

    @property
    def vit_hidden(self) -> int:
        vision = self.vision or {}
        return int(vision.get("embed_dim") or vision.get("hidden_size") or 0)

    @property
    def vit_heads(self) -> int:
        vision = self.vision or {}
        return int(vision.get("num_heads") or vision.get("num_attention_heads") or 16)

    @property
    def vit_intermediate(self) -> int:
        vision = self.vision or {}
        if self.type == "qwen2_vl":
            return int(self.vit_hidden * vision.get("mlp_ratio", 4))
        if self.type == "glm4v":
            return int(vision["out_hidden_size"])
        return int(vision.get("intermediate_size") or 4 * self.vit_hidden)

    @property
    def vit_gated(self) -> bool:
        return self.type in ("qwen2_5_vl", "glm4v")

    @cached_property
    def parameters(self) -> Parameters:
        layer = _layer_parameters(self)
        embedding = self.vocabulary * self.hidden
        vit, aligner = _vision_parameters(self)
        return Parameters(
            vit=vit,
            aligner=aligner,
            embedding=embedding,
            layers=self.layers * layer + self.hidden,
            head=0 if self.tied else embedding,
            largest_layer=layer,
        )


def known_models() -> list[str]:
    return list(_shipped())


def read_model(name: str) -> Model:
    """By its hub id or plain name, a checkpoint's folder or a config.json; ModelError otherwise."""
    path = Path(name).expanduser()
    if path.is_dir() or path.suffix == ".json":
        return _from_file(path)
    plain = name.rstrip("/").rsplit("/", 1)[-1]
    low = plain.lower()
    shipped = {known.lower(): known for known in _shipped()}
    while True:
        key = ALIASES.get(low) or shipped.get(low)
        if key:
            return Model(plain, _shipped()[key], f"shipped configuration of {key}")
        suffix = next((s for s in SUFFIXES if low.endswith(s)), None)
        if suffix is None:
            break
        low = low.removesuffix(suffix)
    known = ", ".join(_shipped())
    raise ModelError(
        f"model {name!r}: no configuration of it is shipped and no folder or config.json has this "
        f"path; give the path of its checkpoint or config.json. Shipped: {known}"
    )


def model_of_size(name: str, *, sees: bool) -> Model:
    """A model that is not shipped, by the size in its name: the shipped one of its kind nearest in
    size, with as many layers as make that size. ``source`` says so; nothing better is known of it.

        model_of_size("meta-llama/Llama-3.2-3B", sees=False)     Qwen2.5-3B of 37 layers

    For published reports, which name models of every kind; `vlrft plan` asks for the configuration.
    """
    plain = name.rstrip("/").rsplit("/", 1)[-1]
    size = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)\s*b(?![a-z])", plain.lower().replace("_", "-"))
    if not size or not 0.1 <= float(size[1]) <= 1000:
        raise ModelError(f"no configuration of {name} is shipped, and its name has no size")
    wanted = float(size[1]) * 1e9
    active = bool(re.search(r"-a\d+(?:\.\d+)?b", plain.lower()))
    kind = [m for m in map(read_model, _shipped()) if m.sees == sees and bool(m.experts) == active]
    nearest = min(kind, key=lambda m: abs(math.log(m.parameters.total / wanted)))
    parameters = nearest.parameters
    # Sizes in names count the whole model; the ViT and the embedding do not change.
    rest = parameters.total - nearest.layers * parameters.largest_layer
    layers = max(1, round((wanted - rest) / parameters.largest_layer))
    text = {**nearest.text, "num_hidden_layers": layers}
    text.pop("layer_types", None)
    config = {**nearest.config, "text_config": text} if nearest.sees else text
    why = (
        f"no configuration of {plain}: {nearest.name} with {layers} layers, by the size in its name"
    )
    return Model(plain, config, why)


@lru_cache
def _shipped() -> dict[str, dict[str, Any]]:
    return dict(json.loads(MODELS_FILE.read_text()))


def _from_file(path: Path) -> Model:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except OSError as error:
        raise ModelError(f"model {path}: {file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"model {path}: {file} is not JSON: {error}") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelError(f"model {path}: {file} has no model_type, so it is no model's config.json")
    if config["model_type"] in VISION_TOWERS and "text_config" not in config:
        # The form of 2024 and 2025: the text model's numbers at the top.
        config = {**config, "text_config": {k: v for k, v in config.items() if k in _TEXT}}
    for values in (config, _completed(config)):
        model = Model(str(path), values, str(file))
        try:
            _ = model.parameters, model.patch, model.merge, model.vit_heads
            return model
        except KeyError as error:
            wrong = f"lacks {error}, which decides its size"
        except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
            wrong = f"has a number that is none ({error})"
    raise ModelError(f"model {path}: {file} {wrong}")


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """With the defaults and the other names of its family (gpt2's n_embd), as transformers has
    them; as it is where transformers is not installed or does not know it.
    """
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        values = {name: value for name, value in config.items() if name != "model_type"}
        made = CONFIG_MAPPING[config["model_type"]](**values)
        text = made.get_text_config()
        names = {n: getattr(text, n) for n in _TEXT if getattr(text, n, None) is not None}
        if made.to_dict().get("text_config"):
            return {**made.to_dict(), "text_config": {**text.to_dict(), **names}}
        return {**made.to_dict(), **names}
    except Exception:  # a foreign file in a foreign class: whatever it says, ours says it plainer
        return config


_TEXT = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "head_dim",
    "rope_scaling",
    "rope_theta",
    "rms_norm_eps",
    "max_position_embeddings",
)


def _layer_parameters(model: Model) -> int:
    """One decoder layer, from transformers' modeling files of each family."""
    hidden, size = model.hidden, model.head_size
    query, key = model.heads * size, model.kv_heads * size
    attention = hidden * query + 2 * hidden * key + query * hidden
    if model.type in ("qwen2_vl", "qwen2_5_vl", "qwen2", "glm4v", "internvl"):
        attention += query + 2 * key  # biases of q, k and v
    norms = 2 * hidden
    if model.type.startswith("qwen3"):
        norms += 2 * size  # of queries and keys
    if model.type == "glm4v":
        norms += 2 * hidden  # after attention and after the MLP too
    if model.experts:
        mlp = model.experts * 3 * hidden * int(model.text["moe_intermediate_size"])
        mlp += model.experts * hidden  # the router
    else:
        mlp = 3 * hidden * model.intermediate
    return attention + norms + mlp


def _vision_parameters(model: Model) -> tuple[int, int]:
    """The ViT and what joins it to the LLM (merger, deepstack)."""
    if model.vision is None:
        return 0, 0
    hidden, wide, depth = model.vit_hidden, model.vit_intermediate, model.vit_layers
    vision = model.vision
    patch = 3 * int(vision.get("temporal_patch_size", 2)) * model.patch**2
    merged = hidden * model.merge**2
    out = int(vision.get("out_hidden_size") or model.hidden)
    attention = 4 * hidden * hidden + 4 * hidden
    if model.type == "qwen2_vl":
        block = attention + 2 * hidden * wide + wide + hidden + 4 * hidden
        aligner = 2 * hidden + merged * merged + merged + merged * model.hidden + model.hidden
        return patch * hidden + depth * block, aligner
    if model.type == "qwen2_5_vl":
        block = attention + 3 * hidden * wide + 2 * wide + hidden + 2 * hidden
        aligner = hidden + merged * merged + merged + merged * out + out
        return patch * hidden + depth * block, aligner
    if model.type in ("qwen3_vl", "qwen3_vl_moe"):
        block = attention + 2 * hidden * wide + wide + hidden + 4 * hidden
        merger = merged * merged + merged + merged * out + out
        count = len(vision["deepstack_visual_indexes"])
        aligner = (merger + 2 * hidden) + count * (merger + 2 * merged)
        places = int(vision["num_position_embeddings"]) * hidden
        return patch * hidden + hidden + places + depth * block, aligner
    if model.type == "glm4v":
        block = 4 * hidden * hidden + 3 * hidden * out + 2 * hidden
        places = (int(vision["image_size"]) // model.patch) ** 2 * hidden
        stem = patch * hidden + hidden + places + 2 * hidden
        down = hidden * out * model.merge**2 + out
        context = int(vision["intermediate_size"])
        merger = out * out + 2 * out + 3 * out * context
        return stem + depth * block + down, merger
    # Another tower: two-matrix MLP, a projector of two layers.
    block = attention + 2 * hidden * wide + wide + hidden + 4 * hidden
    aligner = merged * model.hidden + model.hidden * model.hidden
    return 3 * model.patch**2 * hidden + depth * block, aligner
