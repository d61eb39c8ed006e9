"""Prepare what a run needs where there is no GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence


def prepare_cpu(flags: Sequence[str]) -> None:
    """Prepare DeepSpeed, which wants a process group first, and vLLM's layers for a CPU."""
    if "--deepspeed" in flags and "RANK" in os.environ:
        import deepspeed

        deepspeed.init_distributed("gloo")
    if importlib.util.find_spec("vllm"):
        keep_weights()


def keep_weights() -> None:
    """Register vLLM's linear layers without packed weights.

    Its CPU kernels put a packed copy in a weight's place, which no synchronisation can load into.
    """
    from vllm.model_executor import custom_op
    from vllm.model_executor.layers import linear

    names = ("Replicated", "ColumnParallel", "MergedColumnParallel", "QKVParallel", "RowParallel")
    for name in (f"{name}Linear" for name in names):
        if name not in custom_op.op_registry_oot:
            # vLLM asks for this attribute; it sets that of MLA's projections itself.
            plain = property(lambda self: self.weight.ndim == 2, lambda self, value: None)
            layer = type(name, (getattr(linear, name),), {"_cpu_skip_gemm_dispatch": plain})
            custom_op.PluggableLayer.register_oot(layer, name=name)
