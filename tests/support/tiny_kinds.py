"""A tiny checkpoint of every model family, and of every type of mixture of experts in one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.vision_rows import MIXTURES as MIXTURES
from support.vision_rows import tiny_of

from swift_vlrft.families import FAMILIES, known_family
from swift_vlrft.families.family import TinySize
from swift_vlrft.tiny.checkpoint import build_model, build_tokenizer, save_checkpoint, write_tiny

# Keys of the published config.json that vLLM reads and transformers has no defaults for.
READ_BY_VLLM = {
    "norm_topk_prob": True,
    "head_dim": 32,
    "use_qk_norm": False,
    "moe_intermediate_size": 128,
}


def write_kind(kind: str, folder: Path) -> None:
    """A family as `vlrft tiny` writes it, or a mixture."""
    if kind in FAMILIES:
        write_tiny(kind, folder)
        return
    family, dense = known_family(kind), tiny_of(kind)

    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        values = dense.config(size, vocabulary)
        return values | {"text_config": values["text_config"] | READ_BY_VLLM}

    tiny = replace(dense, config=config, processor_type=family.tiny.processor_type or family.name)
    kind_family = replace(family, tiny=tiny)
    save_checkpoint(build_model(tiny), build_tokenizer(tiny), kind_family, folder)
    named = json.loads((folder / "args.json").read_text()) | {"model_type": kind}
    (folder / "args.json").write_text(json.dumps(named))
