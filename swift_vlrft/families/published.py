"""Look up the published numbers of models (models.json) by hub id or plain name.

published_name("Qwen/Qwen2.5-VL-3B-Instruct")     "Qwen2.5-VL-3B"
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

MODELS_FILE = Path(__file__).with_name("models.json")

SUFFIXES = re.compile("(-(instruct|thinking|base|it|2512|bf16|hf))+$")
"""Ends of names on the hub that say nothing of a model's sizes."""


@lru_cache
def published_models() -> dict[str, dict[str, Any]]:
    """Return config.json and parameters of each model; some are "like" another one."""
    return dict(json.loads(MODELS_FILE.read_text()))


def published_name(name: str) -> str | None:
    """Return the key of a model; None if its numbers are not shipped."""
    known = {key.lower(): key for key in published_models()}
    plain = name.rstrip("/").rsplit("/", 1)[-1].lower()
    return known.get(plain) or known.get(SUFFIXES.sub("", plain))


def attention_heads(name: str) -> int | None:
    """Return the attention heads of a model's language part; None if they are not shipped."""
    if (key := published_name(name)) is None:
        return None
    config = published_models()[published_models()[key].get("like", key)]
    heads = (config.get("text_config") or config).get("num_attention_heads")
    return int(heads) if heads else None
