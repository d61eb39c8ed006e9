"""What to change: the cheapest changes that make a run fit, and what to raise if there is room.

    for change in advise(plan):
        change.label, change.flags, change.cost, change.plan.peak
    "move_model_batches 16", {"move_model_batches": "16"}, "weight sync a little slower", 19.7 GiB

A change is a flag of ms-swift, its cost in speed or quality, and the resulting Settings. Many are
tried, with activations scaled from the plan's; those that are returned are estimated by ``source``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from swift_vlrft.memory.activations import traced
from swift_vlrft.memory.analytic import scaled_from
from swift_vlrft.memory.estimate import Plan, estimate
from swift_vlrft.memory.settings import GIB, Settings
from swift_vlrft.memory.stages import Source, batch_shape

Written = Callable[[Mapping[str, str]], Settings | None]
"""Settings of the recipe with these flags in it; None if they break a rule of ms-swift or of this
package, so must not be written."""

LORA_LEARNING_RATE = 1e-5
"""That of our LoRA recipes; 1e-6, right for full tuning, hardly changes an adapter."""

EXPENSIVE_RANK = 3.0
"""From this rank on, combinations of cheaper changes are also tried."""


@dataclass(frozen=True)
class Change:
    flags: dict[str, str]
    """ms-swift's flags; names in capitals are environment variables."""
    cost: str
    rank: float
    """Smaller is cheaper: first about the same speed, then slower, then other results."""
    settings: Settings
    plan: Plan | None = None

    @property
    def label(self) -> str:
        first, *others = (f"{name} {value}" for name, value in self.flags.items())
        return first + (f" with {' '.join(others)}" if others else "")

    @property
    def key(self) -> tuple[str, str]:
        """Its first flag, which identifies it: flags that go with it depend on the others."""
        return next(iter(self.flags.items()))

    @property
    def fits(self) -> bool:
        return self.plan is not None and self.plan.fits

    def as_dict(self) -> dict[str, object]:
        plan = self.plan
        return {
            "change": self.label,
            "flags": self.flags,
            "cost": self.cost,
            "peak_gib": round(plan.peak.total / GIB, 2) if plan else None,
            "phase": plan.peak.name if plan else None,
            "verdict": plan.verdict if plan else None,
            "how": plan.how if plan else None,
        }


# The search -----------------------------------------------------------------------------------


def advise(plan: Plan, source: Source = traced, written: Written | None = None) -> list[Change]:
    """Changes that make a plan fit, cheapest first: single ones, then the smallest combination.

    Empty if the plan fits, or if no combination helps. With ``written`` each is planned from the
    recipe with that change.
    """
    if plan.fits:
        return []
    quick = _scaled(plan.settings, source)
    tried = _planned(_writable(changes(plan.settings), written), quick)
    found = [change for change in tried if change.fits][:4]
    if not found or found[0].rank > EXPENSIVE_RANK:
        combined = _together(plan, quick)
        if combined and all(combined.flags != change.flags for change in found):
            several = _writable([combined], written)
            found = sorted([*several, *found], key=lambda change: change.rank)[:4]
    shown = [
        change if change.plan and change.plan.peak_is_certain else _planned([change], source)[0]
        for change in found
    ]
    return [change for change in shown if change.fits]


def headroom_options(
    plan: Plan, source: Source = traced, written: Written | None = None
) -> list[Change]:
    """What could be raised for speed within the GPU's memory; ``written`` as in advise."""
    if plan.verdict != "fits":
        return []
    quick = _scaled(plan.settings, source)
    found = []
    for rule in (_larger_batch, _larger_share, _more_generations, _no_checkpointing):
        # The options of a rule ascend.
        options = _planned(_writable(rule(plan.settings), written), quick)
        found += [c for c in options if c.plan and c.plan.verdict == "fits"][-1:]
    return found


def _scaled(settings: Settings, source: Source) -> Source:
    shapes = [batch_shape(settings, train=train) for train in (True, False)]
    return scaled_from(settings.model, shapes, source)


def _writable(changes: Iterable[Change], written: Written | None) -> list[Change]:
    if written is None:
        return list(changes)
    read = [(change, written(change.flags)) for change in changes]
    return [replace(change, settings=settings) for change, settings in read if settings]


def _planned(changes: Iterable[Change], source: Source) -> list[Change]:
    return [replace(change, plan=estimate(change.settings, source)) for change in changes]


def _together(plan: Plan, source: Source) -> Change | None:
    """Add changes, cheapest first, that lower the peak; then drop those that are not needed."""
    taken: list[tuple[str, str]] = []
    now = plan
    while not now.fits and len(taken) < 12:
        options = [change for change in changes(now.settings) if change.key not in taken]
        lower = [
            (change.key, change.plan)
            for change in _planned(options, source)
            if change.plan and _need(change.plan) < _need(now) - 0.02 * GIB
        ]
        if not lower:
            return None
        fitting = [option for option in lower if option[1].fits]
        key, now = (fitting or lower)[0]
        taken.append(key)
    if not now.fits:
        return None
    for key in list(taken):
        fewer = [other for other in taken if other != key]
        change = _combined(plan.settings, fewer)
        if change and estimate(change.settings, source).fits:
            taken = fewer
    return _combined(plan.settings, taken)


def _need(plan: Plan) -> float:
    return plan.peak.total + (plan.settings.gpu_bytes if plan.failures else 0)


def _combined(settings: Settings, keys: list[tuple[str, str]]) -> Change | None:
    flags: dict[str, str] = {}
    costs, rank = [], 0.0
    for key in keys:
        change = next((c for c in changes(settings) if c.key == key), None)
        if change is None:
            return None
        settings, rank = change.settings, rank + change.rank
        flags |= change.flags
        costs.append(change.cost)
    return Change(flags, "; ".join(dict.fromkeys(costs)), rank, settings) if flags else None


# What can be changed --------------------------------------------------------------------------

Row = tuple[bool, float, dict[str, str], str, dict[str, Any]]
"""Whether it applies, its rank, the flags, the cost, the changed fields of the settings."""


def changes(s: Settings) -> list[Change]:
    """All single changes that these settings allow, cheapest first."""
    rows = [*_of_the_engine(s), *_of_the_trainer(s), *_smaller_batches(s), *_of_the_data(s)]
    found = [
        Change(flags, cost, rank, replace(s, **new))
        for when, rank, flags, cost, new in rows
        if when
    ]
    return sorted(found, key=lambda change: change.rank)


def _of_the_engine(s: Settings) -> Iterator[Row]:
    if s.rollout != "vllm_colocate":
        return
    awake = s.sleep_level == 0
    yield awake, 1, {"sleep_level": "1"}, "seconds a step to wake", {"sleep_level": 1}
    for rank, flag in ((2, "offload_optimizer"), (2.1, "offload_model")):
        when = not awake and not getattr(s, flag)
        yield when, rank, {flag: "true"}, "seconds a step, host memory", {flag: True}
    # The longest row that this run can produce, which is all that the engine needs to hold.
    prompt = max(s.max_length or 0, s.length - s.completion)
    longest = -(-(prompt + s.completion) // 1024) * 1024
    when = s.vllm_max_length is not None and s.vllm_max_length > longest
    flags = {"vllm_max_model_len": str(longest)}
    cost = "nothing: no row is longer" if s.max_length else "longer rows are refused"
    yield when, 0.4, flags, cost, {"vllm_max_length": longest}
    now = s.vllm_utilization
    for share in (0.7, 0.6, 0.5, 0.4, 0.3):
        flags, new = {"vllm_gpu_memory_utilization": str(share)}, {"vllm_utilization": share}
        rank = 1.5 + (now - share)
        yield share < now - 0.05, rank, flags, "fewer rows generated at once", new
    for share in (0.8, 0.9):
        flags, new = {"vllm_gpu_memory_utilization": str(share)}, {"vllm_utilization": share}
        when = share > now + 0.05 and not awake
        yield when, 2.8, flags, "less room beside the engine", new
    for tp in (2, 4, 8):
        when = tp > s.vllm_tp and s.processes % tp == 0 and s.model.heads % tp == 0
        flags = {"vllm_tensor_parallel_size": str(tp)}
        yield when, 2.5 + tp / 10, flags, "slower rollout of a small model", {"vllm_tp": tp}


def _of_the_trainer(s: Settings) -> Iterator[Row]:
    new: dict[str, Any]
    full, engine = s.tuning == "full", s.rollout.startswith("vllm")
    when = s.zero == 3 and engine and s.move_model_batches == 1
    flags = {"move_model_batches": "16"}
    yield when, 1.2, flags, "weight sync a little slower", {"move_model_batches": 16}
    when = s.model.shares_prefixes and s.may_share_prefixes and bool(s.grids) and s.batch > 1
    when &= not s.shared_prefix and not s.chunked_loss and s.sharding != "fsdp"
    new = {"shared_prefix": True, "feature_cache": 512 << 20}
    yield when, 0.5, {"VLRFT_SHARED_PREFIX": "1"}, "nothing: faster, the same numbers", new
    when = not (s.checkpoint_llm and s.checkpoint_vit)
    flags = {"gradient_checkpointing": "true", "vit_gradient_checkpointing": "true"}
    new = {"checkpoint_llm": True, "checkpoint_vit": True}
    yield when, 3, flags, "one more forward pass, about 30 % slower", new
    when = s.may_use_liger and not (s.chunked_loss or s.all_logits or s.shared_prefix)
    yield when, 3.2, {"use_liger_kernel": "true"}, "needs liger-kernel", {"chunked_loss": True}
    order = ("none", "ddp", "zero0", "zero1", "zero2", "zero3", "fsdp")
    for rank, stage in ((4, "zero2"), (5, "zero3")):
        when = s.processes > 1 and order.index(s.sharding) < order.index(stage)
        yield when, rank, {"deepspeed": stage}, "more communication", {"sharding": stage}
    when = s.reference and full
    yield when, 6, {"beta": "0"}, "no KL term, no reference model", {"reference": False}
    flags, new = {"per_device_eval_batch_size": "1"}, {"eval_batch": 1}
    yield s.eval_batch > 1, 1.8, flags, "slower evaluation", new
    when = s.optimizer in ("adamw", "adamw_foreach") and full and not s.deepspeed
    new = {"optimizer": "adamw_8bit"}
    yield when, 7, {"optim": "adamw_8bit"}, "moments in 8 bits", new
    cost = "the optimizer steps on the CPU: several times slower, host memory"
    flags = {"deepspeed": f"zero{s.zero}_offload"}
    new = {"cpu_states": True, "cpu_parameters": s.zero == 3}
    yield s.zero >= 2 and not s.cpu_states, 8, flags, cost, new
    flags, new = {"tuner_type": "lora"}, {"tuning": "lora"}
    if s.learning_rate is not None and s.learning_rate < LORA_LEARNING_RATE:
        flags["learning_rate"] = f"{LORA_LEARNING_RATE:.0e}".replace("e-0", "e-")
    if s.sharding in ("none", "ddp") and s.dtype != "float32":
        # The weight sync would make the adapter 16 bits (recipe/rules/batches.py).
        flags["deepspeed"] = new["sharding"] = "zero2"
    yield full, 10, flags, "an adapter learns, not the model", new


def _smaller_batches(s: Settings) -> Iterator[Row]:
    batch, factor = s.batch, 1
    while batch % 2 == 0:
        batch, factor = batch // 2, factor * 2
        flags, new = _batch(s, batch, s.accumulation * factor)
        new["rollout_batch"] = s.generated_at_once
        if s.steps_per_generation:
            new["steps_per_generation"] = s.steps_per_generation * factor
        yield True, 3.5 + factor / 10, flags, "same step, smaller passes", new


def _batch(s: Settings, batch: int, accumulation: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Another batch. If --steps_per_generation is set, it is changed to keep the rows of a
    generation, which num_generations must divide (args_mixin.py: _init_generation_batch_params).
    """
    flags = {
        "per_device_train_batch_size": str(batch),
        "gradient_accumulation_steps": str(accumulation),
    }
    if s.steps_per_generation is not None:
        flags["steps_per_generation"] = str(s.steps_per_generation * s.batch // batch)
    return flags, {"batch": batch, "accumulation": accumulation}


def _of_the_data(s: Settings) -> Iterator[Row]:
    area = sum(h * w for _, h, w in s.grids[:1]) * s.model.patch**2
    area = 0 if s.pixels == "fixed" else area
    for pixels in (602112, 401408, 200704):
        if pixels < 0.9 * area:
            scale = (pixels / area) ** 0.5
            grids = tuple((t, _even(h * scale), _even(w * scale)) for t, h, w in s.grids)
            rank, cost = 6.5 + (area / pixels) / 100, "small objects are seen less well"
            yield True, rank, _pixel_flags(s, pixels), cost, {"grids": grids}
    for length in (1024, 512, 256):
        rank, flags = 9 + 100 / length, {"max_completion_length": str(length)}
        yield (
            length < s.completion and s.rollout != "none",
            rank,
            flags,
            "longer answers are cut",
            {"completion": length},
        )


def _pixel_flags(s: Settings, pixels: int) -> dict[str, str]:
    """The flags for a limit of an image's pixels, if this run has one."""
    tokens = pixels // (s.model.patch * s.model.merge) ** 2
    if s.pixels != "model_kwargs":
        return {s.pixels: str(tokens if s.pixels == "IMAGE_MAX_TOKEN_NUM" else pixels)}
    given = json.loads(s.model_kwargs)
    names = {name.upper(): name for name in given}
    if name := names.get("IMAGE_MAX_TOKEN_NUM"):
        given[name] = tokens
    else:
        given[names["MAX_PIXELS"]] = pixels
    return {"model_kwargs": json.dumps(given)}


def _even(value: float) -> int:
    return max(2, int(value) // 2 * 2)


# What can be raised ---------------------------------------------------------------------------


def _larger_batch(s: Settings) -> Iterator[Change]:
    step = s.batch * s.accumulation
    for batch in (s.batch * 2**n for n in range(1, 6)):
        divides = step % batch == 0
        if s.steps_per_generation:
            divides &= s.batch * s.steps_per_generation % batch == 0
        if s.generation_batch:
            divides &= s.generation_batch % (batch * s.processes) == 0
        if divides:
            flags, new = _batch(s, batch, max(1, step // batch))
            new["rollout_batch"] = max(batch, s.generated_at_once)
            yield Change(flags, "larger passes, fewer of them a step", 0, replace(s, **new))


def _larger_share(s: Settings) -> Iterator[Change]:
    if s.rollout == "vllm_colocate":
        for twentieths in range(int(s.vllm_utilization * 20) + 1, 19):
            flags = {"vllm_gpu_memory_utilization": f"{twentieths / 20:g}"}
            after = replace(s, vllm_utilization=twentieths / 20)
            yield Change(flags, "more rows generated at once", 0, after)


def _more_generations(s: Settings) -> Iterator[Change]:
    if s.rollout in ("transformers", "none"):
        return
    after = replace(s, generations=2 * s.generations)
    flags = {"num_generations": str(after.generations)}
    steps = s.steps_per_generation or s.accumulation
    if (s.generation_batch or s.processes * s.batch * steps) % after.generations:
        # The completions of a generation become a multiple again.
        given = {
            "steps_per_generation": s.steps_per_generation,
            "generation_batch_size": s.generation_batch,
        }
        given = {name: n for name, n in given.items() if n}
        given = given or {"gradient_accumulation_steps": s.accumulation}
        flags |= {name: str(2 * n) for name, n in given.items() if n}
        after = replace(after, rollout_batch=2 * s.generated_at_once)
    yield Change(flags, "twice the rollout, training memory unchanged in ms-swift", 0, after)


def _no_checkpointing(s: Settings) -> Iterator[Change]:
    if s.checkpoint_llm:
        after = replace(s, checkpoint_llm=False, checkpoint_vit=False)
        yield Change({"gradient_checkpointing": "false"}, "about a quarter faster", 0, after)
