"""Every trained weight is moved by a step and synchronised: does the engine follow?"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch

from swift_vlrft.agreement.figures import Row
from swift_vlrft.swift_plugin.agreement.sides import Comparing, NumberedRow, Samples, gathered

STEPS = (0.08, 0.16, 0.32, 0.64)
VISIBLE = 10.0
"""The step is enlarged until the trainer's own answer moves by this many times the limit."""


def compare_moved(
    trainer: Comparing, numbered: list[NumberedRow], samples: Samples, limit: float
) -> tuple[list[Row], float]:
    """The rows after the weights were moved and sent, and the step; then they are put back."""
    first = trainer.score(samples)
    model = trainer.accelerator.unwrap_model(trainer.model)
    weights = [p for p in model.parameters() if p.requires_grad]
    kept = [local(p).to("cpu", copy=True) for p in weights]
    step = STEPS[0]
    for larger in STEPS:
        move(weights, kept, larger)
        scores = zip(first, trainer.score(samples), strict=True)
        sizes = gathered([abs(b - a) for pair in scores for a, b in zip(*pair, strict=True)])
        mean = sum(sizes) / max(1, len(sizes))
        if not isfinite(mean):  # too large for the type
            move(weights, kept, step)
            break
        step = larger
        if mean >= VISIBLE * limit:
            break
    rows, _ = trainer.compare(numbered, sync=True)
    move(weights, kept, 0.0)
    if not trainer.colocated:  # a server lives on
        trainer._move_model_to_vllm()
    return rows, step


def local(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What this process holds of a weight: all of it, or FSDP's or ZeRO-3's shard."""
    if hasattr(parameter, "ds_tensor"):
        parameter.partition()  # type: ignore[attr-defined]  # some are left whole after a forward
        return parameter.ds_tensor.data  # type: ignore[no-any-return]
    data = parameter.data
    return data.to_local() if hasattr(data, "to_local") else data


def move(weights: Sequence[torch.nn.Parameter], kept: Sequence[torch.Tensor], step: float) -> None:
    """Each weight away from where it was, by normal random numbers of ``step`` times its root mean
    square; with 0 exactly back. The same in every process that holds the same part.
    """
    for number, (weight, was) in enumerate(zip(weights, kept, strict=True)):
        place = local(weight)
        start = was.to(place.device)
        size = float(start.float().square().mean().sqrt()) or 0.02  # a new adapter's B is zero
        if step:
            generator = torch.Generator(place.device).manual_seed(number)
            drawn = torch.randn(start.shape, generator=generator, device=place.device)
            start = start + (step * size * drawn).to(start.dtype)
        place.copy_(start)
