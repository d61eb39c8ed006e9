"""A recipe with other flags, as a script; and one from nothing for a model, a task and cards.

changed_script(recipe, {"MAX_PIXELS": "401408", "gradient_checkpointing": "true"})
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from swift_vlrft.recipe import Recipe, read_recipe
from swift_vlrft.shipped import shipped_file

PLUGIN = '"$(vlrft plugin)"'

REWARDS = {
    "detection": ("vlrft_detection_iou", "vlrft_detection_format"),
    "grounding": ("vlrft_grounding_iou", "vlrft_format"),
    "classification": ("vlrft_classification", "vlrft_format"),
    "counting": ("vlrft_counting", "vlrft_format"),
}

COMPLETION = {"detection": 1024, "grounding": 512, "classification": 512, "counting": 512}


def changed_script(recipe: Recipe, flags: Mapping[str, str], why: str = "") -> str:
    """The command of ``recipe`` with ``flags`` in place of its own; capitals go to the environment.

    Only variables that the recipe sets are written, not the caller's.
    """
    own = read_recipe(recipe.path, environment={})
    environment = dict(own.environment) | {k: v for k, v in flags.items() if k.isupper()}
    lines = ["#!/usr/bin/env bash", f"# {recipe.path.name}, changed by vlrft plan: {why}".rstrip()]
    lines += ["set -euo pipefail", ""]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    words = [" ".join(own.command)]
    for flag in {flag.name: flag for flag in own.flags if flag.name}.values():
        if flag.name in flags:
            continue
        values = [shlex.quote(value) for value in flag.values]
        if flag.name == "external_plugins":
            ours = str(shipped_file("plugins", "vlrft.py"))
            values = [PLUGIN if value == ours else shlex.quote(value) for value in flag.values]
        words.append(f"--{flag.name} {' '.join(values)}".rstrip())
    words += [f"--{name} {shlex.quote(v)}" for name, v in flags.items() if not name.isupper()]
    command = " \\\n  ".join([*words, '"$@"'])
    return "\n".join([*lines, command]) + "\n"


def new_recipe(model: str, task: str, processes: int, dataset: str | None) -> str:
    """A recipe to begin with: full tuning, vLLM beside the trainer, ZeRO-3 on several cards."""
    if task not in REWARDS:
        raise ValueError(f"--task {task}: known tasks are {', '.join(REWARDS)}")
    rewards = " ".join(REWARDS[task])
    sharding = "  --deepspeed zero3 --move_model_batches 16 \\\n" if processes > 1 else ""
    nproc = f"export NPROC_PER_NODE={processes}\n" if processes > 1 else ""
    data = shlex.quote(dataset) if dataset else "DATASET"
    return (
        "#!/usr/bin/env bash\n"
        f"# {task} with {model} on {processes} cards, written by vlrft plan.\n"
        "set -euo pipefail\n\n"
        f"{nproc}export MAX_PIXELS=602112\n"
        "swift rlhf --rlhf_type grpo \\\n"
        f"  --model {shlex.quote(model)} \\\n"
        f"  --external_plugins {PLUGIN} \\\n"
        f"  --dataset {data} \\\n"
        f"  --reward_funcs {rewards} \\\n"
        "  --tuner_type full --torch_dtype bfloat16 \\\n"
        f"{sharding}"
        "  --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 \\\n"
        "  --vllm_max_model_len 4096 --sleep_level 1 \\\n"
        "  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\\n"
        "  --num_generations 8 --max_length 2048 --truncation_strategy delete \\\n"
        f"  --max_completion_length {COMPLETION[task]} \\\n"
        "  --beta 0.04 --learning_rate 1e-6 --save_steps 100 --log_completions true \\\n"
        f"  --output_dir output/{task} \\\n"
        '  "$@"\n'
    )


def write_script(path: Path, text: str) -> None:
    """Beside, then renamed; executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as new:
        new.write(text)
    os.chmod(new.name, 0o755)
    os.replace(new.name, path)
