"""What a CPU needs beyond a recipe: passed as a second plugin, `--external_plugins vlrft.py
cpu_engines.py`.

DeepSpeed's accelerator for CPU asks for oneCCL unless its process group exists, and vLLM's CPU
kernels pack linear weights into a form that a weight sync cannot load into. Neither applies to a
GPU.
"""

import importlib.util
import os

if os.environ.get("VLRFT_TEST_DEEPSPEED") == "1":
    import deepspeed

    deepspeed.init_distributed("gloo")

if os.environ.get("VLRFT_TEST_VLLM") == "1" and importlib.util.find_spec("vllm"):
    import vllm._custom_ops

    vllm._custom_ops._supports_onednn = False

if os.environ.get("VLRFT_TEST_SERVER") == "1":
    import contextlib
    import sys

    import swift.rlhf_trainers.vllm_client as client
    import torch

    class StoreCommunicator:
        """vLLM's NCCL communicator over the TCP store of the same process group."""

        def __init__(self, group, device):
            self.group, self.rank, self.world_size = group, group.rank, group.world_size
            self.device = torch.device(device)

        def broadcast(self, tensor, src, stream=None):
            received = self.group.broadcast(tensor, src)
            if self.rank != src:
                tensor.copy_(received)

    torch.cpu.device = lambda _: contextlib.nullcontext()  # torch.cuda has it
    for module in (client, sys.modules.get("swift.pipelines.infer.rollout")):
        if module is not None:
            module.PyNcclCommunicator = StoreCommunicator
            module.synchronize = lambda *_: None  # of CUDA's streams
