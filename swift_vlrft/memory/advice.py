"""Advise the cheapest changes that make a run fit.

    for change in advise(plan, written):
        change.label, change.flags, change.cost, change.plan.peak
    "move_model_batches 16", {"move_model_batches": "16"}, "weight sync in parts", 19.7 GiB

A change is flags of ms-swift and what they cost; ``written`` reads the recipe with them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from swift_vlrft.memory.estimate import Plan, estimate, gib
from swift_vlrft.memory.settings import GIB, Settings, Sharding

Written = Callable[[Mapping[str, str]], Settings]
"""Returns a recipe's settings with these flags; ValueError if they break a rule of `vlrft check`.
"""

Planner = Callable[[Mapping[str, str]], Plan | None]

LORA_LEARNING_RATE = 1e-5
"""Our LoRA recipes have this rate; 1e-6, right for full tuning, hardly changes an adapter."""

EXPENSIVE_RANK = 3.0
"""From this rank on, combinations of cheaper changes are also tried."""

SHOWN, MOST_COMBINED, LEAST_GAIN = 4, 12, 0.02 * GIB
"""Changes that are proposed, and that a combination holds, at most; bytes that each must save."""

LOWER_SHARES, HIGHER_SHARES, SHARE_STEP = (0.7, 0.6, 0.5, 0.4, 0.3), (0.8, 0.9), 0.05
"""Shares of a GPU for vLLM that are tried, where they differ by more than SHARE_STEP from now."""

PIXELS, LENGTHS = (602112, 401408, 200704), (1024, 512, 256)
"""Limits of an image (where they are under 0.9 of its area) and of a completion that are tried."""


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
    fitting = [one for one in singles if one.plan and one.plan.fits][:SHOWN]
    if not fitting or fitting[0].rank > EXPENSIVE_RANK:
        combined = _together(plan, quick)
        if combined and all(combined.flags != change.flags for change in fitting):
            fitting.append(replace(combined, plan=quick(combined.flags)))
    return sorted(fitting, key=lambda change: change.rank)[:SHOWN]


def _planner(written: Written, host: int) -> Planner:
    """Return a planner of the recipe with other flags. It gives None, too, for a plan that needs
    more host memory than a node is assumed to have and than ``host``, the recipe's own.
    """

    def plan(flags: Mapping[str, str]) -> Plan | None:
        try:
            planned = estimate(written(flags))
        except ValueError:
            return None
        return planned if planned.host <= max(host, planned.usual_host) else None

    return plan


def _together(plan: Plan, quick: Planner) -> Change | None:
    """Add changes, cheapest first, that lower the peak; then drop those that are not needed."""
    taken, now = list[Change](), plan
    while not now.fits and len(taken) < MOST_COMBINED:
        # The first flag identifies a change: its other flags depend on it.
        known, need = [next(iter(change.flags.items())) for change in taken], _need(now)
        options = [c for c in changes(now.settings) if next(iter(c.flags.items())) not in known]
        tried = [(change, quick(_combined([*taken, change]).flags)) for change in options]
        lower = [(change, new) for change, new in tried if new and need - _need(new) > LEAST_GAIN]
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


def changes(settings: Settings) -> list[Change]:
    """Return all single changes that these settings allow, cheapest first."""
    rules = (_engine_changes, _trainer_changes, _batch_changes, _row_changes)
    return sorted((c for rule in rules for c in rule(settings)), key=lambda change: change.rank)


def _change(rank: float, cost: str, **flags: object) -> Change:
    return Change({name: str(value) for name, value in flags.items()}, cost, rank)


def _engine_changes(settings: Settings) -> Iterator[Change]:
    if not settings.colocated:
        return
    awake, now = settings.sleep_level == 0, settings.vllm_utilization
    # The longest row that this run can produce, which is all that the engine needs to hold.
    prompt = max(settings.max_length or 0, settings.length - settings.completion)
    longest = -(-(prompt + settings.completion) // 1024) * 1024
    if (settings.vllm_max_length or 0) > longest:
        cost = "nothing: no row is longer" if settings.max_length else "longer rows are refused"
        yield _change(0.4, cost, vllm_max_model_len=longest)
    if awake:
        yield _change(1, "the engine wakes for every rollout", sleep_level=1)
    for rank, flag in ((2, "offload_optimizer"), (2.1, "offload_model")):
        if not awake and not getattr(settings, flag):
            yield _change(rank, "copied to host memory and back, every step", **{flag: "true"})
    for share in LOWER_SHARES:
        if share < now - SHARE_STEP:
            flags = {"vllm_gpu_memory_utilization": share}
            yield _change(1.5 + (now - share), "fewer rows generated at once", **flags)
    for share in HIGHER_SHARES:
        if share > now + SHARE_STEP and not awake:
            cost = "less room beside the engine"
            yield _change(2.8, cost, vllm_gpu_memory_utilization=share)
    for count in (2, 4, 8):
        divides = settings.processes % count == settings.model.heads % count == 0
        if count > settings.vllm_tp and divides:
            cost = "sums over GPUs in every layer of the rollout"
            yield _change(2.5 + count / 10, cost, vllm_tensor_parallel_size=count)


def _trainer_changes(settings: Settings) -> Iterator[Change]:
    full, engine = settings.tuning == "full", settings.rollout.startswith("vllm")
    # Alone, ZeRO-3 gathers the whole model for the engine.
    parts: dict[str, object] = {"move_model_batches": 16} if engine else {}
    if settings.zero == 3 and engine and settings.move_model_batches <= 1:
        yield _change(1.2, "weight sync in parts", **parts)
    against = settings.shared_prefix or settings.chunked_loss or settings.sharding == "fsdp"
    if settings.may_share_prefixes and settings.batch > 1 and settings.grids and not against:
        cost = "nothing: prompts computed once, the same numbers"
        yield _change(0.5, cost, VLRFT_SHARED_PREFIX=1)
    if settings.eval_batch > 1:
        yield _change(1.8, "evaluation row by row", per_device_eval_batch_size=1)
    if not (settings.checkpoint_llm and settings.checkpoint_vit):
        names = ("gradient_checkpointing", "vit_gradient_checkpointing")
        yield _change(3, "forward computed twice", **dict.fromkeys(names, "true"))
    order: tuple[str, ...] = get_args(Sharding)
    stages = order[order.index(settings.sharding) + 1 :] if settings.processes > 1 else ()
    for rank, stage in ((4, "zero2"), (5, "zero3")):
        if stage in stages:
            yield _change(rank, "more communication", deepspeed=stage)
    if engine and "zero3" in stages:
        cost = "more communication, weight sync in parts"
        yield _change(5.1, cost, deepspeed="zero3", **parts)
    if settings.reference and full:
        yield _change(6, "no KL term, no reference model", beta=0)
    if full and not settings.deepspeed and settings.optimizer in ("adamw", "adamw_foreach"):
        yield _change(7, "moments in 8 bits", optim="adamw_8bit")
    cost = "the optimizer steps on the CPU, in host memory"
    if settings.zero >= 2 and not settings.cpu_states:
        yield _change(8, cost, deepspeed=f"zero{settings.zero}_offload")
    if not (settings.zero == 3 and settings.cpu_states):
        yield _change(8.5, f"weights, too; {cost}", deepspeed="zero3_offload", **parts)
    if settings.tuning == "lora" and not (settings.colocated or settings.shards_weights):
        cost = "QLoRA: weights in 4 bits, slower; needs bitsandbytes"
        yield _change(9.9, cost, quant_method="bnb", quant_bits=4)
    if full:
        flags = {"tuner_type": "lora"}
        if settings.learning_rate is not None and settings.learning_rate < LORA_LEARNING_RATE:
            flags["learning_rate"] = f"{LORA_LEARNING_RATE:.0e}".replace("e-0", "e-")
        if settings.sharding in ("none", "ddp") and settings.dtype != "float32":
            # The weight sync would make the adapter 16 bits (recipe/rules/clashes.toml).
            flags["deepspeed"] = "zero2"
        yield _change(10, "an adapter learns, not the model", **flags)


def _batch_changes(settings: Settings) -> Iterator[Change]:
    batch, factor = settings.batch, 1
    while batch % 2 == 0:
        batch, factor = batch // 2, factor * 2
        flags = {"per_device_train_batch_size": batch}
        flags["gradient_accumulation_steps"] = settings.accumulation * factor
        # num_generations divides the rows of a generation (_init_generation_batch_params).
        if settings.steps_per_generation is not None:
            flags["steps_per_generation"] = settings.steps_per_generation * factor
        yield _change(3.5 + factor / 10, "same step, smaller passes", **flags)


def _row_changes(settings: Settings) -> Iterator[Change]:
    area = sum(h * w for _, h, w in settings.grids[:1]) * settings.model.patch**2
    by_tokens = settings.pixels == "IMAGE_MAX_TOKEN_NUM"
    for pixels in PIXELS if settings.pixels not in ("fixed", "model_kwargs") else ():
        if pixels < 0.9 * area:
            token = (settings.model.patch * settings.model.merge) ** 2
            flags = {settings.pixels: pixels // token if by_tokens else pixels}
            yield _change(6.5 + area / pixels / 100, "small objects are seen less well", **flags)
    for length in LENGTHS if settings.rollout != "none" else ():
        if length < settings.completion:
            rank, cost = 9 + 100 / length, "longer answers are cut"
            yield _change(rank, cost, max_completion_length=length)
