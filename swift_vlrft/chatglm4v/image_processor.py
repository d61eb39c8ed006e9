"""The image processor of GLM-4V, which resizes every image to a square, whatever its shape.

ChatGLM4VImageProcessor.of(config)(images, return_tensors="pt").pixel_values   [n, 3, 1120, 1120]
"""

from __future__ import annotations

from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig


class ChatGLM4VImageProcessor(BlipImageProcessorPil):
    """Resize bytes by Pillow's bicubic filter, then apply CLIP's mean and standard deviation."""

    size = {"height": 1120, "width": 1120}

    @classmethod
    def of(cls, config: ChatGLM4VConfig) -> ChatGLM4VImageProcessor:
        """Make a processor for the image size in config.json."""
        side = (config.vision_config or {})["image_size"]
        return cls(size={"height": side, "width": side})
