"""MiniCPM-V 4.6: boxes in thousandths; large images are seen whole and in slices.

<box>254 303 291 365</box>

A SigLIP ViT that merges patches after layer 6, and the language model of Qwen3.5. Counted is the
default of ms-swift's template, DOWNSAMPLE_MODE=16x; 4x makes four tokens of each one.
"""

from typing import Any

from swift_vlrft.families import qwen3_5
from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.tiles import Slices
from swift_vlrft.families.tiny_parts import config_of, ids_from, usual_vision_config

TOKENS = {
    "image_start_token": "<image>",
    "image_end_token": "</image>",
    "slice_start_token": "<slice>",
    "slice_end_token": "</slice>",
    "image_id_start_token": "<image_id>",
    "image_id_end_token": "</image_id>",
}
"""What the processor asks its tokenizer for. ms-swift, vLLM and transformers name no id of these,
so they are not verified; here they follow those of Qwen3.5's 248,077 that a tokenizer has.
"""
IMAGE_TOKENS = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
IDS = {**qwen3_5.FAMILY.tiny.special_ids, **ids_from(248077, (*TOKENS.values(), "<box>", "</box>"))}

SIDE = 112
"""Of a view in the tiny models: four tokens. The published model has views of 448 x 448."""


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    text = qwen3_5.config(size, vocabulary)["text_config"] | {
        "model_type": "qwen3_5_text",
        "tie_word_embeddings": True,
        "linear_key_head_dim": 128,  # vLLM's Gated DeltaNet on CPU takes nothing else
        "linear_value_head_dim": 128,
    }
    images = {"image_token_id": IDS["<|image_pad|>"], "video_token_id": IDS["<|video_pad|>"]}
    vision = usual_vision_config(size) | {"image_size": SIDE, "patch_size": 14}
    return config_of("minicpmv4_6", text, vision, insert_layer_id=0, **images)


FAMILY = Family(
    name="minicpmv4_6",
    model_types=("minicpmv4_6",),
    hub_name=r"minicpm-?v-?4[._]6",
    templates={"minicpmv4_6": "<think>\n\n</think>\n\n"},
    tiny=Tiny(
        special_ids=IDS,
        vocabulary=248094,
        chat_template="minicpmv4_6",
        config=config,
        tokenizer_options={"extra_special_tokens": TOKENS | IMAGE_TOKENS},
        image_options={"scale_resolution": SIDE},
    ),
    # Four by four patches of 14 pixels are one token: merged after a layer of the ViT, and again.
    images=Slices(factor=56, min_pixels=448**2, max_pixels=10 * 448**2),
    box_format="norm1000",
    box_answer="<box>254 303 291 365</box>",
    why_not_shared="its merger runs once a slice: ranks with unlike numbers would hang with ZeRO-3",
    # The ViT's 20 layers after the first merging see a quarter of the patches: 46.0 x 12 / 27.
    memory=MemoryFacts(llm_saved=28.7, vit_saved=20.4, keeps_logits=False, vit_attention="q_proj"),
)
