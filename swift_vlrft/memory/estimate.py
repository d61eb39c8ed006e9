"""The plan itself: bytes on one card in each phase of a GRPO step, by component.

    plan = estimate(settings)
    plan.peak.phase, plan.peak.total, plan.verdict        "backward", 65712345088, "fits"

A phase is what is on the card at its fullest moment; the run needs the largest of them. Formulas
name the document or the function that they follow: DeepSpeed's ZeRO (deepspeed/runtime/zero),
ms-swift's trainer (swift/rlhf_trainers/rollout_mixin.py, grpo_trainer.py), vLLM's worker (vllm.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from swift_vlrft.memory import vllm
from swift_vlrft.memory.activations import (
    BACKWARD_LLM,
    BACKWARD_LOSS,
    BACKWARD_VIT,
    FORWARD_LLM,
    FORWARD_VIT,
    LLM,
    LOSS,
    VIT,
    Activations,
    Shape,
    activations,
    shape_of,
)
from swift_vlrft.memory.settings import GIB, Settings

CONTEXT = 0.5 * GIB
"""Assumed: a CUDA context and its kernels, which torch does not count (0.4 to 0.6 GiB in public
out-of-memory reports: "process has X in use" less "allocated" and "reserved")."""

COMMUNICATION = 0.5 * GIB
"""Assumed: NCCL's buffers where several processes train."""

FRAGMENTATION = 0.04
"""Assumed: of what torch allocates, blocks that the caching allocator holds and cannot use."""

ERROR = 0.08
"""Stated error of the peak: a plan this near the card is called tight."""

LIVE_PARAMETERS = 10**9 // 2
"""Gathered weights that ZeRO-3 keeps at the turn from forward to backward: those used again within
stage3_max_reuse_distance (1e9 in swift/config/zero3.json), so half of it on either side
(deepspeed/runtime/zero/partitioned_param_coordinator.py: __params_to_release)."""

SUB_GROUP = 10**9
"""sub_group_size (swift/config/zero3.json): parameters that the optimizer steps at once."""

REDUCE_BUCKET = 2 * 10**8
"""reduce_bucket_size (swift/config/zero1.json, zero2.json), elements: taken in full however few
gradients there are (deepspeed/runtime/zero/stage_1_and_2.py: setup_buckets)."""

ALLREDUCE = 5 * 10**8
"""Elements that stage 0 flattens at once (deepspeed/runtime/engine.py: allreduce_gradients)."""

SYNC_BUCKET = 512 * 2**20
"""SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE: weights that go to a rollout server at once."""

Components = dict[str, int]

WEIGHTS, REFERENCE, GRADIENTS = "weights", "reference model", "gradients"
OPTIMIZER, GATHERS, KV = "optimizer", "gathers", "KV cache"
VLLM_WEIGHTS, VLLM_OTHER, GRAPHS = "vLLM weights", "vLLM activations", "CUDA graphs"
CONTEXT_NAME = "context, fragmentation"
TEMPORARIES = "temporaries"

COMPONENTS = (
    WEIGHTS,
    REFERENCE,
    GRADIENTS,
    OPTIMIZER,
    LLM,
    VIT,
    "logits",
    TEMPORARIES,
    GATHERS,
    VLLM_WEIGHTS,
    KV,
    VLLM_OTHER,
    GRAPHS,
    CONTEXT_NAME,
)

PHASES = (
    "load",
    "vLLM start",
    "weight sync",
    "rollout",
    "old/reference log-probabilities",
    "forward",
    "backward",
    "optimizer step",
    "eval",
    "save",
    "rollout card",
)


@dataclass(frozen=True)
class Phase:
    name: str
    parts: Components

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Plan:
    settings: Settings
    phases: list[Phase]
    how: str
    host: int
    """Bytes of host memory per machine that offloading and sleeping take."""
    failures: list[str] = field(default_factory=list)
    """What cannot work whatever the bytes: vLLM's refusals to start."""

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def headroom(self) -> int:
        return self.settings.gpu_bytes - self.peak.total

    @property
    def verdict(self) -> str:
        """fits | tight | out of memory"""
        if self.headroom < 0 or self.failures:
            return "out of memory"
        return "tight" if self.peak.total * (1 + ERROR) > self.settings.gpu_bytes else "fits"

    @property
    def fits(self) -> bool:
        return self.verdict != "out of memory"

    def as_dict(self) -> dict[str, Any]:
        capacity = self.settings.gpu_bytes
        return {
            "verdict": self.verdict,
            "phase": self.peak.name,
            "peak_gib": gib(self.peak.total),
            "capacity_gib": gib(capacity),
            "headroom_gib": gib(self.headroom),
            "host_gib": gib(self.host),
            "error": ERROR,
            "how": self.how,
            "failures": self.failures,
            "phases": {
                phase.name: {
                    "total_gib": gib(phase.total),
                    **{name: gib(phase.parts[name]) for name in COMPONENTS if name in phase.parts},
                }
                for phase in self.phases
            },
            "assumptions": list(self.settings.assumptions),
        }


def gib(value: float) -> float:
    return round(value / GIB, 2)


Source = Callable[[Settings, Shape], Activations]


def simulated(settings: Settings, shape: Shape) -> Activations:
    return activations(settings.model, shape)


def computed(settings: Settings, shape: Shape) -> Activations:
    return activations(settings.model, shape, simulated=False)


def estimate(settings: Settings, source: Source = simulated) -> Plan:
    """The plan; ``source`` gives the activations of a shape (simulated, computed or guessed)."""
    train = source(settings, shape_of(settings))
    evaluated = source(settings, shape_of(settings, train=False))
    states = _states(settings)
    phases = [_load(settings, states)]
    failures: list[str] = []
    colocated = settings.rollout == "vllm_colocate"
    engine = vllm.engine(settings) if settings.rollout.startswith("vllm") else None
    asleep: Components = {}
    if engine and colocated:
        if settings.sleep_level:
            asleep = {GRAPHS: engine.graphs, VLLM_OTHER: round(vllm.ASLEEP)}
        else:
            asleep = _awake(engine)
        failures += _refusals(settings, engine, "--vllm_gpu_memory_utilization")
        phases.append(_start(settings, states, engine))
    if engine:
        phases.append(_sync(settings, states, engine if colocated else None, asleep))
    phases.append(_rollout(settings, states, engine if colocated else None))
    phases += _training(settings, states, train, evaluated, asleep)
    if engine and not colocated and settings.rollout_gpus:
        failures += _refusals(
            settings, engine, "the rollout server's --vllm_gpu_memory_utilization"
        )
        phases.append(Phase("rollout card", {**_awake(engine), CONTEXT_NAME: round(CONTEXT)}))
    order = {name: place for place, name in enumerate(PHASES)}
    finished = [_with_context(settings, phase) for phase in phases]
    finished.sort(key=lambda phase: order[phase.name])
    return Plan(settings, finished, train.how, _host(settings, states, engine), failures)


STANDING = ("load", "vLLM start", "weight sync", "rollout", "rollout card", "save")
"""Phases without a pass of the trainer: no simulation changes them."""

CLEARLY = 0.75
"""Of the peak: a phase below it in closed form is not the peak in a simulation either."""


def estimate_where_it_matters(settings: Settings) -> Plan:
    """``estimate``, simulated only where a pass of the trainer can be the peak.

    For recipes' headers and their test, which plan every recipe.
    """
    plan = estimate(settings, computed)
    passes = [phase.total for phase in plan.phases if phase.name not in STANDING]
    if plan.peak.name in STANDING and max(passes, default=0) < CLEARLY * plan.peak.total:
        return plan
    return estimate(settings, simulated)


# What stands on the card ------------------------------------------------------------------------


@dataclass(frozen=True)
class _States:
    """Bytes per card while training; the trainer's own, without activations."""

    trainable: int
    """Parameters."""
    weights: int
    reference: int
    gradients: int
    gradients_persist: bool
    master: int
    moments: int
    step: int
    """Temporaries of the optimizer's step."""
    bucket: int
    """What a backward pass collects before it is reduced."""
    buckets: int
    """DDP's, which stay."""
    live: int
    """Weights gathered for a forward or backward pass."""
    flat: int
    """Weights in DeepSpeed's flat buffers, which offload_model leaves on the card."""
    host: int


def trainable_parameters(settings: Settings) -> int:
    parameters = settings.model.parameters
    if settings.tuning == "full":
        count = parameters.llm if settings.train_llm else 0
        count += parameters.vit if settings.train_vit else 0
        return count + (parameters.aligner if settings.train_aligner else 0)
    return _adapters(settings)


def _adapters(settings: Settings) -> int:
    """LoRA's A and B on every linear layer of what trains (ms-swift's target all-linear)."""
    model, rank, count = settings.model, settings.lora_rank, 0
    if settings.train_llm:
        query, key = model.heads * model.head_size, model.kv_heads * model.head_size
        sides = 2 * (model.hidden + query) + 2 * (model.hidden + key)
        wide = int(model.text.get("moe_intermediate_size") or model.intermediate)
        sides += 3 * (model.hidden + wide) * max(1, model.experts)
        count += model.layers * rank * sides
    if settings.train_vit and model.sees:
        hidden, wide = model.vit_hidden, model.vit_intermediate
        sides = 4 * hidden + 2 * hidden + (3 if model.facts.vit_gated else 2) * (hidden + wide)
        count += model.vit_layers * rank * sides
    return count


def _states(settings: Settings) -> _States:
    model, world = settings.model, settings.processes
    total, trainable = model.parameters.total, trainable_parameters(settings)
    size = 4 if settings.float32_states or settings.dtype == "float32" else 2
    own = settings.trainable_size
    if settings.tuning == "qlora":
        # Dettmers et al. 2023: 4 bits and about 0.5 more per weight of the linear layers; embedding
        # and head stay in 16 bits.
        embedding = model.parameters.embedding + model.parameters.head
        weights = round((total - embedding) * 0.5625) + 2 * embedding + own * trainable
    elif settings.tuning == "lora":
        weights = size * total + own * trainable
    else:
        weights = size * (total - trainable) + own * trainable
    shards = world if settings.shards_weights else 1
    live = host = step = bucket = buckets = 0
    if settings.zero == 3:
        gathered = min(
            total, LIVE_PARAMETERS + max(model.parameters.largest_layer, model.parameters.embedding)
        )
        live = 2 * gathered if world > 1 or settings.cpu_parameters else 0
        bucket = 2 * model.hidden**2  # "auto": hidden size squared (transformers' deepspeed.py)
    elif settings.sharding == "fsdp":
        # Two layers (one prefetched) and the root's own, in 16 bits.
        live = 2 * (2 * model.parameters.largest_layer)
        live += 2 * (model.parameters.embedding + model.parameters.head)
    elif settings.zero:
        bucket = 2 * REDUCE_BUCKET
    elif settings.sharding == "zero0":
        bucket = 2 * min(trainable, ALLREDUCE) if world > 1 else 0
    elif settings.sharding == "ddp":
        # torch's Reducer holds buckets of the size of all gradients from its construction on
        # (gradient_as_bucket_view=False).
        buckets = own * trainable
    # Stage 0 divides nothing (deepspeed/runtime/fp16/unfused_optimizer.py: FP16_UnfusedOptimizer,
    # in bfloat16 too).
    among = world if settings.zero else 1
    moments_of = {"adamw": 2, "adamw_foreach": 2, "adamw_8bit": 0.5, "adafactor": 0.01, "sgd": 0}
    moments = moments_of[settings.optimizer] * trainable
    master = 0
    if settings.deepspeed:
        # deepspeed/runtime/zero: float32 master weights and moments, divided among all processes;
        # a step converts the gradients.
        master = 4 * trainable // among
        moment_bytes = round(4 * moments / among)
        step = 4 * min(trainable // among, SUB_GROUP if settings.zero == 3 else trainable)
    elif settings.sharding == "fsdp":
        moment_bytes = round(4 * moments / world)
    else:
        moment_bytes = round(own * moments)
        if settings.optimizer == "adamw_foreach":
            # torch's foreach kernels hold one list of the size of all parameters.
            step = own * trainable
    if settings.zero >= 2 or settings.sharding == "fsdp":
        gradients = own * trainable // world
    else:
        gradients = own * trainable
    if settings.cpu_states:
        host += (master + moment_bytes + 4 * trainable // among) * world
        master = moment_bytes = step = gradients = 0
    weights //= shards
    flat = own * trainable // shards if settings.zero and not settings.cpu_parameters else 0
    # LoRA's reference is the model with its adapters switched off (rlhf_args.py).
    apart = settings.reference and settings.tuning == "full"
    reference = size * total // shards if apart else 0
    if settings.cpu_parameters:
        host += (weights + reference) * world
        weights = reference = 0
    return _States(
        trainable=trainable,
        weights=weights,
        reference=reference,
        gradients=gradients,
        gradients_persist=settings.zero == 3,
        master=master,
        moments=moment_bytes,
        step=step,
        bucket=bucket,
        buckets=buckets,
        live=live,
        flat=flat,
        host=host,
    )


def _base(states: _States) -> Components:
    return {
        WEIGHTS: states.weights,
        REFERENCE: states.reference,
        OPTIMIZER: states.master + states.moments,
    }


def _plus(*many: Components) -> Components:
    total: Components = {}
    for parts in many:
        for name, value in parts.items():
            total[name] = total.get(name, 0) + value
    return total


def _awake(engine: vllm.Engine) -> Components:
    return {
        VLLM_WEIGHTS: engine.weights,
        KV: max(0, engine.kv_cache),
        VLLM_OTHER: engine.profile,
        GRAPHS: engine.graphs,
    }


def _with_context(settings: Settings, phase: Phase) -> Phase:
    engine = (VLLM_WEIGHTS, KV, VLLM_OTHER, GRAPHS, CONTEXT_NAME)
    torch = sum(value for name, value in phase.parts.items() if name not in engine)
    rest = phase.parts.get(CONTEXT_NAME, round(CONTEXT)) + round(FRAGMENTATION * torch)
    if settings.processes > 1 and phase.name != "rollout card":
        rest += round(COMMUNICATION)
    return Phase(phase.name, {k: v for k, v in {**phase.parts, CONTEXT_NAME: rest}.items() if v})


# Phases ---------------------------------------------------------------------------------------


def _load(settings: Settings, states: _States) -> Phase:
    parts = {WEIGHTS: states.weights, REFERENCE: states.reference}
    if settings.shards_weights:
        # transformers under zero.Init: a tensor is whole until its partition is taken.
        parts[GATHERS] = 2 * settings.model.parameters.embedding
    return Phase("load", parts)


def _start(settings: Settings, states: _States, engine: vllm.Engine) -> Phase:
    """rollout_mixin.py: _prepare_vllm, before the optimizer exists; offload_model empties first."""
    trainer: Components = {WEIGHTS: states.weights, REFERENCE: states.reference}
    if settings.offload_model:
        trainer = {}
    return Phase("vLLM start", _plus(trainer, _awake(engine)))


def _resident(settings: Settings, states: _States, *, offloaded: bool) -> Components:
    """The trainer between two steps: no gradients but DeepSpeed's flat buffer."""
    parts = _base(states)
    parts[GRADIENTS] = states.buckets + (states.gradients if states.gradients_persist else 0)
    if offloaded and settings.offload_model:
        # It points param.data (ZeRO-3: ds_tensor.data) to copies in host memory. What those were
        # views of stays: bit16_groups_flat of ZeRO-1 and 2 (deepspeed/runtime/zero/
        # stage_1_and_2.py), lp_param_buffer of ZeRO-3 (stage3.py), of the weights that train.
        parts[WEIGHTS], parts[REFERENCE] = states.flat, 0
    if offloaded and settings.offload_optimizer:
        # offload_optimizer moves optimizer.state: the moments. ZeRO's float32 master weights and
        # flat gradient buffer are not in it.
        parts[OPTIMIZER] = states.master
    return parts


def _sync(
    settings: Settings, states: _States, engine: vllm.Engine | None, asleep: Components
) -> Phase:
    """_fast_infer wakes the engine's weights and copies ours into them before it offloads anything.

    Under ZeRO-3 a group of parameters is whole on every card at a time: all of them, or one of
    move_model_batches groups of layers (split_batches).
    """
    parts = _resident(settings, states, offloaded=False)
    parameters = settings.model.parameters
    if settings.shards_weights and settings.sync_by_parameter:
        parts[GATHERS] = 2 * parameters.embedding
    elif settings.shards_weights:
        batches = max(1, settings.move_model_batches)
        whole = parameters.total
        if batches > 1:
            whole = max(
                parameters.layers // batches,
                parameters.largest_layer,
                parameters.embedding + parameters.head + parameters.vit + parameters.aligner,
            )
        parts[GATHERS] = 2 * whole
    if engine:
        if settings.sleep_level:
            parts = _plus(parts, asleep, {VLLM_WEIGHTS: engine.weights})
        else:
            parts = _plus(parts, asleep)
    else:
        # rollout_mixin.py: _move_full_model_to_vllm. Parameters go in flattened buckets
        # (enable_flattened_weight_sync, on by default); one larger than a bucket alone.
        parts[TEMPORARIES] = max(SYNC_BUCKET, 2 * parameters.embedding)
    return Phase("weight sync", parts)


def _rollout(settings: Settings, states: _States, engine: vllm.Engine | None) -> Phase:
    parts = _resident(settings, states, offloaded=engine is not None)
    if engine:
        return Phase("rollout", _plus(parts, _awake(engine)))
    if settings.rollout == "transformers":
        model = settings.model
        if settings.shards_weights and settings.gather_for_generation:
            # unwrap_model_for_generation gathers the whole model (ds3_gather_for_generation).
            parts[GATHERS] = 2 * model.parameters.total
        rows = settings.generated_at_once
        parts[KV] = rows * settings.length * vllm.kv_bytes(settings)
        tokens = rows * max(1, settings.length - settings.completion)
        patches = rows * sum(t * h * w for t, h, w in settings.grids)
        prefill = tokens * 2 * (3 * model.intermediate + 6 * model.hidden)
        if settings.all_logits:
            # Before logits_to_keep the head computed the whole prompt's, in generate() too.
            prefill = max(prefill, tokens * model.vocabulary * 2)
        encoder = patches * 2 * (3 * model.vit_intermediate + 8 * model.vit_hidden)
        sampler = rows * model.vocabulary * 4 * 3
        parts[TEMPORARIES] = max(prefill, encoder, sampler)
    return Phase("rollout", parts)


def _training(
    settings: Settings,
    states: _States,
    train: Activations,
    evaluated: Activations,
    asleep: Components,
) -> list[Phase]:
    base = _plus(_base(states), asleep)
    base[GRADIENTS] = states.buckets + (states.gradients if states.gradients_persist else 0)
    if settings.shared_prefix and not settings.train_vit:
        # shared_prefix/features.py: the images' features of one generation batch.
        groups = -(-settings.generated_at_once // max(1, settings.generations))
        features = groups * settings.image_tokens * settings.model.hidden * 2
        base[VIT] = min(settings.feature_cache, features)
    before = base
    if settings.offload_model and settings.rollout == "vllm_colocate":
        # rollout_mixin.py: load_model copies the weights back beside DeepSpeed's flat buffers; the
        # optimizer's step makes the parameters views of those again.
        base = _plus(base, {WEIGHTS: states.flat})
    live: Components = {GATHERS: states.live}
    phases = []
    dense = 0
    if settings.dense_vit_attention:
        # Scores and their softmax of every head, in float32: scaled_dot_product_attention's math
        # kernel computes 16 bits so since torch 2.5 (allow_fp16_bf16_reduction_math_sdp).
        patches = settings.batch * sum(t * h * w for t, h, w in settings.grids)
        dense = 2 * 4 * settings.model.vit_heads * patches**2
    passed = evaluated.at(FORWARD_VIT, FORWARD_LLM, LOSS)
    if settings.reference_in_loss and settings.reference:
        kept = dict(train.at(LOSS))
        # The logits themselves are gone by then; their log-softmax stays for the backward pass.
        kept["logits"] = kept.get("logits", 0) // 2
        phases.append(Phase("old/reference log-probabilities", _plus(base, live, kept, passed)))
    elif settings.reference or settings.old_logps:
        phases.append(Phase("old/reference log-probabilities", _plus(base, live, passed)))
    # From the second micro-batch on, the gradients of the first are there.
    early: Components = {}
    if not states.gradients_persist and settings.accumulation > 1:
        early = {GRADIENTS: states.gradients}
    late: Components = {} if states.gradients_persist else {GRADIENTS: states.gradients}
    bucket: Components = {TEMPORARIES: states.bucket}
    forward = train.at(FORWARD_VIT, FORWARD_LLM, LOSS)
    phases.append(Phase("forward", _plus(base, live, early, forward, {TEMPORARIES: dense})))
    moments = [
        _plus(base, live, bucket, early, train.at(BACKWARD_LOSS, BACKWARD_LLM)),
        # A ViT that trains recomputes its scores and needs their gradient besides.
        _plus(
            base,
            live,
            bucket,
            late,
            train.at(BACKWARD_VIT),
            {TEMPORARIES: dense * 3 // 2 if settings.train_vit else 0},
        ),
    ]
    phases.append(Phase("backward", max(moments, key=lambda parts: sum(parts.values()))))
    phases.append(Phase("optimizer step", _plus(base, late, {TEMPORARIES: states.step})))
    if settings.eval_batch:
        factor = settings.eval_batch / settings.batch
        scaled = {name: round(value * factor) for name, value in passed.items()}
        phases.append(Phase("eval", _plus(base, live, scaled)))
    save: Components = {}
    if settings.shards_weights:
        # stage3_gather_16bit_weights_on_model_save: one parameter after another, to host memory.
        save = {GATHERS: 2 * settings.model.parameters.embedding}
    phases.append(Phase("save", _plus(before, save)))
    return phases


def _refusals(settings: Settings, engine: vllm.Engine, flag: str) -> list[str]:
    needed = engine.weights + engine.profile + engine.needed_kv
    if needed <= engine.share:
        return []
    share = needed / settings.gpu_bytes
    shorter = needed - engine.needed_kv + vllm.row_bytes(settings, settings.length)
    if shorter <= engine.share:
        way = f"--vllm_max_model_len for rows of {settings.length} tokens makes it smaller"
    elif share < 0.95:
        way = f"{share + 0.01:.2f} holds them"
    else:
        way = "a larger vllm_tensor_parallel_size divides the weights"
    length = settings.vllm_max_length or settings.length
    return [
        f"vLLM start: weights {gib(engine.weights)}, its profiled pass {gib(engine.profile)} and "
        f"the KV cache of one row of {length} tokens {gib(engine.needed_kv)} GiB do not go into "
        f"{flag} {settings.vllm_utilization:g} ({gib(engine.share)} GiB); {way}"
    ]


def _host(settings: Settings, states: _States, engine: vllm.Engine | None) -> int:
    cards = max(1, settings.processes // max(1, settings.nodes))
    total = states.host // max(1, settings.nodes)
    if engine and settings.rollout == "vllm_colocate":
        total += engine.host * cards
        if settings.offload_model:
            total += (states.weights + states.reference) * cards
        if settings.offload_optimizer:
            total += states.moments * cards
    return total
