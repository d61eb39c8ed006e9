"""What a run needs where there is no GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import wraps
from typing import Any

import torch


def prepare_cpu(flags: Sequence[str]) -> None:
    """DeepSpeed wants a process group before anything else."""
    if "--deepspeed" in flags and "RANK" in os.environ:
        import deepspeed

        deepspeed.init_distributed("gloo")
    if importlib.util.find_spec("vllm"):
        prepare_vllm()


def prepare_vllm() -> None:
    """Its CPU kernels keep a packed copy of the weights, into which no synchronisation can load.
    And it multiplies the B of an adapter by the adapter's scale in place: on a GPU that is its
    copy in the CPU's memory, on a CPU the weight that ms-swift handed over, which is the
    trainer's own.
    """
    import vllm._custom_ops
    from vllm.lora.lora_model import LoRAModel

    vllm._custom_ops._supports_onednn = False
    torch.cpu._is_amx_tile_supported = lambda: False
    adapters: Any = LoRAModel
    load = adapters.from_lora_tensors

    @wraps(load)
    def of_copies(*, tensors: dict[str, Any], **more: Any) -> Any:
        return load(tensors={name: tensor.clone() for name, tensor in tensors.items()}, **more)

    adapters.from_lora_tensors = of_copies
