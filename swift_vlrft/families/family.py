"""What a model family is to this package: a record, one file each, of all that differs.

    FAMILY = Family(name="qwen2_5_vl", box_format="pixels", images=SmartResize(28, ...), ...)

Nothing here imports torch or transformers: configurations are plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.families.resize import SmartResize


@dataclass(frozen=True)
class TinySize:
    """Widths of a tiny model. The head dimension stays 32: vLLM's CPU attention refuses less."""

    hidden: int = 64
    layers: int = 2
    vision_hidden: int = 64
    vision_layers: int = 2

    def __post_init__(self) -> None:
        if self.hidden % 64 or self.vision_hidden % 32:
            raise ValueError(
                f"hidden {self.hidden} must be a multiple of 64 "
                f"and vision_hidden {self.vision_hidden} of 32, "
                "so that every attention head is 32 wide"
            )


TINY_PIXELS = {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """What a tiny random checkpoint keeps of the real one (tiny/checkpoint.py)."""

    special_ids: Mapping[str, int]
    """Special tokens at the ids of the real vocabulary, which ms-swift's templates name."""
    vocabulary: int
    eos: str
    pad: str
    chat_template: str
    config: Callable[[TinySize, int], dict[str, Any]]
    """config.json, ``model_type`` among it, for these widths and this size of the vocabulary."""
    tokenizer_options: Mapping[str, Any] = field(default_factory=dict)
    image_options: Mapping[str, Any] = field(default_factory=lambda: TINY_PIXELS)
    processor_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """What the planner has to know of a family; the defaults are for one that is not known."""

    simulated: bool = True
    """Whether memory/simulate.py runs its dense models; the others are planned in closed form."""
    llm_saved: float = 20.7
    """Bytes that one token leaves in one layer for the backward pass, in units of the hidden size
    and beside the MLP's 8 bytes per intermediate unit (gate, up, activation, product: 2 bytes
    each); fitted to memory/simulate.py with transformers 5.19 (docs/plan.md has the table).
    """
    vit_saved: float = 46.0
    """The same of a patch in one layer of the ViT, its MLP included."""
    vit_gated: bool = False
    """Whether the ViT's MLP has three matrices, not two."""
    vit_intermediate: str = "intermediate_size"
    """Where config.json's vision_config has the width of the ViT's MLP."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture of models, whatever their size."""

    name: str
    """ms-swift's ``--model_type`` of its dense models, and what `vlrft tiny` calls it."""
    model_types: tuple[str, ...]
    """Its names in ms-swift (``--model_type``) and in transformers (config.json)."""
    hub_name: str
    """Regular expression of its models' names; case does not count."""
    templates: Mapping[str, str]
    """ms-swift's templates, the usual one first, and what each writes before a completion unless
    ``--enable_thinking`` or ``--response_prefix`` says otherwise.
    """
    tiny: Tiny
    images: SmartResize | None = None
    """How images are resized and counted; None for a model of text alone."""
    box_format: str | None = None
    """norm1000 or pixels: what the makers trained it to write; None where nothing is known."""
    box_answer: str | None = None
    """How it writes one box by itself."""
    shared_prefix: tuple[str, ...] = ()
    """Its types in transformers that can share prefixes: tests compare their numbers with separate
    rows. They take M-RoPE's positions, and ``model.visual`` encodes the images.
    """
    memory: MemoryFacts = MemoryFacts()


CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    *("<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
"""Qwen's special tokens, in the order of their ids."""


def qwen_tiny(
    config: Callable[[TinySize, int], dict[str, Any]],
    *,
    first: int = 151643,
    vocabulary: int = 151936,
    patch: int = 14,
) -> Tiny:
    """A tiny Qwen: ChatML, and the special tokens from the id ``first`` on."""
    return Tiny(
        special_ids={name: first + i for i, name in enumerate(QWEN_TOKENS)},
        vocabulary=vocabulary,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        chat_template=CHATML,
        config=config,
        image_options=TINY_PIXELS | {"patch_size": patch},
    )


def rope(**more: Any) -> dict[str, Any]:
    """The real models' base of 1e6 turns the last sixth of a head by less than 1e-3 between
    neighbouring image tokens: a tiny model could not tell columns apart. 10 can, at the cost of
    long texts.
    """
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10.0, **more}}


def text_config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    """A tiny language model of any family."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": size.hidden,
        "intermediate_size": 2 * size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.hidden // 32,
        "num_key_value_heads": size.hidden // 64,
        "max_position_embeddings": 32768,
        "bos_token_id": None,
        "eos_token_id": None,  # set where the vocabulary is the real one
    }


def vision_config(size: TinySize) -> dict[str, Any]:
    """A tiny ViT in the words of Qwen2.5-VL and those after it."""
    return {
        "depth": size.vision_layers,
        "hidden_size": size.vision_hidden,
        "intermediate_size": 2 * size.vision_hidden,
        "num_heads": size.vision_hidden // 32,
        "out_hidden_size": size.hidden,
    }
