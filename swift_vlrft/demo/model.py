"""The demo's tiny models: an InternVL3 with a tiny vocabulary, and a Qwen3.5 with its own.

    MODELS["internvl"].tiny(112)     images of 112 x 112, 16 image tokens; 2,048 tokens in all

ms-swift looks up the special tokens of an InternVL by name; those of a Qwen-VL are hard-coded ids
in its templates, so even a tiny Qwen3.5 has 248,320 tokens and spends 90 % of its time on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swift_vlrft.families import FAMILIES, internvl
from swift_vlrft.families.family import Family, Tiny, TinySize

NAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *internvl.IMAGE_TOKENS)
SPECIAL = {name: 2000 + i for i, name in enumerate(NAMES)}


def tiny_internvl(side: int) -> Tiny:
    """Its images all have one size, ``side`` x ``side`` pixels, a multiple of 28."""
    return internvl.tiny_internvl(side, SPECIAL, 2048, {}, most=1)


@dataclass(frozen=True, kw_only=True)
class DemoModel:
    family: Family
    tiny: Callable[[int], Tiny]
    """For images of that many pixels a side."""
    size: TinySize
    image: str
    """What the processor turns into the tokens that ms-swift's template has for an image."""
    batch: int = 32
    learning_rate: float = 2e-3
    """Of the warm start."""

    @property
    def template(self) -> str:
        return next(iter(self.family.templates))

    def prompt(self, problem: str) -> str:
        """As ms-swift's template writes it, for the processor."""
        turn = f"<|im_start|>user\n{self.image}{problem}<|im_end|>\n<|im_start|>assistant\n"
        return turn + self.family.templates[self.template]


MODELS = {
    "internvl": DemoModel(
        family=FAMILIES["internvl"],
        tiny=tiny_internvl,
        size=TinySize(hidden=128),
        image="<IMG_CONTEXT>\n",
    ),
    "qwen3_5": DemoModel(
        family=FAMILIES["qwen3_5"],
        tiny=lambda side: FAMILIES["qwen3_5"].tiny,
        size=TinySize(),
        image="<|vision_start|><|image_pad|><|vision_end|>",
        batch=8,
        learning_rate=1e-2,
    ),
}
