"""Two processes train tiny GLM-4v: the first sees an image at each step, the other never one.

torchrun --nproc_per_node 2 two_processes.py ddp|zero3
-> the first prints, as JSON on its last line, what both lost at every step
"""

import json
import sys
from datetime import timedelta

import torch
from chatglm4v.reading import image_row, lively_model, pixels
from torch import distributed

RATE, STEPS = 0.01, 3
ROWS = (image_row([5, 6], [12, 13, 14, 15]), [7, 8, 9, 10])
ZERO3 = {
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "train_micro_batch_size_per_gpu": 1,
    "zero_force_ds_cpu_optimizer": False,
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 0.0,
}


def inputs_of(rank: int) -> dict:
    ids = torch.tensor([ROWS[rank]])
    labels = torch.where(ids < 300, ids, -100)
    return {"input_ids": ids, "labels": labels, "pixel_values": pixels(1) if rank == 0 else None}


def train(kind: str, rank: int) -> list[float]:
    """The loss of every step and of an evaluation. What it builds ends with it, while both
    processes are there: gloo may wait forever for one that has left.
    """
    model, inputs, losses = lively_model().train(), inputs_of(rank), []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    if kind == "zero3":
        import deepspeed
        from transformers.integrations import HfDeepSpeedConfig

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # see support/cpu_engines.py
        deepspeed.init_distributed("gloo")
        _keep = HfDeepSpeedConfig(ZERO3)  # alive as long as transformers shall know of ZeRO-3
        model, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO3)
        backward, stepping = model.backward, model
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
        backward, stepping = torch.Tensor.backward, optimizer
    for _ in range(STEPS):
        model.zero_grad()
        loss = model(**inputs).loss
        backward(loss)
        stepping.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(model(**inputs).loss.item())
        length = {"max_new_tokens": 2 + rank, "do_sample": False, "synced_gpus": kind == "zero3"}
        model.module.generate(inputs["input_ids"], pixel_values=inputs["pixel_values"], **length)
    return losses


if __name__ == "__main__":
    distributed.init_process_group("gloo", timeout=timedelta(seconds=1800))
    of_both = [None, None]
    distributed.all_gather_object(of_both, train(sys.argv[1], distributed.get_rank()))
    if distributed.get_rank() == 0:
        print(json.dumps(of_both), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()
