"""Activations in closed form: for models that cannot be traced, and for many shapes quickly."""

from __future__ import annotations

from swift_vlrft.memory import stages
from swift_vlrft.memory.models import Model
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.stages import (
    Activations,
    BatchShape,
    Peaks,
    Source,
    batch_shape,
    size_of,
    with_copied_keys,
)

LORA_SAVED = 1.9
"""Ratio of what a LoRA layer saves (inputs after dropout, masks) to a fully trained one."""


def analytic(model: Model, shape: BatchShape) -> Activations:
    return Activations(with_copied_keys(model, shape, _peaks(model, shape)), "analytic")


def scaled(known: Activations, model: Model, shape: BatchShape, other: BatchShape) -> Activations:
    """``other`` from the activations ``known`` of ``shape``, by the ratio of their closed forms."""
    before, peaks = analytic(model, shape).peaks, {}
    for stage, parts in analytic(model, other).peaks.items():
        low, base = size_of(before.get(stage, {})), size_of(known.peaks.get(stage, {}))
        factor = base / low if low and base else 1.0
        peaks[stage] = {name: round(value * factor) for name, value in parts.items()}
        if low == size_of(parts) and base:
            peaks[stage] = known.peaks[stage]
    return Activations(peaks, "scaled")


def scaled_from(settings: Settings, source: Source) -> Source:
    """A source that scales any shape from that of ``settings`` as given by ``source``."""
    shapes = [batch_shape(settings, train=train) for train in (True, False)]
    known = {shape.train: (shape, source(settings.model, shape)) for shape in shapes}

    def scale(model: Model, shape: BatchShape) -> Activations:
        before, activations = known[shape.train]
        return activations if shape == before else scaled(activations, model, before, shape)

    return scale


def _peaks(model: Model, shape: BatchShape) -> Peaks:
    size = shape.bytes_per_value
    tokens = shape.batch * shape.length
    patches = shape.batch * sum(t * h * w for t, h, w in shape.grids)
    logits = shape.batch * shape.logits * model.vocabulary * size
    vit_layer = model.facts.vit_saved * model.vit_hidden * size / 2 * patches
    if not shape.train:
        live = tokens * (6 * model.intermediate + 10 * model.hidden) * size // 2
        return {
            stages.FORWARD_VIT: {stages.VIT: round(vit_layer / 2)},
            stages.FORWARD_LLM: {stages.LLM: round(live)},
            stages.LOSS: {stages.LOGITS: logits + logits // shape.batch},
        }
    llm_layer = tokens * _saved_by_token(model, shape)
    per_layer = tokens * 2 * model.hidden * size // 2 if shape.checkpoint_llm else llm_layer
    vit_trains = shape.train_vit or shape.train_aligner
    kept_vit = 0.0
    if vit_trains:
        per_token = 2 * model.vit_hidden * size / 2
        kept_vit = model.vit_layers * (patches * per_token if shape.checkpoint_vit else vit_layer)
    kept = {stages.VIT: round(kept_vit), stages.LLM: round(model.layers * per_layer)}
    after, back = _logits(model, shape, logits)
    again = llm_layer * (1.3 if shape.checkpoint_llm else 0.3)
    embedding = 0 if shape.lora_rank else 3 * model.parameters.embedding * size
    back_vit = max(embedding, round(vit_layer * 1.3) if vit_trains else 0)
    return {
        stages.FORWARD_VIT: {stages.VIT: round(kept_vit + vit_layer / 2)},
        stages.FORWARD_LLM: {**kept, stages.LOGITS: logits},
        stages.LOSS: {**kept, stages.LOGITS: after},
        stages.BACKWARD_LOSS: {**kept, stages.LOGITS: back},
        stages.BACKWARD_LLM: {**kept, stages.TEMPORARIES: round(again)},
        stages.BACKWARD_VIT: {stages.VIT: round(kept_vit), stages.TEMPORARIES: back_vit},
    }


def _saved_by_token(model: Model, shape: BatchShape) -> float:
    """Bytes that a decoder layer saves per token without checkpointing."""
    size = shape.bytes_per_value
    saved = (model.facts.llm_saved * model.hidden + 8 * model.intermediate) * size / 2
    if shape.attention == "eager":
        saved += 5 * size * model.heads * shape.length
    return saved * LORA_SAVED if shape.lora_rank and not shape.lora_targets else saved


def _logits(model: Model, shape: BatchShape, logits: int) -> tuple[int, int]:
    """Bytes of logits alive in the loss and in its backward pass."""
    if shape.chunked_loss:
        row = 3 * shape.logits * model.vocabulary * 4
        return row, row
    if shape.logits_float32:
        return 2 * logits, 6 * logits  # three float32 copies
    # If the prompt's logits are computed too, nothing is divided in place.
    return 2 * logits, (2 if shape.logits == shape.length else 4) * logits
