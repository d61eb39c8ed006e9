"""Do the GPUs that `swift` sees fit the processes it starts?

NPROC_PER_NODE=4 on a node of 8 GPUs: ms-swift would give each process two, and DeepSpeed and vLLM
refuse that. CUDA_VISIBLE_DEVICES=0,1,2,3 hides the rest.

The conditions are those of ms-swift 4.6.0 (is_mp in utils/env.py, sft_args.py, rlhf_args.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from swift_vlrft.recipe.gpus import gpus_here
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding, problem
from swift_vlrft.recipe.run import Run

A_GPU = re.compile(r"\d+|(?:GPU|MIG)-\S+")


def visible_gpus(run: Run) -> Iterator[Finding]:
    visible = run.variable("CUDA_VISIBLE_DEVICES")
    if not run.trains or run.variable("SWIFT_SINGLE_DEVICE_MODE") == "1":
        return
    processes = run.count("NPROC_PER_NODE") or 1
    if visible is None:
        count, level = gpus_here(), NOTE  # the recipe may be for another machine
        seen = f"this machine shows {count} GPUs (CUDA_VISIBLE_DEVICES is not set)"
    else:
        count, level = named(visible), PROBLEM
        seen = f"CUDA_VISIBLE_DEVICES={visible} names {count} GPU" + "s" * (count != 1)
    if not count or count == processes:
        return
    if count % processes:
        why = f'ms-swift ends with "n_gpu: {count}, local_world_size: {processes}"'
    elif refuses := _refuses(run):
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
    text = f"NPROC_PER_NODE={processes}, and {seen}: {why}. {remedy}"
    yield problem(run, run.recipe.line, "visible-gpus", text, level=level)


def named(visible: str) -> int:
    """How many GPUs a list names; as in CUDA, the first invalid entry ends it."""
    count = 0
    for name in visible.split(","):
        if not A_GPU.fullmatch(name.strip()):
            break
        count += 1
    return count


def _refuses(run: Run) -> str:
    """What ends the run if a process has several GPUs, in ms-swift's words."""
    alone = not run.true("use_ray")
    if alone and "deepspeed" in run.given:
        return "DeepSpeed"
    kind = run.text("rlhf_type") or ""
    if run.command == "rlhf" and kind in ("grpo", "gkd") and run.true("use_vllm"):
        return f"{kind.upper()} with vLLM"
    return "FSDP2" if alone and "fsdp" in run.given else ""
