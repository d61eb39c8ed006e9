"""What the tiny configurations of several families have in common."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from swift_vlrft.families.family import TINY_PIXELS, Tiny, TinySize

QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    *("<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
"""Qwen's special tokens, in the order of their ids."""

GLM_TOKENS = (
    *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>"),
    *("<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>"),
    *("<|begin_of_video|>", "<|end_of_video|>"),
)
"""GLM's, which the later models add to."""


def ids_from(first: int, names: Iterable[str]) -> dict[str, int]:
    return {name: first + i for i, name in enumerate(names)}


def qwen_tiny(
    config: Callable[[TinySize, int], dict[str, Any]],
    *,
    first: int = 151643,
    vocabulary: int = 151936,
    patch: int = 14,
) -> Tiny:
    """A tiny Qwen: ChatML, and special tokens with ids from ``first`` on."""
    # vLLM scales a video's frames as images; with patches of 16 both are scaled so, as published.
    scaled = {} if patch == 14 else dict.fromkeys(("image_mean", "image_std"), [0.5] * 3)
    return Tiny(
        special_ids=ids_from(first, QWEN_TOKENS),
        vocabulary=vocabulary,
        chat_template="chatml",
        config=config,
        image_options=TINY_PIXELS | {"patch_size": patch} | scaled,
    )


def rope(**more: Any) -> dict[str, Any]:
    """RoPE with base 10. The real models' 1e6 rotates the last sixth of a head by less than 1e-3
    between neighbouring image tokens, too little for a tiny model to tell columns apart; 10 is
    enough, at the cost of long texts.
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
        "eos_token_id": None,  # set if the vocabulary is the real one
    }


def vision_config(size: TinySize) -> dict[str, Any]:
    """A tiny ViT, with the configuration keys of Qwen2.5-VL and later models."""
    return {
        "depth": size.vision_layers,
        "hidden_size": size.vision_hidden,
        "intermediate_size": 2 * size.vision_hidden,
        "num_heads": size.vision_hidden // 32,
        "out_hidden_size": size.hidden,
    }


def usual_vision_config(size: TinySize) -> dict[str, Any]:
    """A tiny ViT, with the keys of most models in transformers."""
    return {
        "hidden_size": size.vision_hidden,
        "intermediate_size": 2 * size.vision_hidden,
        "num_hidden_layers": size.vision_layers,
        "num_attention_heads": size.vision_hidden // 32,
    }


def config_of(
    model_type: str, text: Mapping[str, Any], vision: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """config.json of a tiny model; without a ViT its text configuration is not nested."""
    parts = {**text} if vision is None else {"text_config": text, "vision_config": vision}
    return {"model_type": model_type, **parts, "tie_word_embeddings": True, **more}
