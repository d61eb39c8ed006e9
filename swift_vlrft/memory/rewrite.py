"""A recipe with other flags, and one from nothing for a model, a task and cards.

changed_text(recipe, {"MAX_PIXELS": "401408", "gradient_checkpointing": "true"})
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.memory.models import read_model
from swift_vlrft.recipe.edit import with_edit
from swift_vlrft.recipe.reader import CONFIGURATION, Recipe, RecipeError, read_text
from swift_vlrft.recipe.rules.finding import Edit, Variable

PLUGIN = '"$(vlrft plugin)"'

REWARDS = {
    "detection": ("vlrft_detection_iou", "vlrft_detection_format"),
    "grounding": ("vlrft_grounding_iou", "vlrft_format"),
    "classification": ("vlrft_classification", "vlrft_format"),
    "counting": ("vlrft_counting", "vlrft_format"),
}

COMPLETION = {"detection": 1024, "grounding": 512, "classification": 512, "counting": 512}


IMAGE_LIMITS = ("MAX_PIXELS", "IMAGE_MAX_TOKEN_NUM", "max_pixels", "model_kwargs")
"""What `swift rollout` has to see as the trainer does: both encode the same images."""

PLANNED = re.compile(
    r"NPROC_PER_NODE|NNODES|CUDA_VISIBLE_DEVICES|M(?:AX|IN)_PIXELS|IMAGE_M(?:AX|IN)_TOKEN_NUM"
    r"|VLRFT_SHARED_PREFIX\w*"
)
"""Variables that a plan reads in the environment of the command."""

OF_EVERYBODY = ("HOME", "PATH", "PWD", "OLDPWD", "USER", "LOGNAME", "SHELL", "TMPDIR", "_")
OWN_PLACE = re.compile(r"BASH_SOURCE|(?:dirname|realpath|readlink)\b[^\n]*\$\{?0|\$\{0[%#/]")


def changed_text(recipe: Recipe, flags: Mapping[str, str]) -> str:
    """The text of ``recipe`` with ``flags`` in place of its own; capitals are variables.

    CannotEdit where one cannot be changed alone.
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
        if name == "NNODES":
            text = _asking(text, path)
    return text


def copied(recipe: Recipe, text: str, out: Path) -> str:
    """``text``, a changed ``recipe``, as it may be written to ``out``; ValueError where it would be
    another recipe there.
    """
    kinds = [path.suffix if path.suffix in CONFIGURATION else ".sh" for path in (recipe.path, out)]
    if len({kind.replace(".yml", ".yaml") for kind in kinds}) > 1:
        raise ValueError(
            f"--apply {out}: {recipe.path} is another kind of file; name it *{kinds[0]}"
        )
    code = re.sub(r"(?m)^\s*#.*", "", text)
    place = OWN_PLACE.search(code)
    if kinds[0] == ".sh" and place and out.parent.resolve() != recipe.path.parent.resolve():
        line = code[: place.start()].count("\n") + 1
        raise ValueError(
            f"{recipe.path}:{line}: the script looks for files beside itself ({place[0]}); write "
            f"the changed one beside it: --apply {recipe.path.with_name(out.name)}"
        )
    try:
        read_text(text, out)
    except RecipeError as error:
        raise ValueError(
            f"--apply {out}: the recipe would not be found whole there: {error}"
        ) from None
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
    """Variables of the caller's environment that made ``recipe`` what it is."""
    found = {}
    for name, value in os.environ.items():
        planned = PLANNED.fullmatch(name)
        if name in OF_EVERYBODY or not (planned or re.search(rf"\b{name}\b", recipe.text)):
            continue
        without = {other: text for other, text in os.environ.items() if other != name}
        try:
            (other,) = [
                command
                for command in read_text(recipe.text, recipe.path, without)
                if (command.command, command.span) == (recipe.command, recipe.span)
            ]
        except ValueError:
            found[name] = value
            continue
        flags = [[(f.name, f.values) for f in r.flags] for r in (recipe, other)]
        names = [n for n in (*recipe.environment, *other.environment) if n != name or planned]
        if flags[0] != flags[1] or any(
            recipe.environment.get(n) != other.environment.get(n) for n in names
        ):
            found[name] = value
    return found


def _asking(text: str, path: Path) -> str:
    """For several machines: what differs between them is asked for at the top of the script."""
    if path.suffix in CONFIGURATION:
        return text  # it is started with them in front
    asked = _from_the_caller(text)
    if not asked:
        return text
    first = re.compile(r"(?:\ufeff?[ \t]*(?:#[^\n]*)?\r?\n)*").match(text)
    at = first.end() if first else 0
    return text[:at] + "\n".join([*asked, ""]) + text[at:]


def _visible(cards: str) -> str:
    """Which cards a machine gives is the caller's choice; without one ms-swift would put a model
    that has more cards than processes on several.
    """
    return f"export CUDA_VISIBLE_DEVICES=${{CUDA_VISIBLE_DEVICES-{shlex.quote(cards)}}}"


def _from_the_caller(script: str) -> list[str]:
    """What differs from machine to machine, asked for in one line where it is missing; ms-swift
    hands all of it to torchrun (swift/cli/main.py: get_torchrun_args).
    """
    asked = {
        "NODE_RANK": "0 on the first machine, 1 on the second",
        "MASTER_ADDR": "address of the first machine",
    }
    asked = {name: said for name, said in asked.items() if name not in script}
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
    # One card too: DeepSpeed keeps 32-bit copies of what trains in bfloat16.
    sharding = "zero3 --move_model_batches 16" if processes * nodes > 1 else "zero2"
    nproc = f"export NPROC_PER_NODE={processes}\n" if processes * nodes > 1 else ""
    machines, where = "", f"{processes} card{'s' * (processes > 1)}"
    if nodes > 1:
        where = f"{nodes} machines of {processes} cards"
        lines = [
            *_from_the_caller(""),
            "export MASTER_PORT=${MASTER_PORT:-29500}",
            f"export NNODES={nodes}",
        ]
        machines = "\n".join(lines) + "\n"
    visible = _visible(",".join(map(str, range(processes)))) + "\n"
    pixels, limit = "export MAX_PIXELS=602112\n", ""
    family = read_model(model).family
    if family and family.images and not family.images.from_environment:
        pixels, limit = "", " --max_pixels 602112"
    data = dataset or "DATASET"
    boxed = task in ("detection", "grounding") and family and family.box_format == "pixels"
    if boxed and "#" not in data and not data.endswith(tuple(f":{frame}" for frame in BOX_FORMATS)):
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
        f"  --deepspeed {sharding} \\\n"
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
