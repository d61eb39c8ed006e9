"""A line break after each image of InternVL's native checkpoints.

ms-swift's template writes ``</img>`` and a line break for the trainer, as the model's own chat
template does, and for vLLM no line break: every answer to an image was sampled from another prompt
than the one that is trained (``vlrft agree`` shows it).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swift.template import TEMPLATE_MAPPING, register_template
from swift.template.templates.internvl import InternvlhfTemplate


class SamePromptTemplate(InternvlhfTemplate):
    def replace_tag(self, media_type: str, index: int, inputs: Any) -> Any:
        tags = super().replace_tag(media_type, index, inputs)
        return ["<IMG_CONTEXT>\n"] if tags == ["<IMG_CONTEXT>"] else tags


def register() -> None:
    """Register the templates of these checkpoints anew; those of other models stay."""
    for meta in list(TEMPLATE_MAPPING.values()):
        if meta.template_cls is InternvlhfTemplate:
            register_template(replace(meta, template_cls=SamePromptTemplate), exist_ok=True)
