"""Qwen3 without images."""

from typing import Any

from swift_vlrft.families.family import Family, MemoryFacts, TinySize
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config


def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
    return config_of("qwen3", text_config(size, vocabulary) | rope() | {"head_dim": 32})


FAMILY = Family(
    name="qwen3",
    model_types=("qwen3", "qwen3_moe"),
    hub_name=r"(^|/)qwen3-[\d.]+b",
    templates={
        "qwen3": "<think>\n\n</think>\n\n",
        "qwen3_thinking": "<think>\n",
        "qwen3_nothinking": "",
    },
    tiny=qwen_tiny(config),
    memory=MemoryFacts(llm_saved=28.7),
)
