"""Templates of Qwen-VL and GLM-4.1V that ask the tokenizer for the ids of image tokens.

Those of ms-swift 4.6.0 state the ids; a tiny model has a vocabulary of its own, and other ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from swift.template import TEMPLATE_MAPPING, Template, register_template
from swift.template.templates.glm import GLM4VTemplate
from swift.template.templates.qwen import (
    Qwen2_5VLTemplate,
    Qwen2VLTemplate,
    Qwen3_5Template,
    Qwen3VLTemplate,
)

from swift_vlrft.swift_plugin.video_positions import place_behind_videos


class _Ids(Template):
    tokens: ClassVar[Mapping[str, str]] = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
    }
    """The token of each id that the template states."""

    def init_processor(self, processor: Any) -> None:
        super().init_processor(processor)
        for name, token in self.tokens.items() if processor is not None else ():
            setattr(self, name, self.tokenizer.convert_tokens_to_ids(token))


class _Qwen2VL(_Ids, Qwen2VLTemplate):
    def _get_position_ids(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Of training, and where transformers generates, which goes on from the last of them."""
        found: dict[str, Any] = super()._get_position_ids(inputs)
        if inputs.get("video_grid_thw") is not None:
            ids, mask = inputs["input_ids"], inputs.get("attention_mask_2d")
            mask = inputs.get("attention_mask") if mask is None else mask
            mask = torch.ones_like(ids) if mask is None else mask
            # The first of four is of the text.
            place_behind_videos(found["position_ids"][1:], ids == self.video_token_id, mask)
        return found


class _Qwen2_5VL(_Qwen2VL, Qwen2_5VLTemplate):
    def replace_tag(self, media_type: Any, index: int, inputs: Any) -> Any:
        """Hand vLLM what ms-swift 4.6.0 does not: metadata of a video, and no list of rates."""
        tags = super().replace_tag(media_type, index, inputs)
        if media_type == "video" and self.mode == "vllm":
            video, rate = inputs.videos[index], inputs.mm_processor_kwargs.pop("fps")[0]
            known = {"fps": rate, "total_num_frames": len(video), "do_sample_frames": False}
            known["frames_indices"] = [*range(len(video))]
            inputs.videos[index] = video, known | {"duration": len(video) / rate}
        return tags


class _Qwen3VL(_Ids, Qwen3VLTemplate):
    pass


class _Qwen3_5(_Ids, Qwen3_5Template):
    pass


class _GLM4V(_Ids, GLM4VTemplate):
    tokens = {
        "begin_of_image_token": "<|begin_of_image|>",
        "end_of_image_token": "<|end_of_image|>",
    }


_SAME: dict[type[Template], type[Template]] = {
    Qwen2VLTemplate: _Qwen2VL,
    Qwen2_5VLTemplate: _Qwen2_5VL,
    Qwen3VLTemplate: _Qwen3VL,
    Qwen3_5Template: _Qwen3_5,
    GLM4VTemplate: _GLM4V,
}


def register() -> None:
    """Register these templates in ms-swift; real models get the same ids as before."""
    for meta in list(TEMPLATE_MAPPING.values()):
        if same := _SAME.get(meta.template_cls):
            register_template(replace(meta, template_cls=same), exist_ok=True)
