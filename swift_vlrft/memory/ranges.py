"""The values that a plan can be made of: a number, a switch or a name that is none is refused.

--per_device_train_batch_size 0        --torch_dtype float8        MAX_PIXELS=-5
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from swift_vlrft.families.resize import RESOLUTION

if TYPE_CHECKING:
    from swift_vlrft.recipe.reader import Recipe

ANY = math.inf
WHOLE: dict[str, tuple[float, float]] = {
    "per_device_train_batch_size": (1, ANY),
    "per_device_eval_batch_size": (1, ANY),
    "gradient_accumulation_steps": (1, ANY),
    "steps_per_generation": (1, ANY),
    "generation_batch_size": (1, ANY),
    "num_generations": (1, ANY),
    "num_iterations": (1, ANY),
    "max_completion_length": (1, ANY),
    "max_length": (1, ANY),
    "max_pixels": (1, ANY),
    "lora_rank": (1, ANY),
    "sequence_parallel_size": (1, ANY),
    "move_model_batches": (1, ANY),
    "sleep_level": (0, 2),
    "vllm_tensor_parallel_size": (1, ANY),
    "vllm_max_model_len": (1, ANY),
    "vllm_max_num_seqs": (1, ANY),
}
"""Whole numbers that a plan reads, with their least and their greatest value."""

NUMBERS: dict[str, tuple[float, float]] = {
    "vllm_gpu_memory_utilization": (0.01, 1),
    "lora_dropout": (0, 1),
    "beta": (0, ANY),
    "learning_rate": (0, ANY),
    "split_dataset_ratio": (0, 1),
    "top_entropy_quantile": (0, 1),
    "sdar_loss_coef": (0, ANY),
}

CHOICES = {
    # swift/arguments/base_args/model_args.py, tuner_args.py, quant_args.py
    "torch_dtype": ("bfloat16", "float16", "float32"),
    "lora_dtype": ("bfloat16", "float16", "float32", "None"),
    "quant_bits": ("1", "2", "3", "4", "8", "float8"),
    "attn_impl": (
        *("sdpa", "eager", "flash_attn", "flex_attention"),
        *(f"flash_attention_{version}" for version in (2, 3, 4)),
    ),
}


def refuse_impossible(recipe: Recipe, variables: Mapping[str, str]) -> None:
    """ValueError at the first that is none, whether this recipe's engine uses it or not.

    ``variables``: those that bound the images, from wherever ms-swift takes them.
    """
    for flag in recipe.flags:
        if not flag.known or flag.name not in {*WHOLE, *NUMBERS, *CHOICES}:
            continue
        if not flag.values:
            raise ValueError(f"{recipe.path}:{flag.line}: --{flag.name} has no value")
        text = flag.values[0]
        known = CHOICES.get(flag.name)
        if known and text not in known and "/" not in text:  # kernels-community/flash-attn2
            raise ValueError(
                f"{recipe.path}:{flag.line}: --{flag.name} {text}: known are {', '.join(known)}"
            )
        if flag.name not in CHOICES:
            _number(f"{recipe.path}:{flag.line}: --{flag.name} {text}", text, flag.name)
    for name, text in variables.items():
        if name in RESOLUTION and text.strip():
            _number(f"{recipe.path}: {name}={text}", text, name)


def _number(said: str, text: str, name: str) -> None:
    least, most = WHOLE.get(name) or NUMBERS.get(name) or ("MIN" not in name, ANY)
    whole = name not in NUMBERS
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or math.isinf(value):
        kind = "a whole number" if whole else "a number"
        to = f"from {least:g} to {most:g}" if most < ANY else f"{least:g} or more"
        raise ValueError(f"{said}: {kind} is needed, {to}")
