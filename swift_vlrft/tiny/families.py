"""What a tiny checkpoint keeps of its real family: token ids, turn format, configuration class.

Qwen2.5-VL   <|image_pad|> is 151655, vocabulary 151,936   Qwen2_5_VLConfig
GLM-4.1V     <|image|>     is 151343, vocabulary 151,552   Glm4vConfig
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Size:
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


@dataclass(frozen=True)
class Family:
    """One architecture: where its special tokens sit and how its configuration is built."""

    special_ids: dict[str, int]
    vocab_size: int
    eos: str
    pad: str
    chat_template: str
    config: Callable[[Size, int], Any]
    model_class: str
    processor_class: str
    image_processor_class: str
    video_processor_class: str
    tokenizer_class: str
    swift_template: str | None = None
    """ms-swift's name of the template, where it is not the model type."""
    tokenizer_options: dict[str, Any] = field(default_factory=dict)
    image_options: dict[str, Any] = field(
        default_factory=lambda: {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280}
    )
    processor_options: dict[str, Any] = field(default_factory=dict)


QWEN_SPECIAL = {
    name: 151643 + i
    for i, name in enumerate(
        [
            "<|endoftext|>",
            "<|im_start|>",
            "<|im_end|>",
            "<|object_ref_start|>",
            "<|object_ref_end|>",
            "<|box_start|>",
            "<|box_end|>",
            "<|quad_start|>",
            "<|quad_end|>",
            "<|vision_start|>",
            "<|vision_end|>",
            "<|vision_pad|>",
            "<|image_pad|>",
            "<|video_pad|>",
        ]
    )
}
GLM_SPECIAL = {
    name: 151329 + i
    for i, name in enumerate(
        [
            "<|endoftext|>",
            "[MASK]",
            "[gMASK]",
            "[sMASK]",
            "<sop>",
            "<eop>",
            "<|system|>",
            "<|user|>",
            "<|assistant|>",
            "<|observation|>",
            "<|begin_of_image|>",
            "<|end_of_image|>",
            "<|begin_of_video|>",
            "<|end_of_video|>",
            "<|image|>",
            "<|video|>",
        ]
    )
} | {
    "<think>": 151345,
    "</think>": 151346,
    "<answer>": 151347,
    "</answer>": 151348,
    "<|begin_of_box|>": 151349,
    "<|end_of_box|>": 151350,
}

# ChatML and GLM-4 turn formats, each content part of kind image written as the model's image
# placeholder.
QWEN_CHAT = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif p.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GLM_CHAT = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<|begin_of_image|><|image|><|end_of_image|>"
    "{% elif p.type == 'video' %}<|begin_of_video|><|video|><|end_of_video|>"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


# The real models' base of 1e6 turns the last sixth of a head by less than 1e-3 between neighbouring
# image tokens: a tiny model could not tell columns apart. This one can, at the cost of long texts.
ROPE_THETA = 10.0


def text_widths(size: Size, vocab_size: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "hidden_size": size.hidden,
        "intermediate_size": 2 * size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.hidden // 32,
        "num_key_value_heads": size.hidden // 64,
        "max_position_embeddings": 32768,
        "bos_token_id": None,
        "eos_token_id": None,  # set where the vocabulary is the real one, see build_model
    }


def _qwen_text(size: Size, vocab_size: int) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": ROPE_THETA, "mrope_section": [4, 6, 6]}
    return text_widths(size, vocab_size) | {"rope_parameters": rope}


def _qwen2_5_vl_config(size: Size, vocab_size: int) -> Any:
    from transformers import Qwen2_5_VLConfig

    return Qwen2_5_VLConfig(
        text_config=_qwen_text(size, vocab_size),
        vision_config={
            "depth": size.vision_layers,
            "hidden_size": size.vision_hidden,
            "intermediate_size": 2 * size.vision_hidden,
            "num_heads": size.vision_hidden // 32,
            "out_hidden_size": size.hidden,
            "fullatt_block_indexes": [size.vision_layers - 1],
        },
        tie_word_embeddings=True,
    )


def _qwen2_config(size: Size, vocab_size: int) -> Any:
    from transformers import Qwen2Config

    rope = {"rope_type": "default", "rope_theta": ROPE_THETA}
    widths = text_widths(size, vocab_size) | {"rope_parameters": rope}
    return Qwen2Config(**widths, tie_word_embeddings=True)


def _qwen2_vl_config(size: Size, vocab_size: int) -> Any:
    from transformers import Qwen2VLConfig

    return Qwen2VLConfig(
        text_config=_qwen_text(size, vocab_size),
        vision_config={
            "depth": size.vision_layers,
            "embed_dim": size.vision_hidden,
            "num_heads": size.vision_hidden // 32,
            "mlp_ratio": 2,
            "hidden_size": size.hidden,
        },
        tie_word_embeddings=True,
    )


def _glm4v_config(size: Size, vocab_size: int) -> Any:
    from transformers import Glm4vConfig

    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 3, 3],
        "partial_rotary_factor": 0.5,
    }
    return Glm4vConfig(
        text_config=text_widths(size, vocab_size) | {"rope_parameters": rope},
        vision_config={
            "depth": size.vision_layers,
            "hidden_size": size.vision_hidden,
            "intermediate_size": 2 * size.vision_hidden,
            "num_heads": size.vision_hidden // 32,
            "out_hidden_size": size.hidden,
        },
        tie_word_embeddings=False,
    )


FAMILIES: dict[str, Family] = {
    "qwen2_5_vl": Family(
        QWEN_SPECIAL, 151936, "<|im_end|>", "<|endoftext|>", QWEN_CHAT, _qwen2_5_vl_config,
        "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLProcessor", "Qwen2VLImageProcessor",
        "Qwen2VLVideoProcessor", "Qwen2Tokenizer",
    ),
    "qwen2_vl": Family(
        QWEN_SPECIAL, 151936, "<|im_end|>", "<|endoftext|>", QWEN_CHAT, _qwen2_vl_config,
        "Qwen2VLForConditionalGeneration", "Qwen2VLProcessor", "Qwen2VLImageProcessor",
        "Qwen2VLVideoProcessor", "Qwen2Tokenizer",
    ),
    "glm4v": Family(
        GLM_SPECIAL, 151552, "<|user|>", "<|endoftext|>", GLM_CHAT, _glm4v_config,
        "Glm4vForConditionalGeneration", "Glm4vProcessor", "Glm4vImageProcessor",
        "Glm4vVideoProcessor", "PreTrainedTokenizerFast",
    ),
    # Text alone: Qwen2.5. A tokenizer and no processor.
    "qwen2": Family(
        QWEN_SPECIAL, 151936, "<|im_end|>", "<|endoftext|>", QWEN_CHAT, _qwen2_config,
        "Qwen2ForCausalLM", "", "", "", "Qwen2Tokenizer", swift_template="qwen2_5",
    ),
}  # fmt: skip


def known_family(name: str) -> Family:
    """The family of that name; a ValueError lists the known ones."""
    if name not in FAMILIES:
        raise ValueError(f"unknown model family {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]
