"""Rules that need only the words of a recipe: what the reader could not read, placeholders, JSON,
tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from swift_vlrft.recipe.reader import Flag, Recipe
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding

LEVELS = {"unread": NOTE, "conditional": NOTE, "needed": NOTE}
PLACEHOLDER = re.compile(
    r"<(?!/?(?:think|answer|image|video|audio|bbox|ref-object)>)[\w -]+>"
    r"|\b(?:path/to/|your[-_ ]|xxx+\b|todo\b)"
    r"|\[(?:your|model|path)[\w -]*\]",
    re.IGNORECASE,
)
JSON_FLAGS = (
    *("model_kwargs", "columns", "device_map", "max_memory", "rope_scaling"),
    *("deepspeed", "teacher_deepspeed", "fsdp", "fsdp_config", "accelerator_config"),
    *("gradient_checkpointing_kwargs", "vit_gradient_checkpointing_kwargs"),
    *("lr_scheduler_kwargs", "liger_kernel_config", "mrl_dims"),
    *("eval_dataset_args", "eval_generation_config", "extra_eval_args"),
    *("limit_mm_per_prompt", "vllm_limit_mm_per_prompt"),
    *("vllm_speculative_config", "vllm_engine_kwargs"),
)
"""Flags whose value ms-swift 4.6.0 takes for JSON (`json_parse_to_dict`) where it is no file."""
SECRET_FLAGS = ("hub_token", "swanlab_token", "swanlab_secret", "api_key")
SECRET_VARIABLE = re.compile(
    r"^\s*(?:export\s+)?([A-Z_]*(?:API_KEY|TOKEN|SECRET))=[\"']?([^\s\"'$]+)"
)


def text(recipe: Recipe) -> Iterator[Finding]:
    for note in recipe.notes:
        level = LEVELS.get(note.kind, PROBLEM)
        yield Finding(recipe.path, note.line, level, note.kind, note.text)
    for flag in recipe.flags:
        yield from _flag(recipe, flag)
    yield from _secrets(recipe)


def _flag(recipe: Recipe, flag: Flag) -> Iterator[Finding]:
    if not flag.name and flag.known:
        yield Finding(
            recipe.path,
            flag.line,
            PROBLEM,
            "stray-word",
            f"{' '.join(flag.values)} belongs to no flag",
        )
    if not flag.name:
        return
    for value in flag.values if flag.known else ():
        if PLACEHOLDER.search(value) and flag.name != "system":
            yield Finding(
                recipe.path,
                flag.line,
                PROBLEM,
                "placeholder",
                f"--{flag.name} {value} is a placeholder: put the value in its place",
            )
        if flag.name in JSON_FLAGS and value.lstrip().startswith("{"):
            yield from _json(recipe, flag, value)
    same = [other for other in recipe.flags if other.name == flag.name]
    if flag is not same[-1] and flag.line != same[-1].line:
        yield Finding(
            recipe.path,
            flag.line,
            NOTE,
            "repeated-flag",
            f"--{flag.name} stands again in line {same[-1].line}, and only that one counts",
        )


def _json(recipe: Recipe, flag: Flag, value: str) -> Iterator[Finding]:
    try:
        json.loads(value)
    except json.JSONDecodeError as error:
        yield Finding(
            recipe.path,
            flag.line,
            PROBLEM,
            "json",
            f"--{flag.name} does not parse as JSON ({error.msg} at character {error.pos + 1}); "
            f"what arrives is {value} . Write it in single quotes, as '{{\"image\": 2}}'",
        )


def _secrets(recipe: Recipe) -> Iterator[Finding]:
    """Never shows the value."""
    for flag in recipe.flags:
        if flag.name in SECRET_FLAGS and flag.values:
            yield Finding(
                recipe.path,
                flag.line,
                PROBLEM,
                "secret",
                f"--{flag.name}: ms-swift prints the whole command into its log. Set the "
                "environment variable outside of the recipe instead (HF_TOKEN, "
                "MODELSCOPE_API_TOKEN, SWANLAB_API_KEY)",
            )
    for line, written in enumerate(_lines(recipe.path), 1):
        match = SECRET_VARIABLE.match(written)
        if match and not re.fullmatch(r"x+|<.*>", match[2]):
            yield Finding(
                recipe.path,
                line,
                PROBLEM,
                "secret",
                f"{match[1]} is written into the recipe. Set it in the environment instead",
            )


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
