"""A real training step of a small model on CPU, and the most that PyTorch's allocator gave out.

peak = real_peak(config, shape)      bytes, weights included, after two optimizer steps
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from swift_vlrft.memory.models import makes_known, part_of
from swift_vlrft.memory.stages import BatchShape
from swift_vlrft.memory.tracing import inputs_of


def real_model(config: dict[str, Any], shape: BatchShape) -> torch.nn.Module:
    """The class that transformers builds, with data; checkpointing and adapters as in training."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    makes_known(config)
    values = {name: value for name, value in config.items() if name != "model_type"}
    sees = "vision_config" in values
    maker = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    made = CONFIG_MAPPING[config["model_type"]](**values)
    model = maker.from_config(made, attn_implementation=shape.attention)
    model = model.to(getattr(torch, shape.dtype)).train()
    for name, parameter in model.named_parameters():
        llm = part_of(name) == "llm"
        parameter.requires_grad_(shape.lora_rank == 0 and (llm or shape.train_vit))
    if shape.lora_rank:
        from peft import LoraConfig, get_peft_model

        names = [
            name
            for name, part in model.named_modules()
            if isinstance(part, torch.nn.Linear)
            and part_of(name) == "llm"
            and part is not model.get_output_embeddings()
        ]
        model = get_peft_model(
            model,
            LoraConfig(r=shape.lora_rank, lora_dropout=shape.lora_dropout, target_modules=names),
            autocast_adapter_dtype=False,
        )
    inner = model.get_base_model() if shape.lora_rank else model
    if shape.checkpoint_llm:
        inner.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": shape.reentrant}
        )
        inner.enable_input_require_grads()
    if sees and not shape.checkpoint_vit:
        vit = inner.transformer.vision if "boi_token_id" in config else inner.model.visual
        vit.gradient_checkpointing_disable()
    return model


def real_inputs(config: dict[str, Any], shape: BatchShape) -> dict[str, Any]:
    inputs = inputs_of(config, shape, config.get("image_token_id", 0))
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.is_meta:
            inputs[name] = torch.randn(value.shape, dtype=value.dtype)
    return inputs


def real_loss(model: torch.nn.Module, inputs: dict[str, Any], shape: BatchShape) -> torch.Tensor:
    """ms-swift's way from logits to the surrogate, with TRL's function."""
    from trl.trainer.utils import selective_log_softmax

    logits = model(**inputs, logits_to_keep=shape.logits).logits
    logits = logits[:, -shape.logits : -1]
    logits.div_(0.9)
    labels = torch.zeros(logits.shape[:2], dtype=torch.long)
    logps = selective_log_softmax(logits, labels)
    del logits
    return (logps - logps.detach()).exp().mean()


def peak_of(work: Any) -> int:
    """The most that was alive at once of what ``work`` allocated, by PyTorch's own profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
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
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, foreach=False)

    def steps() -> None:
        for _ in range(2):
            for _ in range(2):  # accumulated
                real_loss(model, inputs, shape).backward()
            optimizer.step()
            optimizer.zero_grad()

    return weights + peak_of(steps)
