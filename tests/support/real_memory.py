"""A real training step of a small model on CPU, and the most that PyTorch's allocator gave out.

python real_memory.py CASE.json
-> on its last line, the peak in bytes of two optimizer steps, weights included

DS_ACCELERATOR=cpu torchrun --nproc_per_node 2 real_memory.py CASE.json
-> the same under DeepSpeed ZeRO-3: the most bytes that any process held

Each in a process of its own: an earlier test in the same one moved the peak by four percent.
CASE.json holds a configuration and the fields of a BatchShape. DeepSpeed's settings are those of
ms-swift's zero3.json, its "auto" sizes as transformers sets them.
"""

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from swift_vlrft.memory.models import makes_known, part_of
from swift_vlrft.memory.stages import BatchShape
from swift_vlrft.memory.tracing import inputs_of


def real_model(config: dict[str, Any], shape: BatchShape) -> torch.nn.Module:
    """The class that transformers builds, with data; checkpointing and adapters as in training."""
    from transformers import AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    makes_known(config)
    values = {name: value for name, value in config.items() if name != "model_type"}
    model = AutoModelForImageTextToText.from_config(
        CONFIG_MAPPING[config["model_type"]](**values), attn_implementation=shape.attention
    )
    model = inner = model.to(getattr(torch, shape.dtype)).train()
    for name, parameter in model.named_parameters():
        llm = part_of(name) == "llm"
        parameter.requires_grad_(shape.lora_rank == 0 and (llm or shape.train_vit))
    if shape.lora_rank:
        from peft import LoraConfig, get_peft_model

        layers = [
            name
            for name, part in model.named_modules()
            if isinstance(part, torch.nn.Linear)
            and part_of(name) == "llm"
            and part is not model.get_output_embeddings()
        ]
        ranks = {"r": shape.lora_rank, "lora_dropout": shape.lora_dropout}
        lora = LoraConfig(target_modules=layers, **ranks)
        model = get_peft_model(model, lora, autocast_adapter_dtype=False)
    if shape.checkpoint_llm:
        inner.gradient_checkpointing_enable({"use_reentrant": shape.reentrant})
        inner.enable_input_require_grads()
    if not shape.checkpoint_vit:
        vit = inner.transformer.vision if "boi_token_id" in config else inner.model.visual
        vit.gradient_checkpointing_disable()
    return model


def real_inputs(config: dict[str, Any], shape: BatchShape) -> dict[str, Any]:
    inputs = inputs_of(config, shape, config.get("image_token_id", 0))
    return inputs | {"pixel_values": torch.randn_like(inputs["pixel_values"], device="cpu")}


def real_loss(model: torch.nn.Module, inputs: dict[str, Any], shape: BatchShape) -> torch.Tensor:
    """ms-swift's way from logits to the surrogate, with TRL's function."""
    from trl.trainer.utils import selective_log_softmax

    logits = model(**inputs, logits_to_keep=shape.logits).logits
    logits = logits[:, -shape.logits : -1]
    logits.div_(0.9)
    logps = selective_log_softmax(logits, torch.zeros(logits.shape[:2], dtype=torch.long))
    del logits
    return (logps - logps.detach()).exp().mean()


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-4, foreach=False)


def peak_of(work: Callable[[], object]) -> int:
    """The most that was alive at once of what ``work`` allocated, by PyTorch's own profiler."""
    gc.collect()  # what others left would be counted as released by ``work``
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
            work()
    finally:
        gc.enable()
    return max(alive for _, alive in alive_over_time(recorded))


def alive_over_time(recorded: profile) -> Iterator[tuple[int, int]]:
    """Nanoseconds and bytes, after each allocation and release since the profiler began."""
    alive = 0
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        yield event.start_ns(), alive


def real_peak(config: dict[str, Any], shape: BatchShape) -> int:
    torch.manual_seed(0)
    model = real_model(config, shape)
    weights = sum({id(p): p.numel() * p.element_size() for p in model.parameters()}.values())
    inputs = real_inputs(config, shape)
    optimizer = optimizer_of(model)

    def steps() -> None:
        for _ in range(2):
            for _ in range(2):  # accumulated
                real_loss(model, inputs, shape).backward()
            optimizer.step()
            optimizer.zero_grad()

    return weights + peak_of(steps)


def zero3_peak(config: dict[str, Any], shape: BatchShape) -> int:
    import deepspeed
    import torch.distributed as dist

    hidden = config["text_config"]["hidden_size"]
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
        model = real_model(config, shape)
        options = {"optimizer": optimizer_of(model), "config": settings}
        engine, *_ = deepspeed.initialize(model=model, **options)
        inputs = real_inputs(config, shape)
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
    return int(highest)


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text())
    shape = BatchShape(**{**case["shape"], "grids": tuple(map(tuple, case["shape"]["grids"]))})
    peak = zero3_peak if "WORLD_SIZE" in os.environ else real_peak
    found = peak(case["config"], shape)
    if os.environ.get("RANK", "0") == "0":
        print(found)


if __name__ == "__main__":
    main()
