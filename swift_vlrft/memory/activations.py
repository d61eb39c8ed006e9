"""Compute in closed form what a micro-batch keeps on the GPU at the peaks of its passes.

    passes = training_passes(settings)
    passes.forward["activations LLM"], passes.backward["logits"]        bytes

The constants (families' MemoryFacts, and those below) are fitted to what autograd keeps of the
real transformers models; dev/refit.py prints them again.
"""

from dataclasses import dataclass

from swift_vlrft.memory.settings import Settings
from swift_vlrft.shared_prefix.settings import LOGPS_PART

LLM, VIT, LOGITS, TEMPORARIES = "activations LLM", "activations ViT", "logits", "temporaries"

Components = dict[str, int]
"""Bytes by component."""

LORA_SAVED = {2: 2.3, 4: 6.3}
"""Bytes that adapters make a layer keep, per unit of its linear layers' inputs, by the bytes of an
adapter's weight: the input after dropout in the adapter's type, and the mask."""

BACKWARD = 0.3
"""Temporaries of a layer's backward pass, as a share of the bytes that the layer saves."""

RECOMPUTED = 1 + BACKWARD
"""Bytes of a recomputed layer in its backward pass, as a share of those that it would save."""


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


def _batch(settings: Settings) -> _Batch:
    if not settings.shared_prefix:
        rows, parallel = settings.batch, settings.sequence_parallel
        logits = settings.length if settings.all_logits else settings.completion + 1
        logits = -(-logits // parallel)
        return _Batch(rows, settings.length, logits, rows * settings.patches, parallel=parallel)
    # swift_vlrft/shared_prefix: one sequence of each prompt and, after it, its completions; the
    # head only where a completion token is predicted. attention.py: a prompt's keys and values
    # stand before each completion's.
    answers, prompts = settings.batch * settings.completion, settings.prompts
    length = prompts * (settings.length - settings.completion) + answers
    copied = settings.batch * settings.length
    return _Batch(1, length, answers, prompts * settings.patches, copied)


def training_passes(settings: Settings) -> Passes:
    batch, model, size = _batch(settings), settings.model, settings.frozen_size
    logits = batch.rows * batch.logits * model.vocabulary * size
    after, back = _logits(settings, batch, logits)
    copies = batch.copied * 2 * model.kv_heads * model.head_size * size
    layer = batch.tokens * _saved_by_token(settings, batch)
    saved, again = model.layers * layer / settings.spread, BACKWARD * layer
    saved += copies * model.attention_layers
    if settings.checkpoint_llm:
        # The layers' inputs; the copies are made again with the layer.
        inputs = model.layers * batch.tokens * model.hidden * size / settings.spread
        saved, again = inputs, RECOMPUTED * layer
    again += copies
    vit_layer = _vit_layer(settings, batch)
    trains = settings.train_vit or settings.train_aligner
    saved_vit = 0.0
    if trains:
        inputs = batch.patches * model.vit_hidden * size
        saved_vit = model.vit_layers * (inputs if settings.checkpoint_vit else vit_layer)
    parts = {VIT: round(saved_vit), LLM: round(saved)}
    working = copies if settings.checkpoint_llm else 0
    embedding = 0
    if settings.tuning == "full" or settings.saved_embeddings:
        embedding = 3 * model.parameters.embedding * size
    forward = (
        {VIT: round(saved_vit + vit_layer / 2)},
        {**parts, LLM: parts[LLM] + working, LOGITS: after},
    )
    backward = ({**parts, LOGITS: back}, {**parts, TEMPORARIES: round(again)})
    back_vit = max(embedding, round(RECOMPUTED * vit_layer) if trains else 0)
    return Passes(
        forward=max(forward, key=size_of),
        backward=max(backward, key=size_of),
        backward_vit={VIT: round(saved_vit), TEMPORARIES: back_vit},
    )


def evaluating_pass(settings: Settings) -> Components:
    """Return the peak of a forward pass without gradients: log-probabilities, evaluation."""
    batch, model, size = _batch(settings), settings.model, settings.frozen_size
    logits = batch.rows * batch.logits * model.vocabulary * size
    live = batch.tokens * (6 * model.intermediate + 10 * model.hidden) * size // 2
    live += batch.copied * 2 * model.kv_heads * model.head_size * size
    # Log-softmax of one row after the other.
    loss = logits + (2 * logits if settings.supervised else logits // batch.rows)
    if settings.shared_prefix:
        loss = logits + 2 * LOGPS_PART * model.vocabulary * size
    if settings.supervised and settings.chunked_loss:
        loss = _logits(settings, batch, logits)[0]
    stages = ({VIT: round(_vit_layer(settings, batch) / 2)}, {LLM: live}, {LOGITS: loss})
    return max(stages, key=size_of)


def _vit_layer(settings: Settings, batch: _Batch) -> float:
    """Return the bytes that a layer of the ViT saves without checkpointing."""
    model, size = settings.model, settings.frozen_size
    hidden, wide = model.vit_hidden, model.vit_intermediate
    saved = model.facts.vit_saved * hidden * size / 2
    if settings.train_vit and settings.tuning in ("lora", "qlora"):
        saved = _with_adapters(settings, saved, hidden, wide, model.vit_linear)
    return saved * batch.patches


def _saved_by_token(settings: Settings, batch: _Batch) -> float:
    """Return the bytes that a decoder layer saves per token without checkpointing."""
    model, size = settings.model, settings.frozen_size
    hidden, wide = model.hidden, model.intermediate
    saved = (model.facts.llm_saved * hidden + 8 * wide) * size / 2
    if settings.attention == "eager":
        saved += 5 * size * model.heads * batch.length
    if model.experts:
        # Every token goes to the experts that it chose, and comes back from them.
        saved += 4 * model.chosen_experts * hidden * size / 2
    if settings.tuning == "full" or not settings.train_llm:
        return saved
    return _with_adapters(settings, saved, hidden, wide, model.linear)


def _with_adapters(
    settings: Settings, saved: float, hidden: int, wide: int, layers: dict[str, tuple[int, int]]
) -> float:
    """Return ``saved`` with adapters on ``layers``. Other layers need not keep their input, nor
    the norms before them.
    """
    inputs = sum(taken for taken, _ in layers.values())
    adapted = sum(layers[name][0] for name in settings.lora_targets or layers if name in layers)
    frozen = (8 * hidden + 2 * wide) * settings.frozen_size / 2
    return saved - (1 - adapted / inputs) * frozen + LORA_SAVED[settings.trainable_size] * adapted


def _logits(settings: Settings, batch: _Batch, logits: int) -> tuple[int, int]:
    """Return the bytes of logits in the loss and in its backward pass; ``logits``: of one copy."""
    model = settings.model
    if settings.chunked_loss:
        # liger-kernel, a chunk at a time: of supervised rows as large as the hidden states, with
        # the gradients of these and of the head; of GRPO's a row.
        if settings.supervised:
            head = (settings.tuning == "full") * model.vocabulary * settings.frozen_size
            chunk = (8 * batch.rows * batch.logits + head) * model.hidden
            return chunk, chunk
        row = 3 * batch.logits * model.vocabulary * 4
        return row, row
    if settings.supervised and settings.sequence_parallel > 1:
        return 2 * logits, 4 * logits  # per_token_loss_func_sp keeps 16 bits
    if settings.supervised:
        # swift/trainers/utils.py: per_token_loss_func and transformers' own: the logits in 32 bits,
        # their log-softmax and its gradient beside those of the head.
        return 5 * logits, 7 * logits
    if not settings.deepspeed and settings.sharding != "fsdp":
        # accelerate wraps forward in ConvertOutputsToFp32: three copies in 32 bits.
        return 2 * logits, 6 * logits
    if settings.shared_prefix:
        # shared_prefix/forward.py: of each part its log-softmax, then its gradient, is kept.
        return 2 * logits, 2 * logits + LOGPS_PART * model.vocabulary * settings.frozen_size
    # If the prompt's logits are computed too, nothing is divided in place.
    return 2 * logits, (2 if settings.all_logits else 4) * logits
