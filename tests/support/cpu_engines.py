"""What a CPU and a random model need beyond a recipe: passed as a second plugin,
`--external_plugins vlrft.py cpu_engines.py`.

A random model earns nothing, and without spread in a group there is no gradient: every second
completion earns the reward ``coin``. DeepSpeed's accelerator for CPU asks for oneCCL unless its
process group exists, and vLLM's CPU kernels pack linear weights into a form that a weight sync
cannot load into. Neither applies to a GPU.
"""

import importlib.util
import os
import sys
from functools import wraps

from swift.rewards import orms


def coin(completions, **_):
    return [float(i % 2) for i in range(len(completions))]


orms["coin"] = lambda args=None, **_: coin

# A `swift rollout` beside the trainers is no rank of theirs.
if os.environ.get("VLRFT_TEST_DEEPSPEED") == "1" and "RANK" in os.environ:
    from datetime import timedelta
    from types import SimpleNamespace

    import deepspeed
    import torch
    from deepspeed.ops.adam import cpu_adam
    from torch.optim.adamw import adamw

    # Processes of a CPU would talk through an operator that takes a minute of two cores to build.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

    def update(_, step, lr, beta1, beta2, eps, decay, corrected, weights, grad, mean, square):
        state = [weights], [grad], [mean], [square], [], [torch.tensor(step - 1.0)]
        rates = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": decay}
        adamw(*state, **rates, amsgrad=False, maximize=False)

    # Nor is its Adam built for parameters in host memory, which takes two minutes of a core.
    nothing = dict.fromkeys(("create_adam", "destroy_adam"), lambda *_: None)
    built = SimpleNamespace(adam_update=update, **nothing)
    cpu_adam.CPUAdamBuilder = lambda: SimpleNamespace(load=lambda: built)
    # As ms-swift does where it makes the group itself; 18,000,000 s is its default.
    given = sys.argv[-1:0:-1]
    seconds = given[given.index("--ddp_timeout") - 1] if "--ddp_timeout" in given else 18_000_000
    deepspeed.init_distributed("gloo", timeout=timedelta(seconds=int(seconds)))

if os.environ.get("VLRFT_TEST_VLLM") == "1" and importlib.util.find_spec("vllm"):
    import torch
    import vllm._custom_ops
    from vllm.distributed.device_communicators.cpu_communicator import _CPUSHMDistributed
    from vllm.lora.lora_model import LoRAModel

    # Its CPU kernels keep a packed copy of the weights, into which no synchronisation can load.
    vllm._custom_ops._supports_onednn = False
    torch.cpu._is_amx_tile_supported = lambda: False
    # It multiplies the B of an adapter by its scale in place: here that is the trainer's weight.
    load = LoRAModel.from_lora_tensors

    @wraps(load)
    def of_copies(*, tensors, **more):
        return load(tensors={name: tensor.clone() for name, tensor in tensors.items()}, **more)

    LoRAModel.from_lora_tensors = of_copies
    # The memory that tensor-parallel ranks share has one name for all runs of a machine.
    name = _CPUSHMDistributed.make_group_name
    _CPUSHMDistributed.make_group_name = staticmethod(
        lambda group: f"/{os.environ.get('MASTER_PORT')}{name(group).lstrip('/')}"
    )

if os.environ.get("VLRFT_TEST_SERVER") == "1":
    from support import store_communicator

    store_communicator.install()
    if "RANK" not in os.environ:
        # vLLM starts its engine's processes anew on a CPU, without what this file does.
        from vllm.platforms.cpu import CpuPlatform

        check = CpuPlatform.check_and_update_config

        def check_and_fork(config):
            check(config)
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

        CpuPlatform.check_and_update_config = staticmethod(check_and_fork)
