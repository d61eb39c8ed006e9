"""Templates of Qwen-VL and GLM-4.1V that ask the tokenizer for the ids of image tokens.

Those of ms-swift 4.6.0 state the ids; a tiny model has a vocabulary of its own, and other ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from swift.template import TEMPLATE_MAPPING, Template, register_template
from swift.template.templates.glm import GLM4VTemplate
from swift.template.templates.qwen import (
    Qwen2_5VLTemplate,
    Qwen2VLTemplate,
    Qwen3_5Template,
    Qwen3VLTemplate,
)

QWEN = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
GLM = {"begin_of_image_token": "<|begin_of_image|>", "end_of_image_token": "<|end_of_image|>"}
STATED: Mapping[type[Template], Mapping[str, str]] = {
    **dict.fromkeys((Qwen2VLTemplate, Qwen2_5VLTemplate, Qwen3VLTemplate, Qwen3_5Template), QWEN),
    GLM4VTemplate: GLM,
}
"""The token of each id that a template states."""


class _Ids(Template):
    tokens: ClassVar[Mapping[str, str]] = {}

    def init_processor(self, processor: Any) -> None:
        super().init_processor(processor)
        for name, token in self.tokens.items() if processor is not None else ():
            setattr(self, name, self.tokenizer.convert_tokens_to_ids(token))


def register() -> None:
    """Register these templates in ms-swift; real models get the same ids as before."""
    for meta in list(TEMPLATE_MAPPING.values()):
        if tokens := STATED.get(old := meta.template_cls):
            same = type(old.__name__, (_Ids, old), {"tokens": tokens})
            register_template(replace(meta, template_cls=same), exist_ok=True)
