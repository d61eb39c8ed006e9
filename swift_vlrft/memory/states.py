"""What the trainer keeps on a GPU for any batch: weights, gradients, optimizer, by ZeRO stage.

    model_states(settings).weights        bytes on one GPU

Formulas name the document or the function that they follow (deepspeed/runtime/zero, torch, PEFT).
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_vlrft.memory.settings import Settings

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

MOMENTS = {"adamw": 2, "adamw_foreach": 2, "adamw_8bit": 0.5, "adafactor": 0.01, "sgd": 0}
"""Optimizer -> moments per parameter, in the size of the master weights."""


@dataclass(frozen=True)
class States:
    """Bytes per GPU while training."""

    weights: int
    reference: int
    gradients: int
    master: int
    """float32 copies of the trainable weights."""
    moments: int
    step: int
    """Temporaries of the optimizer's step."""
    bucket: int
    """What a backward pass collects before it is reduced."""
    ddp_buckets: int
    """DDP's buckets, which stay."""
    live: int
    """Weights gathered for a forward or backward pass."""
    flat: int
    """Weights in DeepSpeed's flat buffers, which offload_model leaves on the GPU."""
    host: int
    """Bytes of host memory, of all processes together."""


def model_states(settings: Settings) -> States:
    world, trainable = settings.processes, trainable_parameters(settings)
    size = settings.trainable_size
    shards = world if settings.shards_weights else 1
    weights = _weights(settings, trainable) // shards
    # LoRA's reference is the model with its adapters switched off (rlhf_args.py).
    has_reference = settings.reference and settings.tuning == "full"
    reference = has_reference * settings.frozen_size * settings.model.parameters.total // shards
    master, moments, step = _optimizer(settings, trainable)
    divided = settings.zero >= 2 or settings.sharding == "fsdp"
    gradients = size * trainable // (world if divided else 1)
    host = 0
    if settings.cpu_states:
        host += (master + moments + 4 * trainable // _among(settings)) * world
        master = moments = step = gradients = 0
    if settings.cpu_parameters:
        host += (weights + reference) * world
        weights = reference = 0
    keeps_flat = settings.zero and not settings.cpu_parameters
    return States(
        weights=weights,
        reference=reference,
        gradients=gradients,
        master=master,
        moments=moments,
        step=step,
        bucket=_bucket(settings, trainable),
        # torch's Reducer holds buckets of the size of all gradients from its construction on
        # (gradient_as_bucket_view=False).
        ddp_buckets=size * trainable if settings.sharding == "ddp" else 0,
        live=_live(settings),
        flat=size * trainable // shards if keeps_flat else 0,
        host=host,
    )


def trainable_parameters(settings: Settings) -> int:
    parameters = settings.model.parameters
    if settings.tuning == "full":
        count = parameters.llm if settings.train_llm else 0
        count += parameters.vit if settings.train_vit else 0
        return count + (parameters.aligner if settings.train_aligner else 0)
    # LoRA's A and B on every linear layer of what trains (ms-swift's target all-linear).
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


def _weights(settings: Settings, trainable: int) -> int:
    """Weights of the full model with its adapters, before sharding."""
    parameters, trained = settings.model.parameters, settings.trainable_size * trainable
    if settings.tuning == "qlora":
        # Dettmers et al. 2023: 4 bits and about 0.5 more per weight of the linear layers; embedding
        # and head stay in 16 bits.
        embedding = parameters.embedding + parameters.head
        return round((parameters.total - embedding) * 0.5625) + 2 * embedding + trained
    frozen = parameters.total - (trainable if settings.tuning == "full" else 0)
    return settings.frozen_size * frozen + trained


def _among(settings: Settings) -> int:
    """The number of GPUs that share the optimizer. Stage 0 divides nothing (unfused_optimizer.py
    in deepspeed/runtime/fp16: FP16_UnfusedOptimizer, in bfloat16 too).
    """
    return settings.processes if settings.zero else 1


def _optimizer(settings: Settings, trainable: int) -> tuple[int, int, int]:
    """Master weights, moments, and temporaries of a step."""
    moments = MOMENTS[settings.optimizer] * trainable
    if settings.deepspeed:
        # deepspeed/runtime/zero: float32 master weights and moments, divided among all processes;
        # a step converts the gradients.
        among = _among(settings)
        group = SUB_GROUP if settings.zero == 3 else trainable
        return (
            4 * trainable // among,
            round(4 * moments / among),
            4 * min(trainable // among, group),
        )
    if settings.sharding == "fsdp":
        return 0, round(4 * moments / settings.processes), 0
    # torch's foreach kernels hold one list of the size of all parameters.
    step = settings.trainable_size * trainable if settings.optimizer == "adamw_foreach" else 0
    return 0, round(settings.trainable_size * moments), step


def _bucket(settings: Settings, trainable: int) -> int:
    if settings.zero == 3:
        # "auto": hidden size squared (transformers' deepspeed.py)
        return 2 * settings.model.hidden**2
    if settings.zero:
        return 2 * REDUCE_BUCKET
    if settings.sharding == "zero0" and settings.processes > 1:
        return 2 * min(trainable, ALLREDUCE)
    return 0


def _live(settings: Settings) -> int:
    parameters = settings.model.parameters
    if settings.sharding == "fsdp":
        # Two layers (one prefetched) and the root module, in 16 bits.
        layers = 2 * parameters.largest_layer
        return 2 * (layers + parameters.embedding + parameters.head)
    if settings.zero == 3 and (settings.processes > 1 or settings.cpu_parameters):
        largest = max(parameters.largest_layer, parameters.embedding)
        return 2 * min(parameters.total, LIVE_PARAMETERS + largest)
    return 0
