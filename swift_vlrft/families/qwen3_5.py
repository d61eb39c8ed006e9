"""Qwen3.5 and 3.6: images and boxes as in Qwen3-VL; three of four layers are Gated DeltaNet.

[{"bbox_2d": [254, 303, 291, 365], "label": "cat"}]

Not verified, for want of the published files: the sizes of 0.8B and those of 4B's ViT, which the
planner has in families/models.json.
"""

from typing import Any

from swift_vlrft.families import qwen3_vl
from swift_vlrft.families.family import Family, MemoryFacts, TinySize
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config, vision_config


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    heads = size.hidden // 32
    turns = rope(mrope_section=[6, 5, 5], mrope_interleaved=True, partial_rotary_factor=1.0)
    own = {
        "head_dim": 32,
        "layer_types": ["linear_attention"] * (size.layers - 1) + ["full_attention"],
        # As the real models': vLLM's CPU kernel takes no other size.
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads,
        "tie_word_embeddings": True,  # read by vLLM; transformers reads the outer one
    }
    vision = vision_config(size) | {"num_position_embeddings": 16}
    return config_of("qwen3_5", text_config(size, vocabulary) | turns | own, vision)


FAMILY = Family(
    name="qwen3_5",
    model_types=("qwen3_5", "qwen3_5_moe"),
    hub_name=r"qwen3\.[56]",
    templates={"qwen3_5": "<think>\n\n</think>\n\n"},
    tiny=qwen_tiny(config, first=248044, vocabulary=248320, patch=16),
    images=qwen3_vl.FAMILY.images,
    box_format="norm1000",
    box_answer=qwen3_vl.FAMILY.box_answer,
    shared_prefix=("qwen3_5", "qwen3_5_moe"),
    has_videos=True,
    registers="token_ids",
    memory=MemoryFacts(llm_saved=28.7),
)
