"""Qwen2.5-VL: boxes in pixels of the resized image.

[{"bbox_2d": [164, 144, 187, 174], "label": "cat"}]
"""

from typing import Any

from swift_vlrft.families import qwen2_vl
from swift_vlrft.families.family import Family, MemoryFacts, TinySize
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config, vision_config


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    text = text_config(size, vocabulary) | rope(mrope_section=[4, 6, 6])
    vision = vision_config(size) | {"fullatt_block_indexes": [size.vision_layers - 1]}
    return config_of("qwen2_5_vl", text, vision)


FAMILY = Family(
    name="qwen2_5_vl",
    model_types=("qwen2_5_vl",),
    hub_name=r"qwen2\.5-?vl",
    templates={"qwen2_5_vl": ""},
    tiny=qwen_tiny(config),
    images=qwen2_vl.IMAGES,
    box_format="pixels",
    box_answer='```json\n[{"bbox_2d": [164, 144, 187, 174], "label": "cat"}]\n```',
    shared_prefix=("qwen2_5_vl",),
    has_videos=True,
    registers="token_ids",
    memory=MemoryFacts(vit_saved=49.9, vit_gated=True),
)
