"""Qwen2 and Qwen2.5 without images."""

from swift_vlrft.families.family import Family
from swift_vlrft.families.tiny_parts import config_of, qwen_tiny, rope, text_config

FAMILY = Family(
    name="qwen2",
    model_types=("qwen2",),
    hub_name=r"(^|/)qwen2(\.5)?-(math-|coder-)?[\d.]+b(?!-a\d)",
    templates={"qwen2_5": ""},
    tiny=qwen_tiny(lambda *sizes: config_of("qwen2", text_config(*sizes) | rope())),
)
