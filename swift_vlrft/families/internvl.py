"""InternVL3 and 3.5, the checkpoints for transformers' own class (``-hf``): boxes in thousandths.

<box>[[254,303,291,365]]</box>

An image is cut into tiles of 448 x 448 pixels, 256 tokens each: up to twelve and a thumbnail, 3,328
tokens. MAX_PIXELS, --max_pixels and MAX_NUM do not change that in ms-swift; max_patches in the
checkpoint's preprocessor_config.json does. The checkpoints without ``-hf`` are ms-swift's
``internvl_chat``, with code of their own.
"""

from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.tiles import Tiles
from swift_vlrft.families.tiny_parts import (
    QWEN_TOKENS,
    config_of,
    ids_from,
    rope,
    text_config,
    usual_vision_config,
)

PATCH = 14
IMAGE_TOKENS = ("<img>", "</img>", "<IMG_CONTEXT>", "<video>")
SPECIAL_IDS = {
    **ids_from(151643, QWEN_TOKENS),
    **ids_from(151667, ("<think>", "</think>", "<img>", "</img>", "<IMG_CONTEXT>")),
    **ids_from(151674, ("<ref>", "</ref>", "<box>", "</box>", "<video>")),
}
"""Of InternVL3.5: Qwen3's, then its own. <IMG_CONTEXT>'s is transformers' default; the others are
not verified: ms-swift and vLLM look them up by name.
"""


def tiny_internvl(side: int, text: dict[str, Any], most: int) -> Tiny:
    """Of tiles of ``side`` x ``side`` pixels, a multiple of 28, at most ``most`` an image. ``text``
    adds to the language model's configuration.
    """
    names = ("start_image_token", "end_image_token", "context_image_token", "video_token")
    tokens = {"image_seq_length": (side // PATCH // 2) ** 2}  # four patches are one token

    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        sizes = {"image_size": (side, side), "patch_size": (PATCH, PATCH)}
        return config_of(
            "internvl",
            text_config(size, vocabulary) | text,
            usual_vision_config(size) | sizes,
            image_token_id=SPECIAL_IDS["<IMG_CONTEXT>"],
            **tokens,
        )

    return Tiny(
        special_ids=SPECIAL_IDS,
        vocabulary=151936,
        chat_template="internvl",
        config=config,
        tokenizer_options={"extra_special_tokens": dict(zip(names, IMAGE_TOKENS, strict=True))},
        image_options={"size": {"height": side, "width": side}, "max_patches": most},
        processor_options=tokens,
    )


FAMILY = Family(
    name="internvl",
    model_types=("internvl",),
    hub_name=r"internvl-?3[^/]*-hf$",
    templates={"internvl_hf": ""},
    tiny=tiny_internvl(56, {"model_type": "qwen3", "head_dim": 32, **rope()}, most=12),
    images=Tiles(factor=2 * PATCH, min_pixels=448**2, max_pixels=12 * 448**2),
    box_format="norm1000",
    box_answer="<box>[[254,303,291,365]]</box>",
    shared_prefix=("internvl",),
    needs_plugin=True,
    registers="internvl",
    memory=MemoryFacts(llm_saved=28.7, vit_attention="q_proj"),
)
