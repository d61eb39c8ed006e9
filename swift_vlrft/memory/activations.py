"""Compute in closed form what a micro-batch keeps on the GPU at the peaks of its passes.

    passes = training_passes(settings)
    passes.forward["activations LLM"], passes.backward["logits"]        bytes

The constants (families' MemoryFacts, and those below) are fitted to what autograd keeps of the
real transformers models; dev/refit.py prints them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_vlrft.memory.settings import Settings

LLM, VIT, LOGITS, TEMPORARIES = "activations LLM", "activations ViT", "logits", "temporaries"

Components = dict[str, int]
"""Component -> bytes."""

LORA_SAVED = {2: 2.3, 4: 6.3}
"""More bytes that a layer keeps where every linear layer has an adapter, per unit of their inputs,
by the bytes of an adapter's weight: the input after dropout in the adapter's type, and the mask."""

RECOMPUTED = 1.3
"""A recomputed layer, with the temporaries of its backward pass, takes so many layers."""


def size_of(parts: Components) -> int:
    return sum(parts.values())


@dataclass(frozen=True)
class Passes:
    forward: Components
    backward: Components  # Of the loss and the language model
    backward_vit: Components


@dataclass(frozen=True)
class _Batch:
    """A micro-batch as the model gets it; lengths in tokens."""

    rows: int
    length: int
    logits: int  # Rows per sequence for which the loss computes logits
    patches: int  # Of all images
    copied: int = 0  # Tokens whose keys and values shared prefixes write once more a layer
    parallel: int = 1  # GPUs that share the tokens of each row

    @property
    def tokens(self) -> int:
        return -(-self.rows * self.length // self.parallel)


def _batch(s: Settings) -> _Batch:
    if not s.shared_prefix:
        logits = s.length if s.all_logits else s.completion + 1
        logits = -(-logits // s.sequence_parallel)
        return _Batch(s.batch, s.length, logits, s.batch * s.patches, parallel=s.sequence_parallel)
    # swift_vlrft/shared_prefix: one sequence of each prompt and, after it, its completions; the
    # head only where a completion token is predicted. attention.py: a prompt's keys and values
    # stand before each completion's.
    answers = s.batch * s.completion
    length = s.prompts * (s.length - s.completion) + answers
    return _Batch(1, length, answers, s.prompts * s.patches, s.batch * s.length)


def training_passes(s: Settings) -> Passes:
    batch, size = _batch(s), s.frozen_size
    logits = batch.rows * batch.logits * s.model.vocabulary * size
    after, back = _logits(s, batch, logits)
    copies = batch.copied * 2 * s.model.kv_heads * s.model.head_size * size
    layer = batch.tokens * _saved_by_token(s, batch)
    saved, again = s.model.layers * layer / s.spread, 0.3 * layer
    saved += copies * s.model.attention_layers
    if s.checkpoint_llm:
        # The layers' inputs; the copies are made again with the layer.
        inputs = s.model.layers * batch.tokens * s.model.hidden * size / s.spread
        saved, again = inputs, RECOMPUTED * layer
    again += copies
    vit_layer = _vit_layer(s, batch)
    trains = s.train_vit or s.train_aligner
    saved_vit = 0.0
    if trains:
        inputs = batch.patches * s.model.vit_hidden * size
        saved_vit = s.model.vit_layers * (inputs if s.checkpoint_vit else vit_layer)
    parts = {VIT: round(saved_vit), LLM: round(saved)}
    working = copies if s.checkpoint_llm else 0
    embedding = 0
    if s.tuning == "full" or s.saved_embeddings:
        embedding = 3 * s.model.parameters.embedding * size
    forward = (
        {VIT: round(saved_vit + vit_layer / 2)},
        {**parts, LLM: parts[LLM] + working, LOGITS: after},
    )
    backward = (
        {**parts, LOGITS: back},
        {**parts, TEMPORARIES: round(again)},
    )
    back_vit = max(embedding, round(RECOMPUTED * vit_layer) if trains else 0)
    return Passes(
        forward=max(forward, key=size_of),
        backward=max(backward, key=size_of),
        backward_vit={VIT: round(saved_vit), TEMPORARIES: back_vit},
    )


def evaluating_pass(s: Settings) -> Components:
    """Return the peak of a forward pass without gradients: log-probabilities, evaluation."""
    batch, model, size = _batch(s), s.model, s.frozen_size
    logits = batch.rows * batch.logits * model.vocabulary * size
    live = batch.tokens * (6 * model.intermediate + 10 * model.hidden) * size // 2
    live += batch.copied * 2 * model.kv_heads * model.head_size * size
    # Log-softmax of one row after the other.
    loss = logits + (2 * logits if s.supervised else logits // batch.rows)
    if s.supervised and s.chunked_loss:
        loss = _logits(s, batch, logits)[0]
    stages = ({VIT: round(_vit_layer(s, batch) / 2)}, {LLM: live}, {LOGITS: loss})
    return max(stages, key=size_of)


def _vit_layer(s: Settings, batch: _Batch) -> float:
    """Bytes that a layer of the ViT saves without checkpointing."""
    model, size = s.model, s.frozen_size
    hidden, wide = model.vit_hidden, model.vit_intermediate
    saved = model.facts.vit_saved * hidden * size / 2
    if s.train_vit and s.tuning in ("lora", "qlora"):
        saved = _with_adapters(s, saved, hidden, wide, model.vit_linear)
    return saved * batch.patches


def _saved_by_token(s: Settings, batch: _Batch) -> float:
    """Bytes that a decoder layer saves per token without checkpointing."""
    model, size = s.model, s.frozen_size
    hidden, wide = model.hidden, model.intermediate
    saved = (model.facts.llm_saved * hidden + 8 * wide) * size / 2
    if s.attention == "eager":
        saved += 5 * size * model.heads * batch.length
    if model.experts:
        # Every token goes to the experts that it chose, and comes back from them.
        saved += 4 * model.chosen_experts * hidden * size / 2
    if s.tuning == "full" or not s.train_llm:
        return saved
    return _with_adapters(s, saved, hidden, wide, model.linear)


def _with_adapters(
    s: Settings, saved: float, hidden: int, wide: int, layers: dict[str, tuple[int, int]]
) -> float:
    """Return ``saved`` with adapters on ``layers``; other layers need not keep their input, nor
    the norms before them.
    """
    inputs = sum(taken for taken, _ in layers.values())
    adapted = sum(layers[name][0] for name in s.lora_targets or layers if name in layers)
    frozen = (8 * hidden + 2 * wide) * s.frozen_size / 2
    return saved - (1 - adapted / inputs) * frozen + LORA_SAVED[s.trainable_size] * adapted


def _logits(s: Settings, batch: _Batch, logits: int) -> tuple[int, int]:
    """Bytes of logits alive in the loss and in its backward pass; ``logits``: one copy."""
    if s.chunked_loss:
        # liger-kernel, a chunk at a time: of supervised rows as large as the hidden states, with
        # the gradients of these and of the head; of GRPO's a row.
        if s.supervised:
            head = (s.tuning == "full") * s.model.vocabulary * s.model.hidden * s.frozen_size
            chunk = 8 * batch.rows * batch.logits * s.model.hidden + head
            return chunk, chunk
        row = 3 * batch.logits * s.model.vocabulary * 4
        return row, row
    if s.supervised and s.sequence_parallel > 1:
        return 2 * logits, 4 * logits  # per_token_loss_func_sp keeps 16 bits
    if s.supervised:
        # swift/trainers/utils.py: per_token_loss_func and transformers' own: the logits in 32 bits,
        # their log-softmax and its gradient beside those of the head.
        return 5 * logits, 7 * logits
    if not s.deepspeed and s.sharding != "fsdp":
        # accelerate wraps forward in ConvertOutputsToFp32: three copies in 32 bits.
        return 2 * logits, 6 * logits
    # If the prompt's logits are computed too, nothing is divided in place.
    return 2 * logits, (2 if s.all_logits else 4) * logits
