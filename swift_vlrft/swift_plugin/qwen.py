"""Qwen-VL's templates in ms-swift 4.6.0 state the ids of image and video tokens; a tiny model whose
vocabulary is its own has others, which its tokenizer knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swift.template import TEMPLATE_MAPPING, register_template
from swift.template.templates.qwen import (
    Qwen2_5VLTemplate,
    Qwen2VLTemplate,
    Qwen3_5Template,
    Qwen3VLTemplate,
)


class _TokenizersIds:
    def init_processor(self, processor: Any) -> None:
        super().init_processor(processor)  # type: ignore[misc]
        if processor is not None:
            self.image_token_id = processor.image_token_id
            self.video_token_id = processor.video_token_id


class _Qwen2VL(_TokenizersIds, Qwen2VLTemplate):  # type: ignore[misc]
    pass


class _Qwen2_5VL(_TokenizersIds, Qwen2_5VLTemplate):  # type: ignore[misc]
    pass


class _Qwen3VL(_TokenizersIds, Qwen3VLTemplate):  # type: ignore[misc]
    pass


class _Qwen3_5(_TokenizersIds, Qwen3_5Template):  # type: ignore[misc]
    pass


_SAME = {
    Qwen2VLTemplate: _Qwen2VL,
    Qwen2_5VLTemplate: _Qwen2_5VL,
    Qwen3VLTemplate: _Qwen3VL,
    Qwen3_5Template: _Qwen3_5,
}


def register() -> None:
    """Have ms-swift's templates of these models ask the tokenizer."""
    for meta in list(TEMPLATE_MAPPING.values()):
        if same := _SAME.get(meta.template_cls):
            register_template(replace(meta, template_cls=same), exist_ok=True)
