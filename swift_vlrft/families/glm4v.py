"""GLM-4.1V: boxes in thousandths between box tokens.

<|begin_of_box|>[[254,303,291,365]]<|end_of_box|>
"""

from collections.abc import Mapping
from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.resize import SmartResize
from swift_vlrft.families.tiny_parts import (
    GLM_TOKENS,
    config_of,
    ids_from,
    rope,
    text_config,
    vision_config,
)

TOKENS = (*GLM_TOKENS, "<|image|>", "<|video|>")
IMAGE_ID = 151343
THINKING = ("<think>", "</think>", "<answer>", "</answer>", "<|begin_of_box|>", "<|end_of_box|>")


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    turns = rope(rope_theta=1e4, mrope_section=[2, 3, 3], partial_rotary_factor=0.5)
    # transformers has the biases without being told, vLLM has not.
    text = text_config(size, vocabulary) | turns | {"attention_bias": True}
    return config_of("glm4v", text, vision_config(size), tie_word_embeddings=False)


def is_first(values: Mapping[str, Any]) -> bool:
    """GLM-4.6V-Flash has the same type, and its image token another id."""
    return bool(values.get("image_token_id", IMAGE_ID) == IMAGE_ID)


FAMILY = Family(
    name="glm4v",
    model_types=("glm4v",),
    hub_name=r"glm-?4\.1v|autoglm-phone",
    is_config=is_first,
    templates={"glm4v": ""},
    tiny=Tiny(
        special_ids=ids_from(151329, TOKENS) | ids_from(151345, THINKING),
        vocabulary=151552,
        eos="<|user|>",
        chat_template="glm4v",
        config=config,
    ),
    # The size in the published preprocessor_config.json.
    images=SmartResize(
        factor=28, min_pixels=112**2, max_pixels=2 * 28**2 * 6144, frames=2, from_environment=False
    ),
    box_format="norm1000",
    box_answer="<|begin_of_box|>[[254,303,291,365]]<|end_of_box|>",
    writes=("<answer>",),
    shared_prefix=("glm4v",),
    registers="token_ids",
    memory=MemoryFacts(
        llm_saved=34.0,
        llm_mlp="gate_up_proj",
        vit_saved=51.0,
        vit_gated=True,
        vit_intermediate="out_hidden_size",
    ),
)
