"""Weights from the trainers to `swift rollout` without NCCL, which needs GPUs."""

import contextlib
import os
import sys
from typing import Any


class StoreCommunicator:
    """vLLM's NCCL communicator over the TCP store of the same process group."""

    def __init__(self, group: Any, device: Any) -> None:
        import torch

        self.group, self.rank, self.world_size = group, group.rank, group.world_size
        self.device = torch.device(device)

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        received = self.group.broadcast(tensor, src)
        if self.rank != src:
            tensor.copy_(received)


def install() -> None:
    import swift.arguments.deploy_args as deploy
    import swift.rlhf_trainers.vllm_client as client
    import torch

    if "RANK" not in os.environ:
        deploy.get_device_count = lambda: 1  # the engine's device is the CPU, where 0 are counted
    torch.cpu.device = lambda _: contextlib.nullcontext()  # torch.cuda has it
    for module in (client, sys.modules.get("swift.pipelines.infer.rollout")):
        if module is not None:
            module.PyNcclCommunicator = StoreCommunicator
            module.synchronize = lambda *_: None  # of CUDA's streams
