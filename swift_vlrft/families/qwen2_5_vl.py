"""Qwen2.5-VL: boxes in pixels of the resized image.

[{"bbox_2d": [164, 144, 187, 174], "label": "cat"}]
"""

from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, TinySize
from swift_vlrft.families.resize import SmartResize
from swift_vlrft.families.tiny_parts import qwen_tiny, rope, text_config, vision_config


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "qwen2_5_vl",
        "text_config": text_config(size, vocabulary) | rope(mrope_section=[4, 6, 6]),
        "vision_config": vision_config(size) | {"fullatt_block_indexes": [size.vision_layers - 1]},
        "tie_word_embeddings": True,
    }


FAMILY = Family(
    name="qwen2_5_vl",
    model_types=("qwen2_5_vl",),
    hub_name=r"qwen2\.5-?vl",
    templates={"qwen2_5_vl": ""},
    tiny=qwen_tiny(config),
    # qwen-vl-utils: 4 to 16384 tokens an image.
    images=SmartResize(factor=28, min_pixels=4 * 28**2, max_pixels=16384 * 28**2),
    box_format="pixels",
    box_answer='```json\n[{"bbox_2d": [164, 144, 187, 174], "label": "cat"}]\n```',
    shared_prefix=("qwen2_5_vl",),
    states_ids=True,
    memory=MemoryFacts(vit_saved=49.9, vit_gated=True),
)
