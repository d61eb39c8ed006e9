"""Two processes train tiny GLM-4v: the first sees an image at each step, the other never one.

torchrun --nproc_per_node 2 glm4v_two_processes.py ddp|zero3
-> the first prints, as JSON on its last line, what both lost at every step
"""

import json
import sys
from datetime import timedelta

import torch
from support.glm4v_reading import image_row, lively_model, pixels
from torch import distributed

RATE, STEPS = 0.01, 3
ROWS = (image_row([5, 6], [12, 13, 14, 15]), [7, 8, 9, 10])


def inputs_of(rank: int) -> dict:
    ids = torch.tensor([ROWS[rank]])
    labels = torch.where(ids < 300, ids, -100)
    return {"input_ids": ids, "labels": labels, "pixel_values": pixels(1) if rank == 0 else None}


def zero3(model):
    import deepspeed
    from transformers.integrations import HfDeepSpeedConfig

    settings = {
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "train_micro_batch_size_per_gpu": 1,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 0.0,
    }
    keep = HfDeepSpeedConfig(settings)  # alive as long as ZeRO-3 shall be known to transformers
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    return engine, engine.backward, engine.step, keep


def ddp(model):
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    return wrapped, torch.Tensor.backward, step, None


def train(kind: str, rank: int) -> list[float]:
    """The loss of every step and of an evaluation. What it builds ends with it, while both
    processes are there: gloo may wait forever for one that has left.
    """
    model, backward, step, _keep = {"ddp": ddp, "zero3": zero3}[kind](lively_model().train())
    losses = []
    for _ in range(STEPS):
        loss = model(**inputs_of(rank)).loss
        backward(loss)
        step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(model(**inputs_of(rank)).loss.item())
        ids = inputs_of(rank)["input_ids"]
        given = {"pixel_values": inputs_of(rank)["pixel_values"], "synced_gpus": kind == "zero3"}
        model.module.generate(ids, max_new_tokens=2 + rank, do_sample=False, **given)
    return losses


def main() -> None:
    kind = sys.argv[1]
    distributed.init_process_group("gloo", timeout=timedelta(seconds=30))
    if kind == "zero3":
        import deepspeed

        deepspeed.init_distributed("gloo")
    rank = distributed.get_rank()
    losses = train(kind, rank)
    both = [None, None]
    distributed.all_gather_object(both, losses)
    if rank == 0:
        print(json.dumps(both), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
