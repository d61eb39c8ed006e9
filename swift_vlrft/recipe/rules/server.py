"""Check a `swift rollout` against the training that it serves, in the same script.

CUDA_VISIBLE_DEVICES=0 swift rollout ... &   CUDA_VISIBLE_DEVICES=0,1 swift rlhf ...   GPU 0 twice
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product

from swift_vlrft.recipe.rules.batches import vllm_mode
from swift_vlrft.recipe.rules.finding import Finding, problem
from swift_vlrft.recipe.rules.gpus import named
from swift_vlrft.recipe.run import NoValue, Run

HERE = {"127.0.0.1", "localhost", "0.0.0.0", "::1"}


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
    rank, most = run.integer("lora_rank"), rollout.integer("vllm_max_lora_rank")
    if rollout.true("vllm_enable_lora") and run.text("tuner_type") == "lora" and rank > most:
        text = f"--lora_rank {rank} exceeds the engine's --vllm_max_lora_rank {most}"
        text += f" under --vllm_enable_lora: add --vllm_max_lora_rank {rank}"
        yield problem(rollout, "vllm_enable_lora", "server-lora", text)
