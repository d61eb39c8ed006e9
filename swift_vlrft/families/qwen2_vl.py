"""Qwen2-VL: boxes in thousandths between box tokens.

<|box_start|>(254,303),(291,365)<|box_end|>
"""

from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, TinySize
from swift_vlrft.families.resize import SmartResize
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    text = text_config(size, vocabulary) | rope(mrope_section=[4, 6, 6])
    vision = {
        "depth": size.vision_layers,
        "embed_dim": size.vision_hidden,
        "num_heads": size.vision_hidden // 32,
        "mlp_ratio": 2,
        "hidden_size": size.hidden,
    }
    return config_of("qwen2_vl", text, vision)


# qwen-vl-utils: 4 to 16384 tokens an image.
IMAGES = SmartResize(factor=28, min_pixels=4 * 28**2, max_pixels=16384 * 28**2)

FAMILY = Family(
    name="qwen2_vl",
    model_types=("qwen2_vl",),
    hub_name=r"qwen2-?vl",
    templates={"qwen2_vl": ""},
    tiny=qwen_tiny(config),
    images=IMAGES,
    box_format="norm1000",
    box_answer="<|box_start|>(254,303),(291,365)<|box_end|>",
    shared_prefix=("qwen2_vl",),
    has_videos=True,
    registers="token_ids",
    memory=MemoryFacts(vit_saved=44.4),
)
