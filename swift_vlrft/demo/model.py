"""The demo's tiny model: an InternVL3 with a vocabulary of 2,048 tokens.

ms-swift looks up the special tokens of an InternVL by name; those of a Qwen-VL are hard-coded ids
in its templates, so even a tiny Qwen3.5 has 248,320 tokens and spends 90 % of its time on them.
"""

from __future__ import annotations

from swift_vlrft.families import FAMILIES, internvl
from swift_vlrft.families.family import Tiny, TinySize

NAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *internvl.IMAGE_TOKENS)
SPECIAL = {name: 2000 + i for i, name in enumerate(NAMES)}
SIZE = TinySize(hidden=128)
TEMPLATE, PREFIX = next(iter(FAMILIES["internvl"].templates.items()))


def tiny_internvl(side: int) -> Tiny:
    """Its images all have one size, ``side`` x ``side`` pixels, a multiple of 28."""
    return internvl.tiny_internvl(side, SPECIAL, 2048, {}, most=1)


def prompt(problem: str) -> str:
    """As ms-swift's template writes it, for the processor."""
    turn = f"<|im_start|>user\n<IMG_CONTEXT>\n{problem}<|im_end|>\n<|im_start|>assistant\n"
    return turn + PREFIX
