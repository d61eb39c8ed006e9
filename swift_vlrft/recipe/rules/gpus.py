"""Do the GPUs that `swift` sees fit its processes, and are the engine's others?

NPROC_PER_NODE=4 on a node of 8 GPUs: ms-swift would give each process two, and DeepSpeed and vLLM
refuse that. CUDA_VISIBLE_DEVICES=0,1,2,3 hides the rest.

The conditions are those of ms-swift 4.6.0 (is_mp in utils/env.py, sft_args.py, rlhf_args.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product, takewhile

from swift_vlrft.recipe.gpus import gpus_here
from swift_vlrft.recipe.rules.batches import vllm_mode
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding, problem
from swift_vlrft.recipe.run import NoValue, Run

HERE = {"127.0.0.1", "localhost", "0.0.0.0", "::1"}
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
    names = named(visible) if visible is not None else [str(n) for n in range(gpus_here())]
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
    seen = "of this machine" if visible is None else f"CUDA_VISIBLE_DEVICES={visible}"
    text = f"NPROC_PER_NODE={processes} for {count} GPUs ({seen}): {why}. {remedy}"
    level = NOTE if visible is None else PROBLEM  # the recipe may be for another machine
    yield problem(run, run.recipe.line, "visible-gpus", text, level=level)


def named(visible: str) -> list[str]:
    """Return the GPUs that a list names; as in CUDA, the first invalid entry ends it."""
    return list(takewhile(A_GPU.fullmatch, map(str.strip, visible.split(","))))


def _refuses(run: Run) -> str:
    """What ends the run if a process has several GPUs, in ms-swift's words."""
    if "deepspeed" in run.given:
        return "DeepSpeed"
    kind = run.text("rlhf_type") or ""
    if run.command == "rlhf" and kind in ("grpo", "gkd") and run.true("use_vllm"):
        return f"{kind.upper()} with vLLM"
    return "FSDP2" if "fsdp" in run.given else ""


def together(runs: Iterable[Run]) -> Iterator[Finding]:
    """Find what the commands of a script do to one another."""
    runs = [*runs]
    served = [run for run in runs if _is_served(run)]
    rollouts = [run for run in runs if run.command == "rollout"]
    for rollout, run in product(rollouts, served):
        with suppress(NoValue):
            if str(rollout.integer("port")) in _servers(run):
                yield from _pair(rollout, run)


def _is_served(run: Run) -> bool:
    with suppress(NoValue):
        return vllm_mode(run) == "server"
    return False


def _servers(run: Run) -> tuple[str, ...]:
    """The ports of the servers on this machine."""
    pairs = zip(run.texts("vllm_server_host"), run.texts("vllm_server_port"), strict=False)
    return tuple(port for host, port in pairs if host in HERE)


def _gpus(run: Run, count: int) -> set[str]:
    visible = run.variable("CUDA_VISIBLE_DEVICES")
    return set((named(visible) if visible is not None else [*map(str, range(count))])[:count])


def _pair(rollout: Run, run: Run) -> Iterator[Finding]:
    engine = rollout.integer("vllm_tensor_parallel_size")
    engine *= rollout.integer("vllm_data_parallel_size")
    if both := _gpus(rollout, engine) & _gpus(run, run.count("NPROC_PER_NODE") or 1):
        text = (
            f"GPU {', '.join(sorted(both))} is the engine's, too (line {rollout.recipe.line}): "
            "both take its memory, and NCCL sends no weights from a GPU to itself (`Duplicate GPU "
            "detected`). Give them different CUDA_VISIBLE_DEVICES, or --vllm_mode colocate"
        )
        yield problem(run, run.recipe.line, "server-gpus", text)
