"""Qwen3-VL: boxes in thousandths; features of inner ViT layers are added to the LLM's.

[{"bbox_2d": [254, 303, 291, 365], "label": "cat"}]
"""

from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, TinySize
from swift_vlrft.families.resize import SmartResize
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config, vision_config


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    turns = rope(mrope_section=[6, 5, 5], mrope_interleaved=True)
    vision = vision_config(size) | {
        "deepstack_visual_indexes": list(range(size.vision_layers - 1)),
        "num_position_embeddings": 16,
    }
    text = text_config(size, vocabulary) | turns | {"head_dim": 32}
    return config_of("qwen3_vl", text, vision)


FAMILY = Family(
    name="qwen3_vl",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    hub_name=r"qwen3-?vl",
    templates={"qwen3_vl": ""},
    tiny=qwen_tiny(config, patch=16),
    images=SmartResize(factor=32, min_pixels=4 * 32**2, max_pixels=16384 * 32**2),
    box_format="norm1000",
    box_answer='```json\n[{"bbox_2d": [254, 303, 291, 365], "label": "cat"}]\n```',
    shared_prefix=("qwen3_vl", "qwen3_vl_moe"),
    no_vllm={
        "qwen3_vl_moe": "What transformers 5.19 saves does not load into vLLM 0.32: its experts "
        "are transposed. Published weights, and ms-swift's weight sync, were not run"
    },
    has_videos=True,
    registers="token_ids",
    memory=MemoryFacts(llm_saved=28.7, vit_saved=36.1),
)
