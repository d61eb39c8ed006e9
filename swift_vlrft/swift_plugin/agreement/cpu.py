"""What a run needs where there is no GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence

import torch


def prepare_cpu(flags: Sequence[str]) -> None:
    """DeepSpeed wants a process group before anything else, and vLLM's CPU kernels keep a packed
    copy of the weights, into which no synchronisation can load.
    """
    if "--deepspeed" in flags and "RANK" in os.environ:
        import deepspeed

        deepspeed.init_distributed("gloo")
    if importlib.util.find_spec("vllm"):
        import vllm._custom_ops

        vllm._custom_ops._supports_onednn = False
        torch.cpu._is_amx_tile_supported = lambda: False
