"""Advise the cheapest changes that make a run fit, and what to raise if there is room.

    for change in advise(plan, written):
        change.label, change.flags, change.cost, change.plan.peak
    "move_model_batches 16", {"move_model_batches": "16"}, "weight sync in parts", 19.7 GiB

A change is flags of ms-swift and what they cost; ``written`` reads the recipe with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from swift_vlrft.memory.estimate import Plan, estimate, gib
from swift_vlrft.memory.settings import GIB, Settings

Written = Callable[[Mapping[str, str]], Settings | None]
"""It returns the settings of the recipe with these flags, None if they break a rule of ms-swift or
of this package."""

Planner = Callable[[Mapping[str, str]], Plan | None]

LORA_LEARNING_RATE = 1e-5
"""Our LoRA recipes have this rate; 1e-6, right for full tuning, hardly changes an adapter."""

EXPENSIVE_RANK = 3.0
"""From this rank on, combinations of cheaper changes are also tried."""


@dataclass(frozen=True)
class Change:
    flags: dict[str, str]  # ms-swift's flags; names in capitals are environment variables
    cost: str
    rank: float = 0
    """Smaller is cheaper: first about the same speed, then slower, then other results."""
    plan: Plan | None = None

    @property
    def label(self) -> str:
        first, *others = (f"{name} {value}" for name, value in self.flags.items())
        return first + (f" with {' '.join(others)}" if others else "")

    @property
    def key(self) -> tuple[str, str]:
        """Return the first flag, which identifies the change: its other flags depend on it."""
        return next(iter(self.flags.items()))

    @property
    def fits(self) -> bool:
        return self.plan is not None and self.plan.fits

    def as_dict(self) -> dict[str, object]:
        values: dict[str, object] = {"change": self.label, "flags": self.flags, "cost": self.cost}
        if plan := self.plan:
            values |= {"peak_gib": gib(plan.peak.total), "phase": plan.peak.name}
            values["verdict"] = plan.verdict
        return values


def advise(plan: Plan, written: Written) -> list[Change]:
    """Return changes that make a plan fit, cheapest first: single changes, then the smallest
    combination; none if the plan fits, or if no combination helps.
    """
    if plan.fits:
        return []
    quick = _planner(written, plan.host)
    singles = [replace(change, plan=quick(change.flags)) for change in changes(plan.settings)]
    fitting = [change for change in singles if change.fits][:4]
    if not fitting or fitting[0].rank > EXPENSIVE_RANK:
        combined = _together(plan, quick)
        if combined and all(combined.flags != change.flags for change in fitting):
            fitting.append(replace(combined, plan=quick(combined.flags)))
    return sorted(fitting, key=lambda change: change.rank)[:4]


def headroom_options(plan: Plan, written: Written) -> list[Change]:
    """Return what could be raised within the GPU's memory."""
    if plan.verdict != "fits":
        return []
    quick, larger = _planner(written, plan.host), list[Change]()
    for rule in (_larger_batch, _larger_share, _no_checkpointing):
        # The options of a rule ascend.
        options = [replace(change, plan=quick(change.flags)) for change in rule(plan.settings)]
        larger += [c for c in options if c.plan and c.plan.verdict == "fits"][-1:]
    return larger


def _planner(written: Written, host: int) -> Planner:
    """Return a planner of the recipe with other flags; it gives None, too, for a plan that needs
    more host memory than a node is assumed to have and than ``host``, the recipe's own.
    """

    def plan(flags: Mapping[str, str]) -> Plan | None:
        planned = estimate(settings) if (settings := written(flags)) else None
        return planned if planned and planned.host <= max(host, planned.usual_host) else None

    return plan


def _together(plan: Plan, quick: Planner) -> Change | None:
    """Add changes, cheapest first, that lower the peak; then drop those that are not needed."""
    taken, now = list[Change](), plan
    while not now.fits and len(taken) < 12:
        known, need = [change.key for change in taken], _need(now) - 0.02 * GIB
        options = [change for change in changes(now.settings) if change.key not in known]
        tried = [(change, quick(_combined([*taken, change]).flags)) for change in options]
        lower = [(change, new) for change, new in tried if new and _need(new) < need]
        if not lower:
            return None
        change, now = next((pair for pair in lower if pair[1].fits), lower[0])
        taken.append(change)
    if not now.fits:
        return None
    for change in list(taken):
        fewer = [other for other in taken if other is not change]
        planned = quick(_combined(fewer).flags) if fewer else None
        if planned and planned.fits:
            taken = fewer
    return _combined(taken)


def _combined(changes: list[Change]) -> Change:
    flags = {name: value for change in changes for name, value in change.flags.items()}
    costs = dict.fromkeys(change.cost for change in changes)
    return Change(flags, "; ".join(costs), sum(change.rank for change in changes))


def _need(plan: Plan) -> float:
    return plan.peak.total + (plan.settings.gpu_bytes if plan.failures else 0)


Row = tuple[bool, float, dict[str, Any], str]
"""A row says whether the change applies, its rank, its flags and its cost."""


def changes(s: Settings) -> list[Change]:
    """Return all single changes that these settings allow, cheapest first."""
    rows = (*_of_the_engine(s), *_of_the_trainer(s), *_smaller_batches(s), *_of_the_data(s))
    allowed = [
        Change({name: str(value) for name, value in flags.items()}, cost, rank)
        for when, rank, flags, cost in rows
        if when
    ]
    return sorted(allowed, key=lambda change: change.rank)


def _of_the_engine(s: Settings) -> Iterator[Row]:
    if s.rollout != "vllm_colocate":
        return
    awake, now = s.sleep_level == 0, s.vllm_utilization
    yield awake, 1, {"sleep_level": 1}, "the engine wakes for every rollout"
    for rank, flag in ((2, "offload_optimizer"), (2.1, "offload_model")):
        when = not awake and not getattr(s, flag)
        yield when, rank, {flag: "true"}, "copied to host memory and back, every step"
    # The longest row that this run can produce, which is all that the engine needs to hold.
    prompt = max(s.max_length or 0, s.length - s.completion)
    longest = -(-(prompt + s.completion) // 1024) * 1024
    cost = "nothing: no row is longer" if s.max_length else "longer rows are refused"
    yield (s.vllm_max_length or 0) > longest, 0.4, {"vllm_max_model_len": longest}, cost
    for share in (0.7, 0.6, 0.5, 0.4, 0.3):
        flags, rank = {"vllm_gpu_memory_utilization": share}, 1.5 + (now - share)
        yield share < now - 0.05, rank, flags, "fewer rows generated at once"
    for share in (0.8, 0.9):
        flags = {"vllm_gpu_memory_utilization": share}
        yield share > now + 0.05 and not awake, 2.8, flags, "less room beside the engine"
    for tp in (2, 4, 8):
        when = tp > s.vllm_tp and s.processes % tp == 0 and s.model.heads % tp == 0
        flags, rank = {"vllm_tensor_parallel_size": tp}, 2.5 + tp / 10
        yield when, rank, flags, "sums over GPUs in every layer of the rollout"


def _of_the_trainer(s: Settings) -> Iterator[Row]:
    full, engine = s.tuning == "full", s.rollout.startswith("vllm")
    when = s.zero == 3 and engine and s.move_model_batches <= 1
    yield when, 1.2, {"move_model_batches": 16}, "weight sync in parts"
    when = s.may_share_prefixes and bool(s.grids) and s.batch > 1
    when &= not s.shared_prefix and not s.chunked_loss and s.sharding != "fsdp"
    yield when, 0.5, {"VLRFT_SHARED_PREFIX": 1}, "nothing: prompts computed once, the same numbers"
    when = not (s.checkpoint_llm and s.checkpoint_vit)
    flags = dict.fromkeys(("gradient_checkpointing", "vit_gradient_checkpointing"), "true")
    yield when, 3, flags, "forward computed twice"
    when = s.may_use_liger and not (s.chunked_loss or s.all_logits or s.shared_prefix)
    yield when, 3.2, {"use_liger_kernel": "true"}, "needs liger-kernel"
    order = ("none", "ddp", "zero0", "zero1", "zero2", "zero3", "fsdp")
    for rank, stage in ((4, "zero2"), (5, "zero3")):
        when = s.processes > 1 and order.index(s.sharding) < order.index(stage)
        yield when, rank, {"deepspeed": stage}, "more communication"
    # Alone, ZeRO-3 gathers the whole model for the engine.
    parts = {"move_model_batches": 16} if engine else {}
    when = engine and s.processes > 1 and order.index(s.sharding) < order.index("zero3")
    yield when, 5.1, {"deepspeed": "zero3", **parts}, "more communication, weight sync in parts"
    yield s.reference and full, 6, {"beta": 0}, "no KL term, no reference model"
    yield s.eval_batch > 1, 1.8, {"per_device_eval_batch_size": 1}, "evaluation row by row"
    when = s.optimizer in ("adamw", "adamw_foreach") and full and not s.deepspeed
    yield when, 7, {"optim": "adamw_8bit"}, "moments in 8 bits"
    cost = "the optimizer steps on the CPU, in host memory"
    yield s.zero >= 2 and not s.cpu_states, 8, {"deepspeed": f"zero{s.zero}_offload"}, cost
    when = not (s.zero == 3 and s.cpu_states)
    yield when, 8.5, {"deepspeed": "zero3_offload", **parts}, f"weights, too; {cost}"
    when = s.tuning == "lora" and s.rollout != "vllm_colocate" and not s.shards_weights
    bits = {"quant_method": "bnb", "quant_bits": 4}
    yield when, 9.9, bits, "QLoRA: weights in 4 bits, slower; needs bitsandbytes"
    flags = {"tuner_type": "lora"}
    if s.learning_rate is not None and s.learning_rate < LORA_LEARNING_RATE:
        flags["learning_rate"] = f"{LORA_LEARNING_RATE:.0e}".replace("e-0", "e-")
    if s.sharding in ("none", "ddp") and s.dtype != "float32":
        # The weight sync would make the adapter 16 bits (recipe/rules/batches.py).
        flags["deepspeed"] = "zero2"
    yield full, 10, flags, "an adapter learns, not the model"


def _smaller_batches(s: Settings) -> Iterator[Row]:
    batch, factor = s.batch, 1
    while batch % 2 == 0:
        batch, factor = batch // 2, factor * 2
        rank, flags = 3.5 + factor / 10, batch_flags(s, batch, s.accumulation * factor)
        yield True, rank, flags, "same step, smaller passes"


def batch_flags(s: Settings, batch: int, accumulation: int) -> dict[str, str]:
    """Return flags of another batch; --steps_per_generation, if set, changes to keep the rows of a
    generation, which num_generations must divide (args_mixin.py: _init_generation_batch_params).
    """
    flags = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    if s.steps_per_generation is not None:
        flags["steps_per_generation"] = s.steps_per_generation * s.batch // batch
    return {name: str(value) for name, value in flags.items()}


def _of_the_data(s: Settings) -> Iterator[Row]:
    area = sum(h * w for _, h, w in s.grids[:1] if s.pixels != "fixed") * s.model.patch**2
    for pixels in (602112, 401408, 200704):
        if pixels < 0.9 * area:
            rank = 6.5 + (area / pixels) / 100
            yield True, rank, _pixel_flags(s, pixels), "small objects are seen less well"
    for length in (1024, 512, 256):
        rank, flags = 9 + 100 / length, {"max_completion_length": length}
        when = length < s.completion and s.rollout != "none"
        yield when, rank, flags, "longer answers are cut"


def _pixel_flags(s: Settings, pixels: int) -> dict[str, Any]:
    """Return the flags for a limit of an image's pixels, if this run has a limit."""
    tokens = pixels // (s.model.patch * s.model.merge) ** 2
    if s.pixels != "model_kwargs":
        return {s.pixels: tokens if s.pixels == "IMAGE_MAX_TOKEN_NUM" else pixels}
    kwargs = json.loads(s.model_kwargs)
    names = {name.upper(): name for name in kwargs}
    if name := names.get("IMAGE_MAX_TOKEN_NUM"):
        kwargs[name] = tokens
    else:
        kwargs[names["MAX_PIXELS"]] = pixels
    return {"model_kwargs": json.dumps(kwargs)}


def _larger_batch(s: Settings) -> Iterator[Change]:
    step = s.batch * s.accumulation
    for batch in (s.batch * 2**n for n in range(1, 6)):
        divides = step % batch == 0
        if s.steps_per_generation:
            divides &= s.batch * s.steps_per_generation % batch == 0
        if divides:
            flags = batch_flags(s, batch, max(1, step // batch))
            yield Change(flags, "larger passes, fewer of them a step")


def _larger_share(s: Settings) -> Iterator[Change]:
    if s.rollout == "vllm_colocate":
        for twentieths in range(int(s.vllm_utilization * 20) + 1, 19):
            flags = {"vllm_gpu_memory_utilization": f"{twentieths / 20:g}"}
            yield Change(flags, "more rows generated at once")


def _no_checkpointing(s: Settings) -> Iterator[Change]:
    if s.checkpoint_llm:
        yield Change({"gradient_checkpointing": "false"}, "forward computed once")
