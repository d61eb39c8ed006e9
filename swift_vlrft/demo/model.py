"""The demo's model: a tiny InternVL3 with a tiny vocabulary.

    tiny_internvl(112)     images of 112 x 112, 16 image tokens; 2,048 tokens in all

ms-swift looks up the special tokens of an InternVL by name; those of a Qwen-VL are hard-coded ids
in its templates, so even a tiny one has 151,936 tokens and spends 90 % of its time on them.
"""

from __future__ import annotations

from typing import Any

from swift_vlrft.families.family import Tiny, TinySize
from swift_vlrft.families.tiny_parts import text_config

SIZE = TinySize(hidden=128, layers=2, vision_hidden=64, vision_layers=2)
TEMPLATE = "internvl_hf"
IMAGE = "<IMG_CONTEXT>"
IMAGE_TOKENS = ("<img>", "</img>", IMAGE, "<video>")
NAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *IMAGE_TOKENS)
SPECIAL = {name: 2000 + i for i, name in enumerate(NAMES)}
IMAGE_TOKEN_IDS = [SPECIAL[name] for name in IMAGE_TOKENS]
PATCH = 14


def image_tokens(side: int) -> int:
    """Of an image of side x side pixels: four patches are one token."""
    return int((side // PATCH // 2) ** 2)


def tiny_internvl(side: int) -> Tiny:
    """Its images all have one size, ``side`` x ``side`` pixels, a multiple of 28."""

    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        return {
            "model_type": "internvl",
            "text_config": text_config(size, vocabulary),
            "vision_config": {
                "hidden_size": size.vision_hidden,
                "intermediate_size": 2 * size.vision_hidden,
                "num_hidden_layers": size.vision_layers,
                "num_attention_heads": size.vision_hidden // 32,
                "image_size": (side, side),
                "patch_size": (PATCH, PATCH),
            },
            "image_token_id": SPECIAL[IMAGE],
            "image_seq_length": image_tokens(side),
            "tie_word_embeddings": True,
        }

    names = ("start_image_token", "end_image_token", "context_image_token", "video_token")
    return Tiny(
        special_ids=SPECIAL,
        vocabulary=2048,
        eos="<|im_end|>",
        pad="<|endoftext|>",
        chat_template="internvl",
        config=config,
        tokenizer_options={"extra_special_tokens": dict(zip(names, IMAGE_TOKENS, strict=True))},
        image_options={"size": {"height": side, "width": side}, "max_patches": 1},
        processor_options={"image_seq_length": image_tokens(side)},
    )
