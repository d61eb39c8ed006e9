"""GLM-4.5V, 4.6V and 4.6V-Flash: images and boxes as in GLM-4.1V, other special tokens.

<|begin_of_box|>[[254,303,291,365]]<|end_of_box|>

GLM-4.6V-Flash is a dense ``glm4v`` with the processor of transformers' ``glm46v``; GLM-4.5V and
4.6V are ``glm4v_moe``. ms-swift 4.6 and vLLM 0.32 know no architecture of the type ``glm46v``.
Not verified, for want of the published files: GLM-4.6V-Flash's image token id, by which it is told
from GLM-4.1V, and its context (families/models.json).
"""

from dataclasses import replace
from typing import Any

from swift_vlrft.families import glm4v
from swift_vlrft.families.family import Family, TinySize
from swift_vlrft.families.tiny_parts import GLM_TOKENS, ids_from

TOKENS = (
    *GLM_TOKENS,
    *("<|begin_of_audio|>", "<|end_of_audio|>"),
    *("<|begin_of_transcription|>", "<|end_of_transcription|>"),
    *("<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>", "<think>", "</think>"),
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"),
    *("<|begin_of_box|>", "<|end_of_box|>", "<|image|>", "<|video|>"),
)
SPECIAL_IDS = ids_from(151329, TOKENS)


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    return glm4v.config(size, vocabulary) | {
        "image_token_id": SPECIAL_IDS["<|image|>"],
        "video_token_id": SPECIAL_IDS["<|video|>"],
    }


FAMILY: Family = replace(
    glm4v.FAMILY,
    name="glm46v",
    model_types=("glm4v", "glm4v_moe", "glm46v"),
    hub_name=r"glm-?4\.[56]v|(^|/)glyph$",
    is_config=lambda values: values["model_type"] != "glm4v" or not glm4v.is_first(values),
    shared_prefix=("glm4v", "glm4v_moe"),
    templates={"glm4_5v": "<think></think>\n"},
    tiny=replace(
        glm4v.FAMILY.tiny, special_ids=SPECIAL_IDS, config=config, processor_type="glm46v"
    ),
)
