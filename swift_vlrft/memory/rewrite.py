"""A recipe with other flags, as a script; and one from nothing for a model, a task and cards.

changed_script(recipe, {"MAX_PIXELS": "401408", "gradient_checkpointing": "true"})
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from swift_vlrft.coordinates import FAMILIES, FRAMES
from swift_vlrft.memory.models import read_model
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
    if environment.get("NNODES", "1") != "1":
        lines += _from_the_caller(environment)
    lines += [
        _visible(value) if name == "CUDA_VISIBLE_DEVICES" else f"export {name}={shlex.quote(value)}"
        for name, value in environment.items()
    ]
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


def _visible(cards: str) -> str:
    """Which cards a machine gives is the caller's choice; without one ms-swift would put a model
    that has more cards than processes on several.
    """
    return f"export CUDA_VISIBLE_DEVICES=${{CUDA_VISIBLE_DEVICES-{shlex.quote(cards)}}}"


def _from_the_caller(environment: Mapping[str, str]) -> list[str]:
    """What differs from machine to machine, asked for in one line where it is missing; ms-swift
    hands all of it to torchrun (swift/cli/main.py: get_torchrun_args).
    """
    asked = {
        "NODE_RANK": "0 on the first machine, 1 on the second",
        "MASTER_ADDR": "address of the first machine",
    }
    asked = {name: said for name, said in asked.items() if name not in environment}
    if not asked:
        return []
    lines = [f': "${{{name}:?{said}}}"' for name, said in asked.items()]
    return [*lines, f"export {' '.join(asked)}"]


def new_recipe(
    model: str, task: str, processes: int, dataset: str | None, *, nodes: int = 1
) -> str:
    """A recipe to begin with: full tuning, vLLM beside the trainer, ZeRO-3 on several cards.

    ``processes`` is the cards of one machine, of which there are ``nodes``.
    """
    if task not in REWARDS:
        raise ValueError(f"--task {task}: known tasks are {', '.join(REWARDS)}")
    rewards = " ".join(REWARDS[task])
    sharding = "  --deepspeed zero3 --move_model_batches 16 \\\n" if processes * nodes > 1 else ""
    nproc = f"export NPROC_PER_NODE={processes}\n" if processes * nodes > 1 else ""
    machines, where = "", f"{processes} cards"
    if nodes > 1:
        where = f"{nodes} machines of {processes} cards"
        lines = [
            *_from_the_caller({}),
            "export MASTER_PORT=${MASTER_PORT:-29500}",
            f"export NNODES={nodes}",
        ]
        machines = "\n".join(lines) + "\n"
    visible = _visible(",".join(map(str, range(processes)))) + "\n"
    pixels, limit = "export MAX_PIXELS=602112\n", ""
    family = FAMILIES.get(read_model(model).type)
    if family and not family.from_environment:
        pixels, limit = "", " --max_pixels 602112"
    data = dataset or "DATASET"
    boxed = task in ("detection", "grounding") and family and family.native_frame == "pixels"
    if boxed and "#" not in data and not data.endswith(tuple(f":{frame}" for frame in FRAMES)):
        data += ":pixels"  # the frame that the model was trained on
    data = shlex.quote(data)
    return (
        "#!/usr/bin/env bash\n"
        f"# {task} with {model} on {where}, written by vlrft plan.\n"
        "set -euo pipefail\n\n"
        f"{machines}{nproc}{visible}{pixels}"
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
        f"  --num_generations 8 --num_generations_eval 1 --max_length 2048{limit} \\\n"
        "  --truncation_strategy delete \\\n"
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
