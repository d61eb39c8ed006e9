"""The peak of a training step under DeepSpeed ZeRO-3, on as many CPU processes as torchrun starts.

DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 zero3_peak.py CASE.json
-> on its last line, the most bytes that any process held

CASE.json holds a configuration and the fields of a BatchShape. DeepSpeed's settings are those of
ms-swift's zero3.json, its "auto" sizes as transformers sets them.
"""

import json
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from real_memory import alive_over_time, real_inputs, real_loss, real_model
from torch.profiler import ProfilerActivity, profile

from swift_vlrft.memory.stages import BatchShape


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text())
    shape = BatchShape(**{**case["shape"], "grids": tuple(map(tuple, case["shape"]["grids"]))})
    hidden = case["config"]["text_config"]["hidden_size"]
    settings = {
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": False,
            "contiguous_gradients": True,
            "sub_group_size": 1e9,
            "reduce_bucket_size": hidden**2,
            "stage3_prefetch_bucket_size": int(0.9 * hidden**2),
            "stage3_param_persistence_threshold": 10 * hidden,
            "stage3_max_live_parameters": 1e9,
            "stage3_max_reuse_distance": 1e9,
        },
        "bf16": {"enabled": True},
        "zero_force_ds_cpu_optimizer": False,
        "train_micro_batch_size_per_gpu": shape.batch,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
    }
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        model = real_model(case["config"], shape)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=False)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        inputs = real_inputs(case["config"], shape)
        with torch.profiler.record_function("ready"):
            pass
        for _ in range(3):  # one step, which makes the moments, and a pass beside them
            loss = real_loss(engine, inputs, shape)
            engine.backward(loss)
            engine.step()
            del loss
    events = recorded.profiler.kineto_results.events()
    ready = min(event.start_ns() for event in events if event.name() == "ready")
    given = sum(x.numel() * x.element_size() for x in inputs.values() if torch.is_tensor(x))
    peak = max(alive for moment, alive in alive_over_time(recorded) if moment >= ready) - given
    highest = torch.tensor([peak])
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(int(highest))


if __name__ == "__main__":
    main()
