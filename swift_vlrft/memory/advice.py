"""What to change: the cheapest changes that make a run fit, and what to raise where there is room.

    for change in advise(plan, source):
        change.label, change.flags, change.cost, change.peak
    "move_model_batches 16", {"move_model_batches": "16"}, "weight sync a little slower", 19.7 GiB

A change is a flag of ms-swift, what it costs in speed or quality, and the Settings it makes. Many
are tried, so that activations of other shapes are guessed from the simulated ones by the ratio of
their closed forms; what is shown is then simulated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from swift_vlrft.memory.activations import Activations, Shape, cached, scaled, shape_of
from swift_vlrft.memory.estimate import Plan, Source, estimate
from swift_vlrft.memory.settings import GIB, Settings

Written = Callable[[Mapping[str, str]], Settings | None]
"""Settings of the recipe with these flags in it; None where they must not be written (a rule of
ms-swift between flags, or of this package, is broken by them)."""

LORA_LEARNING_RATE = 1e-5
"""Of our LoRA recipes; what is right for all weights (1e-6) hardly moves an adapter."""

DEAR = 3.0
"""Rank from which several cheap changes together are looked for beside a single one."""


@dataclass(frozen=True)
class Change:
    label: str
    flags: dict[str, str]
    """ms-swift's flags; names in capitals are environment variables."""
    cost: str
    rank: float
    """Smaller is cheaper: first speed that hardly changes, then slower, then other results."""
    settings: Settings
    plan: Plan | None = None

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


def guessing(settings: Settings, source: Source) -> Source:
    """Activations of other shapes by ratio; those of ``settings`` and of the cache as they are."""
    known = {
        train: (shape_of(settings, train=train), source(settings, shape_of(settings, train=train)))
        for train in (True, False)
    }

    def guess(other: Settings, shape: Shape) -> Activations:
        before, activations = known[shape.train]
        if shape == before:
            return activations
        if activations.how == "simulated" and cached(other.model, shape):
            return source(other, shape)
        return scaled(activations, other.model, before, shape)

    return guess


def advise(plan: Plan, source: Source, written: Written | None = None) -> list[Change]:
    """Changes that make a plan fit, cheapest first; single ones, then the smallest set of several.

    Empty where the plan fits, or where no set of changes helps. With ``written`` each is planned as
    the recipe would then read.
    """
    if plan.fits:
        return []
    guess = guessing(plan.settings, source)
    tried = [_planned(change, guess) for change in _writable(changes(plan.settings), written)]
    found = [change for change in tried if change.fits][:4]
    if not found or found[0].rank > DEAR:
        combined = _together(plan, guess)
        if combined and all(combined.flags != change.flags for change in found):
            several = _writable([combined], written)
            found = sorted([*several, *found], key=lambda change: change.rank)[:4]
    return [change for change in (_planned(c, source) for c in found) if change.fits]


def _writable(changes: list[Change], written: Written | None) -> list[Change]:
    if written is None:
        return changes
    read = [(change, written(change.flags)) for change in changes]
    return [replace(change, settings=settings) for change, settings in read if settings]


def _planned(change: Change, source: Source) -> Change:
    return replace(change, plan=estimate(change.settings, source))


def _together(plan: Plan, guess: Source) -> Change | None:
    """Cheapest first, each only if it lowers the peak; then every one that is not needed goes."""
    taken: list[str] = []
    now, best = plan.settings, plan
    for _ in range(12):
        options = [_planned(c, guess) for c in changes(now) if c.label not in taken]
        options = [c for c in options if c.plan and _need(c.plan) < _need(best) - 0.02 * GIB]
        if not options:
            return None
        fitting = [c for c in options if c.fits]
        step = fitting[0] if fitting else options[0]
        taken.append(step.label)
        now = step.settings
        assert step.plan is not None
        best = step.plan
        if best.fits:
            break
    else:
        return None
    for label in list(taken):
        fewer = [name for name in taken if name != label]
        change = _apply(plan.settings, fewer)
        if change and _planned(change, guess).fits:
            taken = fewer
    return _apply(plan.settings, taken)


def _need(plan: Plan) -> float:
    return plan.peak.total + (plan.settings.gpu_bytes if plan.failures else 0)


def _apply(settings: Settings, labels: list[str]) -> Change | None:
    flags: dict[str, str] = {}
    costs, rank, now = [], 0.0, settings
    for label in labels:
        change = next((c for c in changes(now) if c.label == label), None)
        if change is None:
            return None
        now, rank = change.settings, rank + change.rank
        flags |= change.flags
        costs.append(change.cost)
    return Change(" + ".join(labels), flags, "; ".join(dict.fromkeys(costs)), rank, now)


def changes(s: Settings) -> list[Change]:
    """Every single change that these settings allow, cheapest first."""
    return sorted(_changes(s), key=lambda change: change.rank)


def _changes(s: Settings) -> Iterator[Change]:
    def change(label: str, rank: float, cost: str, flags: dict[str, str], **new: object) -> Change:
        return Change(label, flags, cost, rank, replace(s, **new))  # type: ignore[arg-type]

    if s.rollout == "vllm_colocate":
        if s.sleep_level == 0:
            yield change(
                "sleep_level 1", 1, "seconds a step to wake", {"sleep_level": "1"}, sleep_level=1
            )
        if not s.offload_optimizer and s.sleep_level:
            yield change(
                "offload_optimizer",
                2,
                "seconds a step, host memory",
                {"offload_optimizer": "true"},
                offload_optimizer=True,
            )
        if not s.offload_model and s.sleep_level:
            yield change(
                "offload_model",
                2.1,
                "seconds a step, host memory",
                {"offload_model": "true"},
                offload_model=True,
            )
        # The longest row that this run can make, and so all that the engine has to hold.
        prompt = s.max_length or s.length - s.completion
        longest = -(-(max(prompt, s.length - s.completion) + s.completion) // 1024) * 1024
        if s.vllm_max_length and s.vllm_max_length > longest:
            yield change(
                f"vllm_max_model_len {longest}",
                0.4,
                "nothing: no row is longer" if s.max_length else "longer rows are refused",
                {"vllm_max_model_len": str(longest)},
                vllm_max_length=longest,
            )
        for share in (0.7, 0.6, 0.5, 0.4, 0.3):
            if share < s.vllm_utilization - 0.05:
                yield change(
                    f"vllm_gpu_memory_utilization {share}",
                    1.5 + (s.vllm_utilization - share),
                    "fewer rows generated at once",
                    {"vllm_gpu_memory_utilization": str(share)},
                    vllm_utilization=share,
                )
        for tp in (2, 4, 8):
            if tp > s.vllm_tp and s.processes % tp == 0 and s.model.heads % tp == 0:
                yield change(
                    f"vllm_tensor_parallel_size {tp}",
                    2.5 + tp / 10,
                    "slower rollout of a small model",
                    {"vllm_tensor_parallel_size": str(tp)},
                    vllm_tp=tp,
                )
        for share in (0.8, 0.9):
            if share > s.vllm_utilization + 0.05 and s.sleep_level:
                yield change(
                    f"vllm_gpu_memory_utilization {share}",
                    2.8,
                    "less room beside the engine",
                    {"vllm_gpu_memory_utilization": str(share)},
                    vllm_utilization=share,
                )
    if s.zero == 3 and s.rollout.startswith("vllm") and s.move_model_batches == 1:
        yield change(
            "move_model_batches 16",
            1.2,
            "weight sync a little slower",
            {"move_model_batches": "16"},
            move_model_batches=16,
        )
    shareable = s.model.shares_prefixes and s.grids and s.batch > 1 and s.may_share_prefixes
    if shareable and not s.shared_prefix and not s.chunked_loss and s.sharding != "fsdp":
        yield change(
            "VLRFT_SHARED_PREFIX=1",
            0.5,
            "nothing: faster, the same numbers",
            {"VLRFT_SHARED_PREFIX": "1"},
            shared_prefix=True,
            feature_cache=512 << 20,
        )
    if not s.checkpoint_llm or not s.checkpoint_vit:
        yield change(
            "gradient_checkpointing, ViT included",
            3,
            "one more forward pass, about 30 % slower",
            {"gradient_checkpointing": "true", "vit_gradient_checkpointing": "true"},
            checkpoint_llm=True,
            checkpoint_vit=True,
        )
    if s.may_use_liger and not (s.chunked_loss or s.all_logits or s.shared_prefix):
        yield change(
            "use_liger_kernel",
            3.2,
            "needs liger-kernel",
            {"use_liger_kernel": "true"},
            chunked_loss=True,
        )
    batch = s.batch
    while batch > 1 and batch % 2 == 0:
        batch //= 2
        factor = s.batch // batch
        yield change(
            f"per_device_train_batch_size {batch} with {s.accumulation * factor} accumulated",
            3.5 + factor / 10,
            "same step, smaller passes",
            {
                "per_device_train_batch_size": str(batch),
                "gradient_accumulation_steps": str(s.accumulation * factor),
                **_steps(s, s.batch, batch),
            },
            batch=batch,
            accumulation=s.accumulation * factor,
            steps_per_generation=s.steps_per_generation and s.steps_per_generation * factor,
            rollout_batch=s.generated_at_once,
        )
    if s.processes > 1:
        order = ["none", "ddp", "zero0", "zero1", "zero2", "zero3"]
        for number, stage in enumerate(("zero2", "zero3")):
            if s.sharding in order and order.index(s.sharding) < order.index(stage):
                yield change(
                    f"deepspeed {stage}",
                    4 + number,
                    "more communication",
                    {"deepspeed": stage},
                    sharding=stage,
                )
    if s.zero >= 2 and not s.cpu_states:
        yield change(
            f"deepspeed zero{s.zero}_offload",
            8,
            "the optimizer steps on the CPU: several times slower, host memory",
            {"deepspeed": f"zero{s.zero}_offload"},
            cpu_states=True,
            cpu_parameters=s.zero == 3,
        )
    if s.optimizer in ("adamw", "adamw_foreach") and s.tuning == "full" and not s.deepspeed:
        yield change(
            "optim adamw_8bit",
            7,
            "moments in 8 bits",
            {"optim": "adamw_8bit"},
            optimizer="adamw_8bit",
        )
    if s.reference and s.tuning == "full":
        yield change("beta 0", 6, "no KL term, no reference model", {"beta": "0"}, reference=False)
    area = sum(h * w for _, h, w in s.grids[:1]) * s.model.patch**2
    for pixels in (602112, 401408, 200704):
        if s.grids and pixels < 0.9 * area:
            scale = (pixels / area) ** 0.5
            grids = tuple((t, _even(h * scale), _even(w * scale)) for t, h, w in s.grids)
            flags = _pixel_flags(s, pixels)
            yield change(
                " ".join(f"{name} {value}" for name, value in flags.items()),
                6.5 + (area / pixels) / 100,
                "small things are seen less well",
                flags,
                grids=grids,
            )
    for length in (1024, 512, 256):
        if length < s.completion:
            yield change(
                f"max_completion_length {length}",
                9 + 100 / length,
                "longer answers are cut",
                {"max_completion_length": str(length)},
                completion=length,
            )
    if s.tuning == "full":
        flags = {"tuner_type": "lora"}
        if s.learning_rate is not None and s.learning_rate < LORA_LEARNING_RATE:
            flags["learning_rate"] = f"{LORA_LEARNING_RATE:.0e}".replace("e-0", "e-")
        bare = s.sharding in ("none", "ddp") and s.dtype != "float32"
        if bare:  # the weight sync would make the adapter 16 bits (recipe/rules/batches.py)
            flags["deepspeed"] = "zero2"
        yield change(
            "tuner_type lora",
            10,
            "an adapter learns, not the model",
            flags,
            tuning="lora",
            sharding="zero2" if bare else s.sharding,
        )


def _steps(s: Settings, before: int, batch: int) -> dict[str, str]:
    """--steps_per_generation, where it is set, for another batch: as many rows to a generation,
    which num_generations must divide (swift/rlhf_trainers/args_mixin.py:
    _init_generation_batch_params).
    """
    if s.steps_per_generation is None:
        return {}
    return {"steps_per_generation": str(s.steps_per_generation * before // batch)}


def _pixel_flags(s: Settings, pixels: int) -> dict[str, str]:
    """A limit of an image's pixels, where this run's images obey one."""
    if s.pixels == "IMAGE_MAX_TOKEN_NUM":
        return {s.pixels: str(pixels // (s.model.patch * s.model.merge) ** 2)}
    if s.pixels == "model_kwargs":
        given = json.loads(s.model_kwargs)
        names = {name.upper(): name for name in given}
        if name := names.get("IMAGE_MAX_TOKEN_NUM"):
            given[name] = pixels // (s.model.patch * s.model.merge) ** 2
        else:
            given[names["MAX_PIXELS"]] = pixels
        return {"model_kwargs": json.dumps(given)}
    return {s.pixels: str(pixels)}


def _even(value: float) -> int:
    return max(2, int(value) // 2 * 2)


def raises(plan: Plan, source: Source, written: Written | None = None) -> list[Change]:
    """What a plan with room could raise for speed, up to the card; ``written`` as in advise."""
    s = plan.settings
    if plan.verdict != "fits":
        return []
    guess = guessing(s, source)
    found: list[Change] = []

    def highest(options: list[Change]) -> None:
        fitting = [_planned(c, guess) for c in _writable(options, written)]
        fitting = [c for c in fitting if c.plan and c.plan.verdict == "fits"]
        if fitting:
            found.append(fitting[-1])

    def change(label: str, cost: str, flags: dict[str, str], **new: object) -> Change:
        return Change(label, flags, cost, 0, replace(s, **new))  # type: ignore[arg-type]

    step = s.batch * s.accumulation
    batches = [s.batch * 2**n for n in range(1, 6) if step % (s.batch * 2**n) == 0]
    if s.steps_per_generation:
        batches = [n for n in batches if s.batch * s.steps_per_generation % n == 0]
    if s.generation_batch:
        batches = [n for n in batches if s.generation_batch % (n * s.processes) == 0]
    highest(
        [
            change(
                f"per_device_train_batch_size {n}",
                "larger passes; accumulate less to keep the step",
                {
                    "per_device_train_batch_size": str(n),
                    "gradient_accumulation_steps": str(max(1, s.accumulation * s.batch // n)),
                    **_steps(s, s.batch, n),
                },
                batch=n,
                accumulation=max(1, s.accumulation * s.batch // n),
                rollout_batch=max(n, s.generated_at_once),
            )
            for n in batches
        ]
    )
    if s.rollout == "vllm_colocate":
        shares = [share / 20 for share in range(int(s.vllm_utilization * 20) + 1, 19)]
        highest(
            [
                change(
                    f"vllm_gpu_memory_utilization {share:g}",
                    "more rows generated at once",
                    {"vllm_gpu_memory_utilization": f"{share:g}"},
                    vllm_utilization=share,
                )
                for share in shares
            ]
        )
    if s.rollout != "transformers":
        more, new = 2 * s.generations, {"generations": 2 * s.generations}
        flags, label = {"num_generations": str(more)}, f"num_generations {more}"
        steps = s.steps_per_generation or s.accumulation
        if (s.generation_batch or s.processes * s.batch * steps) % more:
            # The completions of a generation become a multiple again.
            doubled = {
                "steps_per_generation": s.steps_per_generation,
                "generation_batch_size": s.generation_batch,
            }
            doubled = {name: n for name, n in doubled.items() if n} or {
                "gradient_accumulation_steps": s.accumulation
            }
            flags |= {name: str(2 * n) for name, n in doubled.items() if n}
            label += " with " + " ".join(f"{name} {flags[name]}" for name in doubled)
            new["rollout_batch"] = 2 * s.generated_at_once
        cost = "twice the rollout, training memory unchanged in ms-swift"
        highest([change(label, cost, flags, **new)])
    if s.checkpoint_llm:
        highest(
            [
                change(
                    "gradient_checkpointing off",
                    "about a quarter faster",
                    {"gradient_checkpointing": "false"},
                    checkpoint_llm=False,
                    checkpoint_vit=False,
                )
            ]
        )
    return found
