"""The demo's model: a tiny InternVL3, with a vocabulary that is tiny too.

    family(112)        pictures of 112 x 112, 16 image tokens; 2,048 tokens in all

ms-swift looks the special tokens of an InternVL up by name; those of a Qwen-VL are numbers in its
templates, so that even a tiny one has 151,936 tokens and spends nine tenths of its time on them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from swift_vlrft.tiny.families import Family, Size, text_widths

SIZE = Size(hidden=128, layers=2, vision_hidden=64, vision_layers=2)
VOCABULARY = 2048
IMAGE = "<IMG_CONTEXT>"
PICTURE = ("<img>", "</img>", IMAGE, "<video>")
NAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *PICTURE)
SPECIAL = {name: 2000 + i for i, name in enumerate(NAMES)}
PICTURE_IDS = [SPECIAL[name] for name in PICTURE]
PATCH = 14
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'image' %}<img>" + IMAGE + "</img>\n"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def image_tokens(side: int) -> int:
    """Of a picture of side x side pixels: four patches are one token."""
    return int((side // PATCH // 2) ** 2)


def family(side: int) -> Family:
    """Its pictures all have one size, ``side`` x ``side`` pixels, a multiple of 28."""
    return Family(
        SPECIAL,
        VOCABULARY,
        "<|im_end|>",
        "<|endoftext|>",
        CHAT,
        partial(_config, side),
        "InternVLForConditionalGeneration",
        "InternVLProcessor",
        "GotOcr2ImageProcessor",
        "InternVLVideoProcessor",
        "Qwen2Tokenizer",
        swift_template="internvl_hf",
        tokenizer_options={
            "extra_special_tokens": {
                "start_image_token": "<img>",
                "end_image_token": "</img>",
                "context_image_token": IMAGE,
                "video_token": "<video>",
            }
        },
        image_options={"size": {"height": side, "width": side}, "max_patches": 1},
        processor_options={"image_seq_length": image_tokens(side)},
    )


def _config(side: int, size: Size, vocab_size: int) -> Any:
    from transformers import InternVLConfig

    return InternVLConfig(
        text_config=text_widths(size, vocab_size),
        vision_config={
            "hidden_size": size.vision_hidden,
            "intermediate_size": 2 * size.vision_hidden,
            "num_hidden_layers": size.vision_layers,
            "num_attention_heads": size.vision_hidden // 32,
            "image_size": (side, side),
            "patch_size": (PATCH, PATCH),
        },
        image_token_id=SPECIAL[IMAGE],
        image_seq_length=image_tokens(side),
        tie_word_embeddings=True,
    )
