"""InternVL3 and 3.5, the checkpoints for transformers' own class (``-hf``): boxes in thousandths.

<box>[[254,303,291,365]]</box>

An image is cut into tiles of 448 x 448 pixels, 256 tokens each: up to twelve and a thumbnail, 3,328
tokens. MAX_PIXELS, --max_pixels and MAX_NUM do not change that in ms-swift; max_patches in the
checkpoint's preprocessor_config.json does. The checkpoints without ``-hf`` are ms-swift's
``internvl_chat``, with code of their own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.tiles import Tiles
from swift_vlrft.families.tiny_parts import QWEN_TOKENS, rope, text_config

PATCH = 14
IMAGE_TOKENS = ("<img>", "</img>", "<IMG_CONTEXT>", "<video>")
SPECIAL_IDS = {name: 151643 + i for i, name in enumerate(QWEN_TOKENS)} | {
    "<think>": 151667,
    "</think>": 151668,
    "<img>": 151669,
    "</img>": 151670,
    "<IMG_CONTEXT>": 151671,
    "<ref>": 151674,
    "</ref>": 151675,
    "<box>": 151676,
    "</box>": 151677,
    "<video>": 151678,
}
"""Of InternVL3.5: Qwen3's, then its own. <IMG_CONTEXT>'s is transformers' default; the others are
not verified: ms-swift and vLLM look them up by name.
"""


def tokens_of_tile(side: int) -> int:
    """Four patches are one token."""
    return (side // PATCH // 2) ** 2


def tiny_internvl(
    side: int, special_ids: Mapping[str, int], vocabulary: int, text: Mapping[str, Any], most: int
) -> Tiny:
    """Of tiles of ``side`` x ``side`` pixels, a multiple of 28, at most ``most`` an image; ``text``
    adds to the language model's configuration.
    """
    names = ("start_image_token", "end_image_token", "context_image_token", "video_token")
    return Tiny(
        special_ids=special_ids,
        vocabulary=vocabulary,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        chat_template="internvl",
        config=_config_of(side, special_ids["<IMG_CONTEXT>"], text),
        tokenizer_options={"extra_special_tokens": dict(zip(names, IMAGE_TOKENS, strict=True))},
        image_options={"size": {"height": side, "width": side}, "max_patches": most},
        processor_options={"image_seq_length": tokens_of_tile(side)},
    )


def _config_of(
    side: int, image_token: int, text: Mapping[str, Any]
) -> Callable[[TinySize, int], dict[str, Any]]:
    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        return {
            "model_type": "internvl",
            "text_config": text_config(size, vocabulary) | dict(text),
            "vision_config": {
                "hidden_size": size.vision_hidden,
                "intermediate_size": 2 * size.vision_hidden,
                "num_hidden_layers": size.vision_layers,
                "num_attention_heads": size.vision_hidden // 32,
                "image_size": (side, side),
                "patch_size": (PATCH, PATCH),
            },
            "image_token_id": image_token,
            "image_seq_length": tokens_of_tile(side),
            "tie_word_embeddings": True,
        }

    return config


FAMILY = Family(
    name="internvl",
    model_types=("internvl",),
    hub_name=r"internvl-?3[^/]*-hf$",
    templates={"internvl_hf": ""},
    tiny=tiny_internvl(
        56, SPECIAL_IDS, 151936, {"model_type": "qwen3", "head_dim": 32, **rope()}, most=12
    ),
    images=Tiles(factor=2 * PATCH, side=448, most=12),
    box_format="norm1000",
    box_answer="<box>[[254,303,291,365]]</box>",
    shared_prefix=("internvl",),
    needs_plugin=True,
    memory=MemoryFacts(llm_saved=28.7, vit_attention="q_proj"),
)
