"""The image processor of GLM-4V, which resizes every image to a square, whatever its shape.

ChatGLM4VImageProcessor.of(config)(images, return_tensors="pt").pixel_values   [n, 3, 1120, 1120]
"""

from __future__ import annotations

from transformers.image_processing_backends import PilBackend
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD, PILImageResampling

from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig


class ChatGLM4VImageProcessor(PilBackend):
    """Resize bytes by Pillow's bicubic filter, then apply CLIP's mean and standard deviation."""

    model_input_names = ["pixel_values"]
    do_convert_rgb = True
    do_resize = True
    do_rescale = True
    do_normalize = True
    resample = PILImageResampling.BICUBIC
    size = {"height": 1120, "width": 1120}
    image_mean = OPENAI_CLIP_MEAN
    image_std = OPENAI_CLIP_STD

    @classmethod
    def of(cls, config: ChatGLM4VConfig) -> ChatGLM4VImageProcessor:
        """Make a processor for the image size in config.json."""
        side = (config.vision_config or {})["image_size"]
        return cls(size={"height": side, "width": side})
