"""A model family as this package knows it: one record, in one file per family.

    FAMILY = Family(name="qwen2_5_vl", box_format="pixels", images=SmartResize(28, ...), ...)

Nothing here imports torch or transformers: configurations are plain dictionaries.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.families.resize import ImageRule


@dataclass(frozen=True)
class TinySize:
    """Widths of a tiny model, multiples of 64 and, in the ViT, of 32: vLLM's attention on a CPU
    needs heads of 32.
    """

    hidden: int = 64
    layers: int = 2
    vision_hidden: int = 64
    vision_layers: int = 2


TINY_PIXELS = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """What a tiny random checkpoint takes over from the real one (tiny/checkpoint.py)."""

    special_ids: Mapping[str, int]
    """Special tokens at the ids of the real vocabulary, which ms-swift's templates name."""
    vocabulary: int
    eos: str = "<|im_end|>"
    pad: str = "<|endoftext|>"
    chat_template: str
    """Its file in tiny/chat_templates."""
    config: Callable[[TinySize, int], dict[str, Any]]
    """config.json, with ``model_type``, for these widths and this vocabulary size."""
    processor_type: str | None = None
    """Its type in transformers where the processor is another model's."""
    has_ranks: bool = False
    """Whether its tokenizer is published as tiktoken's tokenizer.model."""
    tokenizer_options: Mapping[str, Any] = field(default_factory=dict)
    image_options: Mapping[str, Any] = field(default_factory=lambda: TINY_PIXELS)
    processor_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """What the planner needs to know of a family; the defaults are for an unknown one."""

    llm_saved: float = 20.7
    """Bytes that one token leaves in one layer for the backward pass, in units of the hidden size
    and beside the MLP's 8 bytes per intermediate unit (gate, up, activation, product: 2 bytes
    each); fitted by dev/refit.py with transformers 5.19 (docs/reference/planner.md has the table).
    """
    llm_mlp: str = "gate_proj"
    """The name of the first linear layer of an MLP in the language model: gate_proj, gate_up_proj
    (up_proj is in it, too), dense_h_to_4h (likewise, and the attention's three are one).
    """
    vit_saved: float = 46.0
    """The same for a patch in one layer of the ViT, its MLP included."""
    vit_attention: str = "qkv"
    """The name of the first linear layer of the ViT's attention: qkv, q_proj, query_key_value.
    ms-swift adapts a name in --target_modules wherever it is, whatever --freeze_vit says."""
    liger: bool = True
    """Whether ms-swift's GRPO finds the text model for liger's loss (it calls ``model.model``), and
    that loss is the model's.
    """
    keeps_logits: bool = True
    """Whether its class takes ``logits_to_keep``; else it computes those of the prompt, too."""
    vit_gated: bool = False
    """Whether the ViT's MLP has three matrices, not two."""
    vit_intermediate: str = "intermediate_size"
    """The key of the width of the ViT's MLP in config.json's vision_config."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model architecture, of any size."""

    name: str
    """ms-swift's ``--model_type`` of its dense models, and the name for `vlrft tiny`; CogAgent's is
    only the latter.
    """
    model_types: tuple[str, ...]
    """Its names in ms-swift (``--model_type``) and in transformers (config.json)."""
    hub_name: str
    """Regular expression for its models' names, ignoring case."""
    templates: Mapping[str, str]
    """ms-swift's templates, the usual one first, and what each writes before a completion unless
    ``--enable_thinking`` or ``--response_prefix`` says otherwise.
    """
    tiny: Tiny
    is_config: Callable[[Mapping[str, Any]], bool] = lambda values: True
    """Whether a config.json of one of its types is this family's, where several share a type."""
    images: ImageRule | None = None
    """How images are resized and counted; None for a text-only model."""
    box_format: str | None = None
    """The format it was trained to write (geometry/box_format.py); None: it writes no boxes."""
    box_answer: str | None = None
    """How it writes one box without instructions."""
    writes: tuple[str, ...] = ()
    """What it writes around every answer without instructions."""
    shared_prefix: tuple[str, ...] = ()
    """Its types in transformers that can share prefixes: tests compare the results with those of
    separate rows.
    """
    why_not_shared: str | None = None
    """What prevents its other types from sharing prefixes, for the log and the planner."""
    no_vllm: Mapping[str, str] = field(default_factory=dict)
    """Its types in transformers for which GRPO with vLLM does not run, and why not."""
    has_videos: bool = False
    """Whether qwen-vl-utils reads videos for it."""
    registers: str | None = None
    """The module of swift_plugin/ that puts its loader or template into ms-swift's registries."""
    own_classes: bool = False
    """Whether this package has its classes (chatglm4v/), in place of code beside the weights."""
    needs_plugin: bool = False
    """Whether ms-swift loads or prompts it rightly only with our plugin."""
    memory: MemoryFacts = MemoryFacts()

    @property
    def box_key(self) -> str | None:
        """The key of a box in the objects that it writes, which ``DATASET:native`` asks for.

        None where it writes bare corners in tokens or tags: those hold no confidence, so prompts
        and solutions keep the keys of their set, and the rewards read either.
        """
        found = re.search(r'"(\w+)": \[', self.box_answer or "")
        return found[1] if found else None
