"""Count what the trainer keeps on a GPU: weights, gradients, optimizer, by ZeRO stage.

    model_states(settings).weights        bytes on one GPU

Formulas name the document or the function that they follow (deepspeed/runtime/zero, torch, PEFT).
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_vlrft.memory.settings import Settings

LIVE_PARAMETERS = 10**9 // 2
"""ZeRO-3 keeps so many gathered weights between forward and backward: those used again within
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


QUANTIZED = {4: 0.5625, 8: 1.01}
"""bitsandbytes: bytes of a weight of a decoder layer, with the scales of its blocks of 64 (Dettmers
et al. 2023) or of its rows. Embedding, head, ViT and aligner stay in 16 bits."""


@dataclass(frozen=True)
class States:
    """States are the bytes on each GPU while training."""

    weights: int
    reference: int
    gradients: int
    master: int  # float32 copies of the trainable weights
    moments: int
    step: int  # Temporaries of the optimizer's step
    bucket: int  # What a backward pass collects before it is reduced
    ddp_buckets: int  # DDP's buckets, which stay
    live: int  # Weights gathered for a forward or backward pass
    flat: int  # Weights in DeepSpeed's flat buffers, which offload_model leaves on the GPU
    host: int  # Bytes of host memory, of all processes together


def model_states(s: Settings) -> States:
    world, trained = s.processes, trained_bytes(s)
    trainable = trainable_parameters(s)
    # A single process with several GPUs has its layers, and what belongs to them, on all of them.
    shards = world if s.shards_weights else s.spread
    # Stage 0 divides nothing (deepspeed/runtime/fp16/unfused_optimizer.py, in bfloat16 too).
    among = world if s.zero else s.spread
    weights = _weights(s) // shards
    # LoRA's reference is the model with its adapters switched off (rlhf_args.py).
    has_reference = s.reference and s.tuning == "full"
    reference = has_reference * s.frozen_size * s.model.parameters.total // shards
    gradients = trained // (world if s.zero >= 2 or s.sharding == "fsdp" else s.spread)
    moments, master, step, host = MOMENTS[s.optimizer] * trainable, 0, 0, 0
    if s.deepspeed:
        # deepspeed/runtime/zero: float32 master weights and moments, divided among all processes;
        # a step converts the gradients.
        master, moments = 4 * trainable // among, 4 * moments / among
        step = 4 * min(trainable // among, SUB_GROUP if s.zero == 3 else trainable)
    elif s.sharding == "fsdp":
        moments = 4 * moments / world
    else:
        moments = MOMENTS[s.optimizer] * trained / s.spread
        # torch's foreach kernels hold one list of the size of all parameters.
        step = trained // s.spread if s.optimizer == "adamw_foreach" else 0
    moments = round(moments)
    if s.cpu_states:
        host += (master + moments + 4 * trainable // among) * world
        master = moments = step = gradients = 0
    if s.cpu_parameters:
        host += (weights + reference) * world
        weights = reference = 0
    return States(
        **{"weights": weights, "reference": reference, "gradients": gradients, "host": host},
        **{"master": master, "moments": moments, "step": step},
        bucket=_bucket(s, trainable),
        # torch's Reducer holds buckets of the size of all gradients from its construction on
        # (gradient_as_bucket_view=False).
        ddp_buckets=trained if s.sharding == "ddp" else 0,
        live=_live(s),
        flat=trained // shards if s.zero and not s.cpu_parameters else 0,
    )


def trainable_parameters(s: Settings) -> int:
    return fully_trained(s) + adapters(s)


def trained_bytes(s: Settings) -> int:
    """Return the bytes of the weights that train; their gradients take as many."""
    whole = 4 if s.float32_trainable else s.frozen_size
    return whole * fully_trained(s) + s.trainable_size * adapters(s)


def fully_trained(s: Settings) -> int:
    """Count parameters that train in full: of all parts, or (lora_llm) of the ViT beside LoRA's."""
    parameters, llm = s.model.parameters, s.train_llm and s.tuning == "full"
    if s.tuning not in ("full", "lora_llm"):
        return 0
    vision = parameters.vit * s.train_vit + parameters.aligner * s.train_aligner
    return vision + parameters.llm * llm


def adapters(s: Settings) -> int:
    """Count LoRA's A and B on the linear layers that train: all, or only ``lora_targets``."""
    model, count = s.model, 0
    if s.tuning == "full":
        return 0
    if s.train_llm:
        count += model.layers * _sides(s, model.linear)
    if s.train_vit and model.sees and s.tuning != "lora_llm":
        count += model.vit_layers * _sides(s, model.vit_linear)
    return s.lora_rank * count + s.saved_embeddings * model.parameters.embedding


def _sides(s: Settings, layers: dict[str, tuple[int, int]]) -> int:
    return sum(sum(layers[name]) for name in s.lora_targets or layers if name in layers)


def _weights(s: Settings) -> int:
    """Weights of the full model with its adapters, before sharding."""
    parameters, trained = s.model.parameters, trained_bytes(s)
    if s.tuning == "qlora":
        # swift/arguments/base_args/quant_args.py: get_modules_to_not_convert.
        # Gemma 4's tables, which are looked up, stand beside its layers.
        linear = min(parameters.layers, parameters.largest_layer * s.model.layers)
        whole = parameters.total - linear
        return round(linear * QUANTIZED[s.quant_bits]) + 2 * whole + trained
    return s.frozen_size * (parameters.total - fully_trained(s)) + trained


def _bucket(s: Settings, trainable: int) -> int:
    if s.zero == 3:
        return 2 * s.model.hidden**2  # "auto" (transformers' deepspeed.py)
    if s.zero:
        return 2 * REDUCE_BUCKET
    return 2 * min(trainable, ALLREDUCE) if s.deepspeed and s.processes > 1 else 0


def _live(s: Settings) -> int:
    parameters = s.model.parameters
    if s.sharding == "fsdp":
        # Two layers (one prefetched) and the root module, in 16 bits.
        return 2 * (2 * parameters.largest_layer + parameters.embedding + parameters.head)
    if s.zero == 3 and (s.processes > 1 or s.cpu_parameters):
        largest = max(parameters.largest_layer, parameters.embedding)
        return 2 * min(parameters.total, LIVE_PARAMETERS + largest)
    return 0
