"""What a run was told to do, from ms-swift's args.json, for its card: no secrets, no paths.

recipe_lines({"learning_rate": 1e-6, "hub_token": "hf_..."})    ["--learning_rate 1e-06"]
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from swift_vlrft.files.jsonl import finite
from swift_vlrft.hub.cleaning import clean_text, is_hub_id, name_of, without_secrets
from swift_vlrft.recipe.facts import facts
from swift_vlrft.report.html import short
from swift_vlrft.rewards import REWARDS

FIRST = (
    *("rlhf_type", "model", "adapters", "dataset", "val_dataset", "external_plugins"),
    *("reward_funcs", "reward_weights", "tuner_type", "torch_dtype", "learning_rate", "beta"),
    *("num_generations", "temperature", "max_completion_length", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "max_steps", "num_train_epochs"),
)
"""These stand first, and also where they are as by default."""
NAMED = ("model", "adapters", "ref_model", "dataset", "val_dataset", "external_plugins")
"""Their values are models, sets and files: hub ids, or paths of which the name is shown."""

# Where and how it ran on that machine; and what ms-swift works out of other flags.
_LEFT_OUT = re.compile(
    r"(output|logging|cache)_dir|run_name|project|local_rank|ddp_.*|hub_.*|push_to_hub|swanlab_.*|"
    r"wandb.*|trackio_.*|ray_.*|use_ray|device_groups|vllm_server_.*|vllm_.*_url|ignore_args_error|"
    r"resume_from_checkpoint|load_(data_)?args|check_model|add_version|report_to|"
    r"fp16|bf16|eval_strategy|eval_steps|metric_for_best_model|greater_is_better|task_type|"
    r"accelerator_config|remove_unused_columns|response_length|max_new_tokens|bnb_4bit_compute_dtype|"
    r"include_num_input_tokens_seen|use_chat_template|stream|logprobs|init_weights|use_hf|"
    r"dataloader_.*|custom_(register_path|dataset_info)|local_repo_path|create_checkpoint_symlink"
)
LONGEST = 300


def recipe_lines(args: Mapping[str, Any]) -> list[str]:
    """Flags of `swift rlhf` that are not as by default, a line each."""
    known = facts(may_import=False).flags("rlhf")
    args = without_secrets({name: _named(name, value) for name, value in args.items()})
    found = {}
    for name, flag in known.items():
        value = args.get(name)
        default = name not in FIRST and value == flag.default
        if value in (None, "", [], {}) or default or _LEFT_OUT.fullmatch(name):
            continue
        if (
            name in FIRST
            and value in (-1, flag.default)
            and name in ("max_steps", "num_train_epochs")
        ):
            continue
        found[name] = f"--{name} {_text(value)}"
    return [found[name] for name in (*FIRST, *sorted(found.keys() - {*FIRST})) if name in found]


def names_of(args: Mapping[str, Any], flag: str) -> list[str]:
    """The models or sets of a flag as they are called, not where they lie."""
    value = args.get(flag)
    values = value if isinstance(value, list) else [value] if value else []
    return [clean_text(name_of(str(one))) for one in values]


def hub_sets(args: Mapping[str, Any]) -> list[str]:
    """Ids of the data sets that surely are a hub's: named with it, or known to ms-swift or us."""
    from swift_vlrft.datasets import SOURCES

    known = {source.hub_id for source in SOURCES} | set(facts(may_import=False).datasets)
    found = []
    for name in names_of(args, "dataset"):
        bare = re.split("[:#]", re.sub("^(hf|ms)::", "", name))[0]
        if is_hub_id(name) and ("::" in name or bare in known):
            found.append(bare)
    return list(dict.fromkeys(found))


def reward_rows(args: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, weight and meaning of every reward of the run; "" for what is not known."""
    names = args.get("reward_funcs")
    names = [clean_text(str(n)) for n in names] if isinstance(names, list) else []
    given = args.get("reward_weights")
    weights = given if isinstance(given, list) and len(given) == len(names) else [1.0] * len(names)
    shown = [short(finite(weight)) for weight in weights]
    return [(name, weight, _meaning(name)) for name, weight in zip(names, shown, strict=True)]


def _meaning(name: str) -> str:
    from swift_vlrft.hub.dataset_card import meaning

    return meaning(name) if name in REWARDS else "of ms-swift, or of a plugin of the run"


def _named(name: str, value: Any) -> Any:
    if name not in NAMED:
        return value
    if isinstance(value, list):
        return [name_of(str(one)) for one in value]
    return name_of(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(one, (dict, list)) for one in value):
        text = " ".join(map(str, value))
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
