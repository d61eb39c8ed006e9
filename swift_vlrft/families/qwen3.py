"""Qwen3 without images."""

from swift_vlrft.families.family import Family, MemoryFacts
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config

FAMILY = Family(
    name="qwen3",
    model_types=("qwen3", "qwen3_moe"),
    hub_name=r"(^|/)qwen3-[\d.]+b",
    templates={
        "qwen3": "<think>\n\n</think>\n\n",
        "qwen3_thinking": "<think>\n",
        "qwen3_nothinking": "",
    },
    tiny=qwen_tiny(
        lambda *sizes: config_of("qwen3", text_config(*sizes) | rope() | {"head_dim": 32})
    ),
    memory=MemoryFacts(llm_saved=28.7),
)
