"""Count what the trainer keeps on a GPU: weights, gradients, optimizer, by ZeRO stage.

    model_states(settings).weights        bytes on one GPU

Formulas name the document or the function that they follow (deepspeed/runtime/zero, torch, PEFT).
"""

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
"""Moments of each optimizer for a parameter, in the size of its master weight."""

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


def model_states(settings: Settings) -> States:
    world, trained = settings.processes, trained_bytes(settings)
    trainable = trainable_parameters(settings)
    # A single process with several GPUs has its layers, and what belongs to them, on all of them.
    shards = world if settings.shards_weights else settings.spread
    # Stage 0 divides nothing (deepspeed/runtime/fp16/unfused_optimizer.py, in bfloat16 too).
    among = world if settings.zero else settings.spread
    weights = _weights(settings) // shards
    # LoRA's reference is the model with its adapters switched off (rlhf_args.py).
    has_reference = settings.reference and settings.tuning == "full"
    reference = has_reference * settings.frozen_size * settings.model.parameters.total // shards
    divided = settings.zero >= 2 or settings.sharding == "fsdp"
    gradients = trained // (world if divided else settings.spread)
    moments, master, step, host = MOMENTS[settings.optimizer] * trainable, 0, 0, 0
    if settings.deepspeed:
        # deepspeed/runtime/zero: float32 master weights and moments, divided among all processes;
        # a step converts the gradients.
        master, moments = 4 * trainable // among, 4 * moments / among
        step = 4 * min(trainable // among, SUB_GROUP if settings.zero == 3 else trainable)
        # stage_1_and_2.py, step: flattened in 16 bits before they are converted.
        step += trained // among if settings.zero in (1, 2) else 0
    elif settings.sharding == "fsdp":
        moments = 4 * moments / world
    else:
        moments = MOMENTS[settings.optimizer] * trained / settings.spread
        # torch's foreach kernels hold one list of the size of all parameters.
        step = trained // settings.spread if settings.optimizer == "adamw_foreach" else 0
    moments = round(moments)
    if settings.cpu_states:
        host += (master + moments + 4 * trainable // among) * world
        master = moments = step = gradients = 0
    if settings.cpu_parameters:
        host += (weights + reference) * world
        weights = reference = 0
    return States(
        **{"weights": weights, "reference": reference, "gradients": gradients, "host": host},
        **{"master": master, "moments": moments, "step": step},
        bucket=_bucket(settings, trainable),
        # torch's Reducer holds buckets of the size of all gradients from its construction on
        # (gradient_as_bucket_view=False).
        ddp_buckets=trained if settings.sharding == "ddp" else 0,
        live=_live(settings),
        flat=trained // shards if settings.zero and not settings.cpu_parameters else 0,
    )


def trainable_parameters(settings: Settings) -> int:
    return fully_trained(settings) + adapters(settings)


def trained_bytes(settings: Settings) -> int:
    """Return the bytes of the weights that train; their gradients take as many."""
    whole = 4 if settings.float32_trainable else settings.frozen_size
    return whole * fully_trained(settings) + settings.trainable_size * adapters(settings)


def fully_trained(settings: Settings) -> int:
    """Count parameters that train in full: of all parts, or (lora_llm) of the ViT beside LoRA's."""
    parameters, llm = settings.model.parameters, settings.train_llm and settings.tuning == "full"
    if settings.tuning not in ("full", "lora_llm"):
        return 0
    vision = parameters.vit * settings.train_vit + parameters.aligner * settings.train_aligner
    return vision + parameters.llm * llm


def adapters(settings: Settings) -> int:
    """Count LoRA's A and B on the linear layers that train: all, or only ``lora_targets``."""
    model, count = settings.model, 0
    if settings.tuning == "full":
        return 0
    if settings.train_llm:
        count += model.layers * _sides(settings, model.linear)
    if settings.train_vit and model.sees and settings.tuning != "lora_llm":
        count += model.vit_layers * _sides(settings, model.vit_linear)
    return settings.lora_rank * count + settings.saved_embeddings * model.parameters.embedding


def _sides(settings: Settings, layers: dict[str, tuple[int, int]]) -> int:
    return sum(sum(layers[name]) for name in settings.lora_targets or layers if name in layers)


def _weights(settings: Settings) -> int:
    """Return the bytes of the full model with its adapters, before sharding."""
    parameters, trained = settings.model.parameters, trained_bytes(settings)
    if settings.tuning == "qlora":
        # swift/arguments/base_args/quant_args.py: get_modules_to_not_convert.
        # Gemma 4's tables, which are looked up, stand beside its layers.
        linear = min(parameters.layers, parameters.largest_layer * settings.model.layers)
        whole = parameters.total - linear
        return round(linear * QUANTIZED[settings.quant_bits]) + 2 * whole + trained
    return settings.frozen_size * (parameters.total - fully_trained(settings)) + trained


def _bucket(settings: Settings, trainable: int) -> int:
    if settings.zero == 3:
        return 2 * settings.model.hidden**2  # "auto" (transformers' deepspeed.py)
    if settings.zero:
        return 2 * REDUCE_BUCKET
    return 2 * min(trainable, ALLREDUCE) if settings.deepspeed and settings.processes > 1 else 0


def _live(settings: Settings) -> int:
    parameters = settings.model.parameters
    if settings.sharding == "fsdp":
        # Two layers (one prefetched) and the root module, in 16 bits.
        return 2 * (2 * parameters.largest_layer + parameters.embedding + parameters.head)
    if settings.zero == 3 and (settings.processes > 1 or settings.cpu_parameters):
        largest = max(parameters.largest_layer, parameters.embedding)
        return 2 * min(parameters.total, LIVE_PARAMETERS + largest)
    return 0
