"""Every trained weight is moved by a small step and synchronised: does the engine follow?"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch
from torch import distributed

from swift_vlrft.agreement.figures import noise, of_rows
from swift_vlrft.agreement.measurement import Measurement, Moved
from swift_vlrft.agreement.verdict import off
from swift_vlrft.agreement.weights import fingerprint, irregular, part_of, stale_parts, unchanged
from swift_vlrft.swift_plugin.agreement.sides import Samples, Sides, figures_of_all, gathered

STEPS = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
VISIBLE = 20.0
"""The step is enlarged until the trainer's own answer moves by this much more than its noise."""

Sums = dict[str, torch.Tensor]


def move_weights(sides: Sides, samples: Samples, so_far: Measurement) -> Moved:
    """Move every trained weight, synchronise, compare; then the weights are put back."""
    floor = so_far.noise
    first, sums = sides.score(samples), sides.sums
    named = [(n, p) for n, p in sides.model.named_parameters() if p.requires_grad]
    weights = [p for _, p in named]
    kept = [local(p).to("cpu", copy=True) for p in weights]
    added = _lora_sums(sides)
    target = max(VISIBLE * floor.mean, 0.01) if floor else 0.0
    step = STEPS[0]
    for larger in STEPS:
        move(weights, kept, larger)
        seen = figures_of_all(first, sides.score(samples))
        if seen is not None and not isfinite(seen.mean):  # too large for the type
            move(weights, kept, step)
            break
        step = larger
        if seen is None or seen.mean >= target:
            break
    sent = [fingerprint(local(p)) for p in weights]
    rows, moved = sides.compare()
    changed, after = sides.sums, _lora_sums(sides)
    altered = [n for (n, p), was in zip(named, sent, strict=True) if fingerprint(local(p)) != was]
    move(weights, kept, 0.0)
    before = sides.against(moved, sides.score(moved))
    result = Moved(step, rows, noise(rows, sides.resolution), before, {})
    back = figures_of_all(first, sides.score(samples))
    result.left = back.mean if back else 0.0
    result.altered = sorted({*gathered([part_of(name) for name in altered])})
    if sides.colocated and sides.trainer.rollout_enable_lora:
        result.unplaced = _unplaced(sides)
    elif sides.colocated:
        result.stale = _stale(sides, so_far, sums, changed)
        result.lora_scale = _lora_scale(added, after, sums, changed)
    followed = not off(of_rows(rows), result.noise) or off(of_rows(so_far.rows), floor)
    if not followed and not (result.stale or result.unplaced or result.altered):
        for part in sorted({part_of(name) for name, _ in named}):
            of_part = [n for n, (name, _) in enumerate(named) if part_of(name) == part]
            move([weights[n] for n in of_part], [kept[n] for n in of_part], step)
            found = of_rows(sides.compare()[0])
            result.parts[part] = found.mean if found else 0.0
            move(weights, kept, 0.0)
    return result


def _unplaced(sides: Sides) -> dict[str, list[str]]:
    """Parts of which vLLM was given adapters that it adds to nothing, with its names of the modules
    (those of experts are packed under other names).
    """
    manager = sides.trainer.engine.inner_model.lora_manager
    names = {name for lora in manager.list_adapters().values() for name in lora.loras}
    parts: dict[str, list[str]] = {}
    for name in sorted(names - {*manager.modules}, key=lambda name: (part_of(name), name)):
        if "experts" not in name:
            parts.setdefault(part_of(name), []).append(name)
    return parts


def _stale(sides: Sides, so_far: Measurement, sums: Sums, changed: Sums) -> dict[str, list[str]]:
    """The trained parts that the engine kept."""
    most: dict[str, float] = {}
    for name, share in gathered([(n, unchanged(sums[n], changed[n])) for n in sums]):
        most[name] = max(share, most.get(name, 0.0))
    both: tuple[set[str], set[str]] = (set(), set())
    for name, weight in sides.model.named_parameters():
        both[weight.requires_grad].add(name)
    frozen, trained = both
    tied = so_far.facts["tied embeddings"][0] == "tied"
    if tied and any(part_of(name) == "language embeddings" for name in trained):
        trained.add("lm_head.weight")
    return stale_parts(trained, frozen, most)


def _lora_scale(added: Sums, after: Sums, sums: Sums, changed: Sums) -> float | None:
    """The change of the engine's weights as a multiple of the change of what the adapters add."""
    if not added or not after:
        return None
    wanted = sum(float((after[n] - added[n]).square().sum()) for n in added)
    arrived = sum(float((changed[n] - sums[n]).square().sum()) for n in sums)
    return (arrived / wanted) ** 0.5 if wanted else None


def _lora_sums(sides: Sides) -> Sums:
    """As ``row_sums``, of what each adapter adds to its weight; empty with sharded weights."""
    found: Sums = {}
    for name, module in sides.model.named_modules():
        for adapter, a in getattr(module, "lora_A", {}).items():
            if hasattr(a.weight, "ds_tensor") or sides.trainer.accelerator.num_processes > 1:
                return {}
            b = module.lora_B[adapter].weight.detach().double()
            a = a.weight.detach().double()
            sums = b @ (a @ irregular(a.shape[1], a.device))
            found[f"{name}.{adapter}"] = (module.scaling[adapter] * sums).cpu()
    return found


def local(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What this process holds of a weight: ZeRO-3's or FSDP's shard, or all of it (ZeRO-3 shards no
    small weights).
    """
    if parameter.numel() < getattr(parameter, "ds_numel", 0):
        return parameter.ds_tensor.data  # type: ignore[no-any-return, attr-defined]
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
        shard = getattr(weight, "ds_tensor", None)
        if shard is not None and shard.data_ptr() != place.data_ptr():  # whole, and sharded besides
            rank = distributed.get_rank(weight.ds_process_group)  # type: ignore[attr-defined]
            part = place.flatten()[rank * shard.numel() : (rank + 1) * shard.numel()]
            shard.data[: part.numel()].copy_(part)
