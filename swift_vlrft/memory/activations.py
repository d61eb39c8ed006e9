"""What one forward and backward pass keeps: simulated where torch is, else in closed form.

    activations(settings).peaks["backward of the LLM"]     {"activations LLM": ..., "logits": ...}

A simulation takes seconds and is kept in the user's cache folder under everything that it depends
on (configuration, shape, versions of this file, torch and transformers).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swift_vlrft.memory.models import Model
from swift_vlrft.memory.settings import Settings

LLM, VIT, LOGITS, TEMPORARY = "activations LLM", "activations ViT", "logits", "temporaries"
FORWARD_VIT, FORWARD_LLM, LOSS = "forward of the ViT", "forward of the LLM", "loss"
BACKWARD_LOSS, BACKWARD_LLM = "backward of the loss", "backward of the LLM"
BACKWARD_VIT = "backward of the ViT"
STAGES = (FORWARD_VIT, FORWARD_LLM, LOSS, BACKWARD_LOSS, BACKWARD_LLM, BACKWARD_VIT)

Peaks = dict[str, dict[str, int]]
"""Stage -> component -> bytes, at the moment of the stage at which most is alive."""

VERSION = 2
"""Raised when simulate.py changes what it counts, so that old results are not taken."""


@dataclass(frozen=True)
class Shape:
    """Everything that decides activations; also the key of the cache."""

    batch: int
    length: int
    """Tokens of the longest row: text, image tokens and completion, padded to it."""
    logits: int
    """Rows per sequence for which the loss computes logits; ms-swift: completion + 1."""
    grids: tuple[tuple[int, int, int], ...] = ()
    """Patches of the images of one sequence: (time, rows, columns)."""
    dtype: str = "bfloat16"
    attention: str = "flash_attention_2"
    checkpoint_llm: bool = True
    checkpoint_vit: bool = True
    reentrant: bool = True
    train_llm: bool = True
    train_vit: bool = False
    train_aligner: bool = False
    lora_rank: int = 0
    lora_dropout: float = 0.05
    lora_float32: bool = False
    logits_float32: bool = False
    """accelerate converts a model's outputs to float32 under its own mixed precision."""
    chunked_loss: bool = False
    train: bool = True
    """False: the forward pass without gradients of the old and reference log-probabilities."""
    copied_keys: int = 0
    """Tokens whose keys and values shared prefixes write once more, in every layer."""
    cuda: bool = True
    """False: as PyTorch's CPU kernels do it, for the comparison with a real run on CPU."""

    @property
    def packed(self) -> bool:
        """Shared prefixes: all prompts and completions as one sequence."""
        return self.copied_keys > 0


@dataclass(frozen=True)
class Activations:
    peaks: Peaks
    how: str
    """simulated | computed"""

    def at(self, *stages: str) -> dict[str, int]:
        """The stage of these at which most is alive."""
        found = [self.peaks[stage] for stage in stages if stage in self.peaks]
        return max(found, key=lambda parts: sum(parts.values()), default={})


def shape_of(settings: Settings, *, train: bool = True) -> Shape:
    lora = settings.tuning != "full"
    shape = Shape(
        batch=settings.batch,
        length=settings.length,
        logits=settings.length if settings.all_logits else settings.completion + 1,
        grids=settings.grids,
        dtype=settings.dtype,
        attention=settings.attention,
        checkpoint_llm=settings.checkpoint_llm and train,
        checkpoint_vit=settings.checkpoint_vit and train,
        # swift/trainers/mixin.py: _fix_gradient_checkpointing
        reentrant=settings.deepspeed or settings.processes == 1,
        train_llm=settings.train_llm,
        train_vit=settings.train_vit,
        train_aligner=settings.train_aligner,
        lora_rank=settings.lora_rank if lora else 0,
        lora_dropout=settings.lora_dropout,
        lora_float32=lora and settings.trainable_size == 4,
        # accelerate wraps forward in ConvertOutputsToFp32 unless DeepSpeed has the precision.
        logits_float32=not settings.deepspeed and settings.sharding != "fsdp",
        chunked_loss=settings.chunked_loss and train,
        train=train,
    )
    return _packed(settings, shape) if settings.shared_prefix else shape


def _packed(settings: Settings, shape: Shape) -> Shape:
    """swift_vlrft/shared_prefix: one sequence of each prompt and, after it, its completions; the
    head only where a completion token is predicted.
    """
    rows, prompts = settings.batch, settings.prompts
    prompt = settings.length - settings.completion
    return replace(
        shape,
        batch=1,
        length=prompts * prompt + rows * settings.completion,
        logits=rows * settings.completion,
        grids=settings.grids * prompts,
        # shared_prefix/attention.py: a prompt's keys and values stand before each completion's.
        copied_keys=rows * settings.length,
    )


def can_simulate(model: Model) -> bool:
    return model.simulated and _installed()


@lru_cache
def _installed() -> bool:
    return all(find_spec(name) for name in ("torch", "transformers"))


@lru_cache
def _versions() -> list[str]:
    return [metadata.version(name) for name in ("torch", "transformers")]


def activations(model: Model, shape: Shape, *, simulated: bool = True) -> Activations:
    if not (simulated and can_simulate(model)):
        return Activations(_with_keys(model, shape, closed_form(model, shape)), "computed")
    file = _cache_file(model, shape)
    try:
        return Activations(_with_keys(model, shape, json.loads(file.read_text())), "simulated")
    except (OSError, ValueError):
        pass
    from swift_vlrft.memory.simulate import simulate

    try:
        peaks = simulate(model.config, shape)
    except Exception:  # a class or a configuration that does not run so: the plan says "computed"
        return Activations(_with_keys(model, shape, closed_form(model, shape)), "computed")
    _write(file, json.dumps(peaks))
    return Activations(_with_keys(model, shape, peaks), "simulated")


def _with_keys(model: Model, shape: Shape, peaks: Peaks) -> Peaks:
    """The copies that shared prefixes attend to: kept in every layer, or in the one recomputed."""
    if not shape.packed:
        return peaks
    size = 4 if shape.dtype == "float32" else 2
    layer = shape.copied_keys * 2 * model.kv_heads * model.head_size * size
    kept = layer * (model.layers if shape.train and not shape.checkpoint_llm else 1)
    more = {FORWARD_LLM: kept, LOSS: kept, BACKWARD_LOSS: kept, BACKWARD_LLM: kept + layer}
    if not shape.train or shape.checkpoint_llm:
        more = {FORWARD_LLM: layer, BACKWARD_LLM: 2 * layer}
    return {
        stage: {**parts, LLM: parts.get(LLM, 0) + more[stage]} if stage in more else parts
        for stage, parts in peaks.items()
    }


def cached(model: Model, shape: Shape) -> bool:
    return can_simulate(model) and _cache_file(model, shape).is_file()


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "swift_vlrft" / "memory"


def _cache_file(model: Model, shape: Shape) -> Path:
    key = json.dumps(
        [VERSION, _versions(), _without_context(model.config), asdict(shape)], sort_keys=True
    )
    return cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _without_context(config: dict[str, Any]) -> dict[str, Any]:
    """The longest row that a model takes changes nothing in a row that is shorter."""
    return {
        name: _without_context(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name != "max_position_embeddings"
    }


def _write(file: Path, text: str) -> None:
    """Beside, then renamed: two planners may run at once. No cache is no loss."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
            new.write(text)
        os.replace(new.name, file)
    except OSError:
        return


# Closed form -----------------------------------------------------------------------------------

LORA_SAVED = 1.9
"""Ratio of what a LoRA layer keeps (inputs after dropout, masks) to a fully trained one."""
LOGITS_FORWARD, LOGITS_BACKWARD = 2, 4
"""Copies of the bfloat16 logits alive in the loss and in its backward pass; where the prompt's
logits are computed too, nothing is divided in place and the backward pass needs 2."""
LOGITS_FLOAT32 = 3
"""Copies of the float32 logits alive in the loss's backward pass."""


def closed_form(model: Model, shape: Shape) -> Peaks:
    """The same stages from formulas: for models that cannot be run and machines without torch."""
    size = 4 if shape.dtype == "float32" else 2
    tokens = shape.batch * shape.length
    patches = shape.batch * sum(t * h * w for t, h, w in shape.grids)
    token_layer = (model.facts.llm_saved * model.hidden + 8 * model.intermediate) * size / 2
    if shape.attention == "eager":
        token_layer += 5 * size * model.heads * shape.length
    if shape.lora_rank:
        token_layer *= LORA_SAVED
    vit = model.facts.vit_saved * model.vit_hidden * size / 2
    working_llm = tokens * token_layer
    logits = shape.batch * shape.logits * model.vocabulary * size
    grows = shape.train and (shape.train_vit or shape.train_aligner)
    if not shape.train:
        live = tokens * (6 * model.intermediate + 10 * model.hidden) * size // 2
        return {
            FORWARD_VIT: {VIT: round(patches * vit / 2)},
            FORWARD_LLM: {LLM: round(live)},
            LOSS: {LOGITS: logits + logits // shape.batch},
        }
    kept_llm = model.layers * (
        tokens * 2 * model.hidden * size // 2 if shape.checkpoint_llm else working_llm
    )
    kept_vit = 0.0
    if grows:
        layer = 2 * model.vit_hidden * size / 2 if shape.checkpoint_vit else vit
        kept_vit = model.vit_layers * patches * layer
    kept = {VIT: round(kept_vit), LLM: round(kept_llm)}
    if shape.chunked_loss:
        row = shape.logits * model.vocabulary * 4
        after = {LOGITS: 3 * row}
        back = {LOGITS: 3 * row}
    elif shape.logits_float32:
        after = {LOGITS: 2 * logits}
        back = {LOGITS: 2 * LOGITS_FLOAT32 * logits}
    else:
        after = {LOGITS: LOGITS_FORWARD * logits}
        back = {LOGITS: (2 if shape.logits == shape.length else LOGITS_BACKWARD) * logits}
    working = {TEMPORARY: round(working_llm * (1.3 if shape.checkpoint_llm else 0.3))}
    embedding = 3 * model.parameters.embedding * size if not shape.lora_rank else 0
    return {
        FORWARD_VIT: {VIT: round(kept_vit + patches * vit / 2)},
        FORWARD_LLM: {**kept, LOGITS: logits},
        LOSS: {**kept, **after},
        BACKWARD_LOSS: {**kept, **back},
        BACKWARD_LLM: {**kept, **working},
        BACKWARD_VIT: {
            VIT: round(kept_vit),
            TEMPORARY: max(embedding, round(patches * vit * 1.3) if grows else 0),
        },
    }


def scaled(known: Activations, model: Model, shape: Shape, other: Shape) -> Activations:
    """A guess for ``other`` from a simulation of ``shape``: by the ratio of their closed forms."""
    one = _with_keys(model, shape, closed_form(model, shape))
    two = _with_keys(model, other, closed_form(model, other))
    peaks: Peaks = {}
    for stage, parts in two.items():
        before, simulated = one.get(stage, {}), known.peaks.get(stage, {})
        low, high = sum(before.values()), sum(parts.values())
        base = sum(simulated.values())
        factor = base / low if low and base else 1.0
        peaks[stage] = {name: round(value * factor) for name, value in parts.items()}
        if low == high and base:
            peaks[stage] = dict(simulated)
    return Activations(peaks, "estimated")


def with_batch(shape: Shape, batch: int) -> Shape:
    return replace(shape, batch=batch)


def describe(shape: Shape) -> dict[str, Any]:
    return asdict(shape)
