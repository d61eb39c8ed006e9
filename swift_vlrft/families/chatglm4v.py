"""GLM-4V-9B, which writes no boxes, and CogAgent-9B, trained on screens.

Grounded Operation: CLICK(box=[[254,303,291,365]], element_info='[AXCell]')
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.fixed import Squash

TOKENS = (
    *("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>"),
    *("<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>"),
    *("<|begin_of_video|>", "<|end_of_video|>"),
)
"""The special tokens, in the order of their ids."""
SPECIAL_IDS = {name: 151329 + i for i, name in enumerate(TOKENS)}

IMAGE_SIDE = 112
"""Of the tiny models: 16 tokens an image. The published models squash images to 1120 x 1120."""


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    """With the keys of the published config.json."""
    return {
        "model_type": "chatglm",
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "apply_query_key_layer_scaling": True,
        "apply_residual_connection_post_layernorm": False,
        "attention_dropout": 0.0,
        "attention_softmax_in_fp32": True,
        "bias_dropout_fusion": True,
        "ffn_hidden_size": 2 * size.hidden,
        "fp32_residual_connection": False,
        "hidden_dropout": 0.0,
        "hidden_size": size.hidden,
        "kv_channels": 32,
        "layernorm_epsilon": 1.5625e-07,
        "multi_query_attention": True,
        "multi_query_group_num": size.hidden // 64,
        "num_attention_heads": size.hidden // 32,
        "num_layers": size.layers,
        "original_rope": True,
        "padded_vocab_size": vocabulary,
        "post_layer_norm": True,
        "rmsnorm": True,
        "rope_ratio": 1,
        "seq_length": 8192,
        "tie_word_embeddings": False,
        "use_cache": True,
        "eos_token_id": [SPECIAL_IDS[t] for t in ("<|endoftext|>", "<|user|>", "<|observation|>")],
        "pad_token_id": SPECIAL_IDS["<|endoftext|>"],
        "boi_token_id": SPECIAL_IDS["<|begin_of_image|>"],
        "eoi_token_id": SPECIAL_IDS["<|end_of_image|>"],
        "vision_config": {
            "dropout_prob": 0.0,
            "hidden_act": "gelu",
            "hidden_size": size.vision_hidden,
            "image_size": IMAGE_SIDE,
            "in_channels": 3,
            "intermediate_size": 2 * size.vision_hidden,
            "layer_norm_eps": 1e-06,
            "num_heads": size.vision_hidden // 32,
            "num_hidden_layers": size.vision_layers,
            "num_positions": (IMAGE_SIDE // 14) ** 2 + 1,
            "patch_size": 14,
            "scaling_factor": 8,
        },
    }


def config_of_cogagent(size: TinySize, vocabulary: int) -> dict[str, Any]:
    return config(size, vocabulary) | {"original_rope": False}


def is_glm(values: Mapping[str, Any]) -> bool:
    """The type chatglm is also that of language models without a ViT."""
    return "vision_config" in values and values.get("original_rope") is not False


def is_cogagent(values: Mapping[str, Any]) -> bool:
    return "vision_config" in values and values.get("original_rope") is False


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
        pad="<|endoftext|>",
        chat_template="chatglm4v",
        config=config,
        has_ranks=True,
    ),
    images=Squash(factor=28, side=1120),
    why_not_shared="the token that ends its answers also stands for an image's patches",
    needs_plugin=True,
    memory=MemoryFacts(
        llm_saved=28.7, vit_saved=50.7, vit_attention="query_key_value", liger=False
    ),
)

COGAGENT = replace(
    FAMILY,
    name="cogagent_9b",
    hub_name=r"cogagent-9b",
    is_config=is_cogagent,
    tiny=replace(FAMILY.tiny, config=config_of_cogagent),
    box_format="norm1000",
    box_answer="Grounded Operation: CLICK(box=[[254,303,291,365]], element_info='[AXCell]')",
)
