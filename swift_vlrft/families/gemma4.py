"""Gemma 4 (E2B, E4B; 26B-A4B and 31B by the same code): boxes y-first in thousandths.

```json
[{"box_2d": [303, 254, 365, 291], "label": "cat"}]
```

Layers share keys and values with earlier ones of their kind, and each has its own small embedding
of every token. The 12B model is another architecture, gemma4_unified.
"""

from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, Tiny, TinySize
from swift_vlrft.families.fixed import Budget
from swift_vlrft.families.tiny_parts import config_of, text_config, usual_vision_config

TOKENS = {
    "image_token": "<|image|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
}
"""What the processor asks its tokenizer for."""
IDS = {
    **{"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "<mask>": 4},
    **{"<|think|>": 98, "<|channel>": 100, "<channel|>": 101, "<|turn>": 105, "<turn|>": 106},
    **{"<|image>": 255999, "<|audio>": 256000, "<|image|>": 258880, "<|audio|>": 258881},
    **{"<image|>": 258882, "<audio|>": 258883, "<|video|>": 258884},
}


BUDGET = 70
"""Tokens of an image of the tiny models; the published have 280."""


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    """Twice the layers: the second half shares the first half's keys and values."""
    text = text_config(size, vocabulary) | {
        "model_type": "gemma4_text",
        "num_hidden_layers": 2 * size.layers,
        "layer_types": 2 * (["sliding_attention"] * (size.layers - 1) + ["full_attention"]),
        "num_kv_shared_layers": size.layers,
        "head_dim": 32,
        "global_head_dim": 64,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": vocabulary,
        "final_logit_softcapping": 30.0,
        "sliding_window": 512,
        "bos_token_id": IDS["<bos>"],
        "pad_token_id": IDS["<pad>"],
        "tie_word_embeddings": True,
    }
    vision = usual_vision_config(size) | {
        "num_key_value_heads": size.vision_hidden // 32,
        "head_dim": 32,
        "position_embedding_size": 512,
        "default_output_length": BUDGET,  # vLLM reads it
        "use_clipped_linears": True,
    }
    audio = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "subsampling_conv_channels": [16, 8],
        "output_proj_dims": size.hidden,
    }
    return config_of("gemma4", text, vision, audio_config=audio)


FAMILY = Family(
    name="gemma4",
    model_types=("gemma4",),
    hub_name=r"gemma-?4-(e\db|26b|31b)",
    templates={"gemma4_nothinking": "", "gemma4": "<|channel>thought\n<channel|>"},
    tiny=Tiny(
        special_ids=IDS,
        vocabulary=262144,
        eos="<turn|>",
        pad="<pad>",
        chat_template="gemma4",
        config=config,
        tokenizer_options={"extra_special_tokens": TOKENS, "bos_token": "<bos>"},
        image_options={"max_soft_tokens": BUDGET},
    ),
    # Three by three patches of 16 pixels are one token.
    images=Budget(factor=48, min_pixels=280 * 48**2, max_pixels=280 * 48**2),
    box_format="yx1000",
    box_answer='```json\n[{"box_2d": [303, 254, 365, 291], "label": "cat"}]\n```',
    why_not_shared="most of its layers see a window of tokens, not the whole prompt",
    needs_plugin=True,
    registers="gemma4",
    memory=MemoryFacts(
        llm_saved=34.0,  # four norms a layer, as GLM-4.1V
        vit_saved=49.9,
        vit_gated=True,
        vit_attention="q_proj",
        liger=False,  # its loss knows no soft cap of the logits
    ),
)
