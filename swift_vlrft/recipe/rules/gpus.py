"""Do the GPUs that a script names for `swift` fit its processes?

NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1,2,3: ms-swift would give each process two, and DeepSpeed
and vLLM refuse that.

The conditions are those of ms-swift 4.6.0 (is_mp in utils/env.py, sft_args.py, rlhf_args.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from swift_vlrft.recipe.rules.finding import Finding, problem
from swift_vlrft.recipe.run import Run

A_GPU = re.compile(r"\d+|(?:GPU|MIG)-\S+")


def visible_gpus(run: Run) -> Iterator[Finding]:
    visible = run.variable("CUDA_VISIBLE_DEVICES")
    if not run.trains or run.variable("SWIFT_SINGLE_DEVICE_MODE") == "1":
        return
    processes = run.count("NPROC_PER_NODE") or 1
    listed = [name.strip() for name in (visible or "").split(",") if name.strip()]
    if len(set(listed)) < len(listed):
        text = f"CUDA_VISIBLE_DEVICES={visible} names a GPU twice: CUDA then shows none"
        yield problem(run, run.recipe.line, "visible-gpus", text)
        return
    # As in CUDA, the first invalid entry ends the list.
    names = [*takewhile(A_GPU.fullmatch, listed)]
    count = len(names)
    if not count or count == processes:
        return
    if count % processes:
        why = f'ms-swift ends with "n_gpu: {count}, local_world_size: {processes}"'
    elif refuses := _refuses(run):
        why = f'ms-swift ends with "{refuses} is not compatible with `device_map`"'
    else:
        return
    remedy = f"Set NPROC_PER_NODE={count}"
    if count > processes:
        remedy += f", or CUDA_VISIBLE_DEVICES={','.join(names[:processes])}"
    if run.recipe.launcher == "python":
        remedy = f"Start it by `swift {run.command}`, which reads NPROC_PER_NODE"
    text = f"NPROC_PER_NODE={processes} for {count} GPUs (CUDA_VISIBLE_DEVICES={visible}): {why}. "
    yield problem(run, run.recipe.line, "visible-gpus", text + remedy)


def _refuses(run: Run) -> str:
    """What ends the run if a process has several GPUs, in ms-swift's words."""
    if "deepspeed" in run.given:
        return "DeepSpeed"
    kind = run.text("rlhf_type") or ""
    if run.command == "rlhf" and kind in ("grpo", "gkd") and run.true("use_vllm"):
        return f"{kind.upper()} with vLLM"
    return "FSDP2" if "fsdp" in run.given else ""
