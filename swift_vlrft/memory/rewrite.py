"""A recipe with other flags, and a new one for a model, a task and GPUs.

changed_text(recipe, {"MAX_PIXELS": "401408", "gradient_checkpointing": "true"})
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from swift_vlrft.families.resize import Squash
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.memory.models import read_model
from swift_vlrft.recipe.edit import with_edit
from swift_vlrft.recipe.reader import CONFIGURATION, Recipe, RecipeError, read_text
from swift_vlrft.recipe.rules.finding import Edit, Variable

TASKS = {
    "detection": ("vlrft_detection_iou vlrft_detection_format", 1024),
    "grounding": ("vlrft_grounding_iou vlrft_format", 512),
    "classification": ("vlrft_classification vlrft_format", 512),
    "counting": ("vlrft_counting vlrft_format", 512),
}
"""Rewards, and tokens for a completion."""

IMAGE_LIMITS = ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM", "max_pixels", "model_kwargs")
"""What `swift rollout` needs as the trainer does: both encode the same images."""

PLANNED = re.compile(
    r"NPROC_PER_NODE|NNODES|CUDA_VISIBLE_DEVICES|M(?:AX|IN)_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|VLRFT_SHARED_PREFIX\w*"
)
"""Variables that a plan reads in the environment of the command."""

OF_EVERYBODY = ("HOME", "PATH", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "_")
OWN_PLACE = re.compile(r"BASH_SOURCE|(?:dirname|realpath|readlink)\b[^\n]*\$\{?0|\$\{0[%#/]")


def changed_text(recipe: Recipe, flags: Mapping[str, str]) -> str:
    """The text of ``recipe`` with these ``flags``; names in capitals are variables.

    CannotEdit if one cannot be changed alone.
    """
    text, path = recipe.text, recipe.path
    commands = read_text(text, path)
    trains = next((i for i, command in enumerate(commands) if command.trains), 0)
    for name, value in flags.items():
        edit: Edit | Variable = Variable(name, value)
        if not name.isupper():
            old = name == "tuner_type" and not recipe.flag(name) and recipe.flag("train_type")
            edit = Edit("train_type" if old else name, values=(value,))
        for place, command in enumerate(commands):
            serves = command.command[-1] == "rollout" and name in IMAGE_LIMITS
            if place == trains or serves:
                text = with_edit(text, path, edit, command=place)
    if "NNODES" in flags and path.suffix not in CONFIGURATION:  # that is started with them in front
        first = re.match(r"(?:\ufeff?[ \t]*(?:#[^\n]*)?\r?\n)*", text)
        at = first.end() if first else 0
        text = text[:at] + "".join(_required(text)) + text[at:]
    return text


def copied(recipe: Recipe, text: str, out: Path) -> str:
    """``text``, a changed ``recipe``, as it may be written to ``out``; ValueError if it would be a
    different recipe there.
    """
    kinds = [path.suffix if path.suffix in CONFIGURATION else ".sh" for path in (recipe.path, out)]
    if len({kind.replace(".yml", ".yaml") for kind in kinds}) > 1:
        raise ValueError(f"{out}: {recipe.path} is another kind of file; name it *{kinds[0]}")
    code = re.sub(r"(?m)^\s*#.*", "", text)
    place = OWN_PLACE.search(code)
    if kinds[0] == ".sh" and place and out.parent.resolve() != recipe.path.parent.resolve():
        line = code[: place.start()].count("\n") + 1
        raise ValueError(
            f"{recipe.path}:{line}: the script looks for files beside itself ({place[0]}); write "
            f"the changed one beside it: {recipe.path.with_name(out.name)}"
        )
    try:
        read_text(text, out)
    except RecipeError as error:
        raise ValueError(f"{out}: the recipe cannot be read from there: {error}") from None
    return text


def remarked(text: str, path: Path, remark: str) -> str:
    """``text`` with a comment in its first line, or below `#!`; JSON has none."""
    if path.suffix == ".json":
        return text
    mark = text.startswith("\ufeff")
    at = text.find("\n") + 1 if text.startswith("#!", mark) else int(mark)
    new_line = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:at]}# {' '.join(remark.split())}{new_line}{text[at:]}"


def callers_part(recipe: Recipe) -> dict[str, str]:
    """Variables of the caller's environment that ``recipe`` depends on."""
    found = {}
    for name, value in os.environ.items():
        planned = PLANNED.fullmatch(name)
        if name in OF_EVERYBODY or not (planned or re.search(rf"\b{name}\b", recipe.text)):
            continue
        without = {other: text for other, text in os.environ.items() if other != name}
        ignored = set() if planned else {name}
        try:
            commands = read_text(recipe.text, recipe.path, without)
        except RecipeError:
            commands = []
        if _reads(recipe, ignored) not in [_reads(command, ignored) for command in commands]:
            found[name] = value
    return found


def _reads(recipe: Recipe, ignored: set[str]) -> object:
    """A command with its flags and environment, without some variables."""
    variables = {k: v for k, v in recipe.environment.items() if k not in ignored}
    return recipe.command, recipe.span, [(f.name, f.values) for f in recipe.flags], variables


def _required(script: str) -> list[str]:
    """Lines that require the variables that differ between nodes, if unset; ms-swift passes all of
    them to torchrun (swift/cli/main.py: get_torchrun_args).
    """
    required = {
        "NODE_RANK": "0 on the first node, 1 on the second",
        "MASTER_ADDR": "address of the first node",
    }
    missing = {name: what for name, what in required.items() if name not in script}
    lines = [f': "${{{name}:?{what}}}"\n' for name, what in missing.items()]
    return [*lines, f"export {' '.join(missing)}\n"] if missing else []


def new_recipe(
    model: str, task: str, processes: int, dataset: str | None, *, nodes: int = 1
) -> str:
    """A recipe to start from: full tuning, vLLM beside the trainer, ZeRO-3 on several GPUs.

    ``processes`` is the number of GPUs of one node, of which there are ``nodes``.
    """
    if task not in TASKS:
        raise ValueError(f"--task {task}: known tasks are {', '.join(TASKS)}")
    rewards, completion = TASKS[task]
    family = read_model(model).family
    in_flag = bool(family and family.images and not family.images.from_environment)
    data = dataset or "DATASET"
    boxed = task in ("detection", "grounding") and family and family.box_format == "pixels"
    if boxed and "#" not in data and not data.endswith(tuple(f":{name}" for name in BOX_FORMATS)):
        data += ":pixels"  # the box format that the model was trained on
    where = f"{processes} GPU{'s' * (processes > 1)}"
    variables = []
    if nodes > 1:
        where = f"{nodes} nodes of {processes} GPUs"
        ports = ["export MASTER_PORT=${MASTER_PORT:-29500}\n", f"export NNODES={nodes}\n"]
        variables += [*_required(""), *ports]
    if processes * nodes > 1:
        variables.append(f"export NPROC_PER_NODE={processes}\n")
    # The caller chooses the GPUs of a node; without a choice ms-swift would spread a model over
    # several GPUs if there are more GPUs than processes.
    visible = shlex.quote(",".join(map(str, range(processes))))
    variables.append(f"export CUDA_VISIBLE_DEVICES=${{CUDA_VISIBLE_DEVICES-{visible}}}\n")
    variables += [] if in_flag else ["export MAX_PIXELS=602112\n"]
    fixed = family is not None and isinstance(family.images, Squash)
    limit = " --max_pixels 602112" if in_flag and not fixed else ""
    # One GPU too: DeepSpeed keeps 32-bit copies of what trains in bfloat16.
    sharding = "zero3 --move_model_batches 16" if processes * nodes > 1 else "zero2"
    return f"""#!/usr/bin/env bash
# {task} with {model} on {where}, written by vlrft recipe new.
set -euo pipefail

{"".join(variables)}swift rlhf --rlhf_type grpo \\
  --model {shlex.quote(model)} \\
  --external_plugins "$(vlrft plugin)" \\
  --dataset {shlex.quote(data)} \\
  --reward_funcs {rewards} \\
  --tuner_type full --torch_dtype bfloat16 \\
  --deepspeed {sharding} \\
  --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 \\
  --vllm_max_model_len 4096 --sleep_level 1 \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\
  --num_generations 8 --num_generations_eval 1 --max_length 2048{limit} \\
  --truncation_strategy delete \\
  --max_completion_length {completion} \\
  --beta 0.04 --learning_rate 1e-6 --save_steps 100 --log_completions true \\
  --output_dir output/{task} \\
  "$@"
"""
