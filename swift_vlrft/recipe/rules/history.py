"""What became of the flags of older ms-swift versions, up to 4.6.0.

--train_type lora           now --tuner_type, since 4.1.0
--num_infer_workers 1       gone since 3.6.0: --vllm_mode colocate or server
--scale_rewards true        now group, since 3.10.0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swift_vlrft.recipe.reader import Flag, Recipe
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Edit, Finding


@dataclass(frozen=True, slots=True)
class Old:
    """A flag that is gone: ``now`` takes its values; without it, leave it out (``drop``) or read
    ``hint``.
    """

    since: str
    now: str | None = None
    hint: str = ""
    drop: bool = False


def _renamed(since: str, names: dict[str, str]) -> dict[str, Old]:
    return {old: Old(since, now) for old, now in names.items()}


def _prefixed(since: str, prefix: str, names: str) -> dict[str, Old]:
    return {name: Old(since, prefix + name) for name in names.split()}


OLD_FLAGS: dict[str, Old] = {
    **_renamed("4.1.0", {"train_type": "tuner_type"}),
    **_renamed("3.0.0", {"sft_type": "tuner_type", "model_id_or_path": "model"}),
    **_renamed(
        "3.0.0",
        {
            "template_type": "template",
            "batch_size": "per_device_train_batch_size",
            "eval_batch_size": "per_device_eval_batch_size",
            "lora_dropout_p": "lora_dropout",
            "dataset_test_ratio": "split_dataset_ratio",
            "custom_val_dataset_path": "val_dataset",
        },
    ),
    "custom_train_dataset_path": Old("3.0.0", hint="write --dataset FILE"),
    "lora_target_modules": Old("3.0.0", hint="write --target_modules all-linear"),
    "use_flash_attn": Old("3.0.0", hint="write --attn_impl flash_attention_2"),
    "check_dataset_strategy": Old("3.0.0", drop=True),
    "train_dataset_sample": Old("3.0.0", hint="write --dataset NAME#COUNT"),
    "quantization_bit": Old("3.0.0", "quant_bits"),
    "dtype": Old("3.0.0", hint="write --torch_dtype bfloat16"),
    "config": Old("4.1.0", hint="give the file first: `swift rlhf cfg.yaml --flag value`"),
    "ckpt_dir": Old("4.0.0", hint="write --adapters (LoRA) or --model (full weights)"),
    **_renamed("4.0.0", {"lora_modules": "adapters"}),
    "galore_config": Old("4.0.0", hint="write --use_galore true and its own flags"),
    "gc_collect_after_offload": Old(
        "3.10.0", drop=True, hint="offloading empties the cache by itself"
    ),
    "multi_turn_func": Old("3.10.0", "multi_turn_scheduler", hint="with --max_turns"),
    **_prefixed(
        "3.10.0",
        "vllm_",
        "tensor_parallel_size data_parallel_size use_async_engine gpu_memory_utilization "
        "limit_mm_per_prompt",
    ),
    **_prefixed(
        "3.7.0",
        "vllm_",
        "max_num_seqs enforce_eager enable_prefix_caching pipeline_parallel_size "
        "disable_custom_all_reduce",
    ),
    **_prefixed(
        "3.7.0", "lmdeploy_", "tp session_len cache_max_entry_count quant_policy vision_batch_size"
    ),
    "num_infer_workers": Old("3.6.0", drop=True, hint="--vllm_mode colocate or server decides"),
    "vllm_device": Old("3.6.0", drop=True, hint="--vllm_mode colocate or server decides"),
    "use_lmdeploy": Old("3.5.0", drop=True, hint="rollouts are made by vLLM or transformers"),
    "mini_batch_size": Old("3.4.0", hint="write --steps_per_generation or --generation_batch_size"),
    "tools_prompt": Old("3.4.0", "agent_template"),
    "acc_steps": Old("3.7.0", hint="write --gradient_accumulation_steps"),
    "metric_warmup_step": Old("3.7.0", drop=True),
    "fsdp_num": Old("3.7.0", drop=True),
    "packing_cache": Old("3.7.0", drop=True),
    "channels": Old("3.8.0", hint="write --enable_channel_loss true and give a column channel"),
    "dataset_args": Old("3.9.0", "eval_dataset_args"),
    "eval_datasets": Old("3.6.0", "eval_dataset"),
    "eval_datasets_args": Old("3.6.0", "eval_dataset_args"),
    "num_sampling_per_gpu_batch_size": Old("3.10.0", "num_sampling_batch_size"),
    "rollout_depth": Old("3.10.0", drop=True),
    "exploration_rate": Old("3.10.0", drop=True),
    "swanlab_lark_webhook_url": Old("3.12.0", "swanlab_webhook_url"),
    "swanlab_lark_secret": Old("3.12.0", "swanlab_secret"),
    "evaluation_strategy": Old("4.5.0", "eval_strategy", hint="transformers 5"),
    "save_safetensors": Old("4.5.0", drop=True, hint="transformers 5 always does"),
    "overwrite_output_dir": Old("4.5.0", drop=True, hint="transformers 5"),
}
"""Flags that ms-swift 4.6.0 with transformers 5 rejects; ``since`` as found in its releases."""

NEW_DEFAULTS: list[tuple[str, str, str, str]] = [
    ("4.1.0", "top_k", "50", "-1 (all tokens)"),
    ("4.1.0", "top_p", "0.9", "1.0"),
    ("3.9.0", "load_from_cache_file", "true", "false"),
    ("3.8.0", "router_aux_loss_coef", "the model's", "0"),
    ("3.6.0", "split_dataset_ratio", "0.01 (1 % of the rows for evaluation)", "0 (none)"),
    ("3.3.0", "truncation_strategy", "delete", "left"),
]
"""Version, flag, old default, new default: the same recipe gives other results."""


def history(recipe: Recipe) -> Iterator[Finding]:
    """Flags and values of older versions, and the defaults that changed since then."""
    oldest: tuple[int, ...] | None = None
    for flag in recipe.flags:
        old = OLD_FLAGS.get(flag.name)
        if old is None and (since := old_value(flag)) is None:
            continue
        yield _removed(recipe, flag, old) if old else _changed(recipe, flag)
        found = _version(old.since if old else since or "")
        oldest = found if oldest is None else min(oldest, found)
    if recipe.truth("use_vllm") and recipe.lacks("vllm_mode"):
        uses = recipe.flag("use_vllm")
        assert uses is not None
        mode = "colocate" if recipe.lacks("vllm_server_host") else "server"
        yield Finding(
            recipe.path,
            uses.line,
            PROBLEM,
            "vllm-mode",
            f"--use_vllm true needs --vllm_mode since ms-swift 3.12.0; before, it was {mode}",
            Edit(uses.name, uses.line, add=f"--vllm_mode {mode}"),
        )
        oldest = min(oldest, (3, 12, 0)) if oldest else oldest
    if oldest and recipe.trains:
        yield from _new_defaults(recipe, oldest)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _removed(recipe: Recipe, flag: Flag, old: Old) -> Finding:
    hint = f" ({old.hint})" if old.hint else ""
    edit = None
    if old.now:
        text = f"--{flag.name} is --{old.now} since ms-swift {old.since}{hint}"
        edit = Edit(flag.name, flag.line, name=old.now)
    elif old.drop:
        text = f"--{flag.name} is gone since ms-swift {old.since}: leave it out{hint}"
        edit = Edit(flag.name, flag.line, drop=True)
    else:
        text = f"--{flag.name} is gone since ms-swift {old.since}: {old.hint}"
    return Finding(recipe.path, flag.line, PROBLEM, "removed-flag", text, edit)


def old_value(flag: Flag) -> str | None:
    """Since when the value is not taken any more."""
    value = flag.values[0].lower() if flag.values and flag.known else ""
    if flag.name == "scale_rewards" and value in ("true", "false"):
        return "3.10.0"
    return None


def _changed(recipe: Recipe, flag: Flag) -> Finding:
    now = "group" if flag.values[0].lower() == "true" else "none"
    return Finding(
        recipe.path,
        flag.line,
        PROBLEM,
        "removed-value",
        f"--scale_rewards {flag.values[0]} is `{now}` since ms-swift 3.10.0 "
        "(choices: group, batch, none, gdpo)",
        Edit(flag.name, flag.line, values=(now,)),
    )


def _new_defaults(recipe: Recipe, oldest: tuple[int, ...]) -> Iterator[Finding]:
    for since, name, before, now in NEW_DEFAULTS:
        if _version(since) >= oldest and recipe.lacks(name):
            yield Finding(
                recipe.path,
                recipe.line,
                NOTE,
                "new-default",
                f"this recipe is older than ms-swift {'.'.join(map(str, oldest))}; the default of "
                f"--{name} has changed since: {before} became {now} in {since}",
            )
