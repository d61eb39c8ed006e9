"""The demo's model: a tiny InternVL3 with a tiny vocabulary.

    tiny_internvl(112)     images of 112 x 112, 16 image tokens; 2,048 tokens in all

ms-swift looks up the special tokens of an InternVL by name; those of a Qwen-VL are hard-coded ids
in its templates, so even a tiny one has 151,936 tokens and spends 90 % of its time on them.
"""

from __future__ import annotations

from swift_vlrft.families import internvl
from swift_vlrft.families.family import Tiny, TinySize

SIZE = TinySize(hidden=128, layers=2, vision_hidden=64, vision_layers=2)
TEMPLATE = next(iter(internvl.FAMILY.templates))
IMAGE = "<IMG_CONTEXT>"
NAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *internvl.IMAGE_TOKENS)
SPECIAL = {name: 2000 + i for i, name in enumerate(NAMES)}
IMAGE_TOKEN_IDS = [SPECIAL[name] for name in internvl.IMAGE_TOKENS]

image_tokens = internvl.tokens_of_tile


def tiny_internvl(side: int) -> Tiny:
    """Its images all have one size, ``side`` x ``side`` pixels, a multiple of 28."""
    return internvl.tiny_internvl(side, SPECIAL, 2048, {}, most=1)
