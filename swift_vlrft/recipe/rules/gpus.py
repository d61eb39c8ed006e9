"""Do the GPUs that `swift` sees fit the processes it starts?

NPROC_PER_NODE=4 on a node of 8 GPUs: ms-swift would give each process two, and DeepSpeed and vLLM
refuse that. CUDA_VISIBLE_DEVICES=0,1,2,3 hides the rest.

The conditions are those of ms-swift 4.6.0 (is_mp in utils/env.py, sft_args.py, rlhf_args.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from swift_vlrft.recipe.gpus import gpus_here
from swift_vlrft.recipe.reader import Recipe
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding

A_GPU = re.compile(r"\d+|(?:GPU|MIG)-\S+")
DECIDES = ("NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES", "SWIFT_SINGLE_DEVICE_MODE")


def visible_gpus(recipe: Recipe) -> Iterator[Finding]:
    if recipe.hides(*DECIDES):
        return
    said = recipe.variable("NPROC_PER_NODE", "1") or ""
    said = (recipe.launched[0] if recipe.launcher else said).strip()
    alone = recipe.variable("SWIFT_SINGLE_DEVICE_MODE") == "1"
    if not recipe.trains or alone or not said.isdigit() or int(said) < 1:
        return
    processes = int(said)
    visible = recipe.variable("CUDA_VISIBLE_DEVICES")
    if visible is None:
        count, level = gpus_here(), NOTE  # the recipe may be for another machine
        seen = f"this machine shows {count} GPUs (CUDA_VISIBLE_DEVICES is not set)"
    else:
        count, level = named(visible), PROBLEM
        seen = f"CUDA_VISIBLE_DEVICES={visible} names {count} GPU" + "s" * (count != 1)
    if not count or count == processes:
        return
    refuses = _refuses(recipe)
    if count % processes:
        why = f'ms-swift ends with "n_gpu: {count}, local_world_size: {processes}"'
    elif refuses:
        why = (
            f'ms-swift would give each process {count // processes}, and ends with "{refuses} is '
            'not compatible with `device_map`"'
        )
    else:
        return
    remedy = f"Set NPROC_PER_NODE={count}"
    if count > processes:
        names = map(str, range(count)) if visible is None else visible.split(",")
        remedy += f", or CUDA_VISIBLE_DEVICES={','.join([*names][:processes])}"
    yield Finding(
        recipe.path,
        recipe.line,
        level,
        "visible-gpus",
        f"NPROC_PER_NODE={processes}, and {seen}: {why}. {remedy}",
    )


def named(visible: str) -> int:
    """How many GPUs a list names; as in CUDA, the first that is none ends it."""
    count = 0
    for name in visible.split(","):
        if not A_GPU.fullmatch(name.strip()):
            break
        count += 1
    return count


def _refuses(recipe: Recipe) -> str:
    """What ends the run where a process has several GPUs, as ms-swift names it."""
    alone = recipe.truth("use_ray") is False
    if recipe.flag("deepspeed") and alone:
        return "DeepSpeed"
    if recipe.truth("use_vllm") and recipe.get("rlhf_type") in ("grpo", "gkd"):
        return f"{(recipe.get('rlhf_type') or '').upper()} with vLLM"
    if recipe.flag("fsdp") and alone:
        return "FSDP2"
    return ""
