"""The stages of a forward and backward pass, its batch, and what is alive in each stage.

batch_shape(settings)        BatchShape(batch=2, length=1252, logits=513, grids=((1, 44, 44),), ...)
activations.peaks["backward of the LLM"]        {"activations LLM": 9123456789, "logits": ...}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from swift_vlrft.memory.models import Model
from swift_vlrft.memory.settings import Settings

LLM, VIT, LOGITS, TEMPORARIES = "activations LLM", "activations ViT", "logits", "temporaries"
FORWARD_VIT, FORWARD_LLM, LOSS = "forward of the ViT", "forward of the LLM", "loss"
BACKWARD_LOSS, BACKWARD_LLM = "backward of the loss", "backward of the LLM"
BACKWARD_VIT = "backward of the ViT"
STAGES = (FORWARD_VIT, FORWARD_LLM, LOSS, BACKWARD_LOSS, BACKWARD_LLM, BACKWARD_VIT)

Components = dict[str, int]
"""Component -> bytes."""

Peaks = dict[str, Components]
"""Stage -> what is alive at the peak of the stage."""


def size_of(parts: Components) -> int:
    return sum(parts.values())


@dataclass(frozen=True)
class BatchShape:
    """Everything that affects activations; also the key of the cache."""

    batch: int
    length: int  # Tokens of the longest row: text, image tokens and completion, padded to it
    logits: int  # Rows per sequence for which the loss computes logits; ms-swift: completion + 1
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
    lora_targets: tuple[str, ...] = ()
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

    @property
    def bytes_per_value(self) -> int:
        return 4 if self.dtype == "float32" else 2


@dataclass(frozen=True)
class Activations:
    peaks: Peaks
    how: str  # traced | analytic | scaled

    def at(self, *stages: str) -> Components:
        """The components at the largest of these stages."""
        found = [self.peaks[stage] for stage in stages if stage in self.peaks]
        return max(found, key=size_of, default={})


Source = Callable[[Model, BatchShape], Activations]
"""Where activations come from: a trace, a closed form, or a trace of another shape scaled."""


def batch_shape(s: Settings, *, train: bool = True) -> BatchShape:
    lora = s.tuning != "full"
    same = "batch length grids dtype attention lora_dropout lora_targets"
    same += " train_llm train_vit train_aligner"
    shape = BatchShape(
        **{name: getattr(s, name) for name in same.split()},
        train=train,
        logits=s.length if s.all_logits else s.completion + 1,
        checkpoint_llm=s.checkpoint_llm and train,
        checkpoint_vit=s.checkpoint_vit and train,
        # swift/trainers/mixin.py: _fix_gradient_checkpointing
        reentrant=s.deepspeed or s.processes == 1,
        lora_rank=s.lora_rank if lora else 0,
        lora_float32=lora and s.trainable_size == 4,
        # accelerate wraps forward in ConvertOutputsToFp32 unless DeepSpeed has the precision.
        logits_float32=not s.deepspeed and s.sharding != "fsdp",
        chunked_loss=s.chunked_loss and train,
    )
    if not s.shared_prefix:
        return shape
    # swift_vlrft/shared_prefix: one sequence of each prompt and, after it, its completions; the
    # head only where a completion token is predicted.
    return replace(
        shape,
        batch=1,
        length=s.prompts * (s.length - s.completion) + s.batch * s.completion,
        logits=s.batch * s.completion,
        grids=s.grids * s.prompts,
        # shared_prefix/attention.py: a prompt's keys and values stand before each completion's.
        copied_keys=s.batch * s.length,
    )


def with_copied_keys(model: Model, shape: BatchShape, peaks: Peaks) -> Peaks:
    """The copies that shared prefixes attend to: in every layer, or in the one recomputed."""
    layer = shape.copied_keys * 2 * model.kv_heads * model.head_size * shape.bytes_per_value
    kept = layer * model.attention_layers
    more = {FORWARD_LLM: kept, LOSS: kept, BACKWARD_LOSS: kept, BACKWARD_LLM: kept + layer}
    if not shape.train or shape.checkpoint_llm:
        more = {FORWARD_LLM: layer, BACKWARD_LLM: 2 * layer}
    if not shape.packed:
        return peaks
    return {
        stage: {**parts, LLM: parts.get(LLM, 0) + more[stage]} if stage in more else parts
        for stage, parts in peaks.items()
    }
