"""GLM-4V-9B, which writes no boxes, and CogAgent-9B, trained on screens.

Grounded Operation: CLICK(box=[[254,303,291,365]], element_info='[AXCell]')
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.fixed import Squash
from swift_vlrft.families.tiny_parts import GLM_TOKENS, ids_from

SPECIAL_IDS = ids_from(151329, GLM_TOKENS)

IMAGE_SIDE = 112
"""Of the tiny models: 16 tokens an image. The published models squash images to 1120 x 1120."""


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    """What differs from the published config.json (chatglm4v/configuration.py)."""
    return {
        "model_type": "chatglm",
        "ffn_hidden_size": 2 * size.hidden,
        "hidden_size": size.hidden,
        "kv_channels": 32,
        "multi_query_group_num": size.hidden // 64,
        "num_attention_heads": size.hidden // 32,
        "num_layers": size.layers,
        "original_rope": True,
        "padded_vocab_size": vocabulary,
        "vision_config": {
            "hidden_size": size.vision_hidden,
            "image_size": IMAGE_SIDE,
            "intermediate_size": 2 * size.vision_hidden,
            "num_heads": size.vision_hidden // 32,
            "num_hidden_layers": size.vision_layers,
            "num_positions": (IMAGE_SIDE // 14) ** 2 + 1,
        },
    }


def is_glm(values: Mapping[str, Any]) -> bool:
    """The type chatglm is also that of language models without a ViT."""
    return "vision_config" in values and values.get("original_rope") is not False


FAMILY = Family(
    name="chatglm4v",
    model_types=("chatglm4v", "chatglm"),
    hub_name=r"glm-?4v-9b",
    is_config=is_glm,
    templates={"chatglm4v": ""},
    tiny=Tiny(
        special_ids=SPECIAL_IDS,
        vocabulary=151552,
        eos="<|endoftext|>",
        chat_template="chatglm4v",
        config=config,
        has_ranks=True,
    ),
    images=Squash(factor=28, min_pixels=1120**2, max_pixels=1120**2),
    why_not_shared="the token that ends its answers also stands for an image's patches",
    needs_plugin=True,
    own_classes=True,
    memory=MemoryFacts(
        llm_saved=28.7,
        llm_mlp="dense_h_to_4h",
        vit_saved=50.7,
        vit_attention="query_key_value",
        liger=False,
    ),
)

COGAGENT = replace(
    FAMILY,
    name="cogagent_9b",
    hub_name=r"cogagent-9b",
    is_config=lambda values: "vision_config" in values and values.get("original_rope") is False,
    tiny=replace(FAMILY.tiny, config=lambda *sizes: config(*sizes) | {"original_rope": False}),
    box_format="norm1000",
    box_answer="Grounded Operation: CLICK(box=[[254,303,291,365]], element_info='[AXCell]')",
)
