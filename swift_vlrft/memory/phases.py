"""What is on one GPU in each phase of a GRPO step, by component, at the phase's peak.

    phases(settings, train, evaluated)      {"load": {"weights": ...}, "vLLM start": ..., ...}

Formulas name the function that they follow: ms-swift's trainer (swift/rlhf_trainers/
rollout_mixin.py, grpo_trainer.py), DeepSpeed's ZeRO (states.py), vLLM's worker (vllm.py).
"""

from __future__ import annotations

from swift_vlrft.memory import stages, vllm
from swift_vlrft.memory.settings import GIB, Settings
from swift_vlrft.memory.stages import LLM, LOGITS, TEMPORARIES, VIT, Activations, Components
from swift_vlrft.memory.states import States

CUDA_CONTEXT = 0.5 * GIB
"""Assumed: a CUDA context and its kernels, which torch does not count (0.4 to 0.6 GiB in public
out-of-memory reports: "process has X in use" less "allocated" and "reserved")."""

COMMUNICATION = 0.5 * GIB
"""Assumed: NCCL's buffers if several processes train."""

FRAGMENTATION = 0.04
"""Assumed: of what torch allocates, blocks that the caching allocator holds and cannot use."""

SYNC_BUCKET = 512 * 2**20
"""SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE: weights that go to a rollout server at once."""

WEIGHTS, REFERENCE, GRADIENTS = "weights", "reference model", "gradients"
OPTIMIZER, GATHERS, KV = "optimizer", "gathers", "KV cache"
VLLM_WEIGHTS, VLLM_OTHER, GRAPHS = "vLLM weights", "vLLM activations", "CUDA graphs"
CONTEXT = "context, fragmentation"
NOT_IN_TORCH = (VLLM_WEIGHTS, KV, VLLM_OTHER, GRAPHS, CONTEXT)
"""Components that the trainer's allocator does not count."""
COMPONENTS = (
    *(WEIGHTS, REFERENCE, GRADIENTS, OPTIMIZER, LLM, VIT, LOGITS, TEMPORARIES, GATHERS),
    *NOT_IN_TORCH,
)

LOG_PROBABILITIES = "old/reference log-probabilities"
PHASES = (
    *("load", "vLLM start", "weight sync", "rollout", LOG_PROBABILITIES, "forward", "backward"),
    *("optimizer step", "eval", "save", "rollout GPU"),
)
WITHOUT_FORWARD = ("load", "vLLM start", "weight sync", "rollout", "save", "rollout GPU")
"""Phases without a pass of the trainer: no trace changes them."""


def phases(
    settings: Settings,
    states: States,
    engine: vllm.Engine | None,
    train: Activations,
    evaluated: Activations,
) -> dict[str, Components]:
    """Phase -> components, in the order of a run; ``evaluated`` is a pass without gradients."""
    colocated = engine if settings.rollout == "vllm_colocate" else None
    asleep = _asleep(settings, colocated)
    found = {"load": _load(settings, states)}
    if colocated:
        # rollout_mixin.py: _prepare_vllm, before the optimizer exists; offload_model empties first.
        trainer = {} if settings.offload_model else _weights(states)
        found["vLLM start"] = added(trainer, _awake(colocated))
    if engine:
        found["weight sync"] = _sync(settings, states, colocated, asleep)
    if settings.rollout != "none":
        found["rollout"] = _rollout(settings, states, colocated)
    found |= _training(settings, states, train, evaluated, asleep)
    found["save"] = added(
        _resident(settings, states), _features(settings), asleep, _saved(settings)
    )
    if engine and not colocated and settings.rollout_gpus:
        found["rollout GPU"] = _awake(engine)
    return {
        name: _with_context(found[name], alone=settings.processes == 1 or name == "rollout GPU")
        for name in PHASES
        if name in found
    }


def added(*many: Components) -> Components:
    total: Components = {}
    for parts in many:
        for name, value in parts.items():
            total[name] = total.get(name, 0) + value
    return total


def _weights(states: States) -> Components:
    return {WEIGHTS: states.weights, REFERENCE: states.reference}


def _awake(engine: vllm.Engine) -> Components:
    return {
        VLLM_WEIGHTS: engine.weights,
        KV: max(0, engine.kv_cache),
        VLLM_OTHER: engine.profile,
        GRAPHS: engine.graphs,
    }


def _asleep(settings: Settings, engine: vllm.Engine | None) -> Components:
    """What the engine keeps on the GPU while the trainer runs."""
    if engine is None:
        return {}
    if settings.sleep_level == 0:
        return _awake(engine)
    return {GRAPHS: engine.graphs, VLLM_OTHER: round(vllm.ASLEEP)}


def _with_context(parts: Components, *, alone: bool) -> Components:
    allocated = sum(value for name, value in parts.items() if name not in NOT_IN_TORCH)
    context = round(CUDA_CONTEXT) + round(FRAGMENTATION * allocated)
    context += 0 if alone else round(COMMUNICATION)
    return {name: value for name, value in {**parts, CONTEXT: context}.items() if value}


def _load(settings: Settings, states: States) -> Components:
    # transformers under zero.Init: a tensor is complete until its partition is taken.
    return added(_weights(states), _saved(settings))


def _saved(settings: Settings) -> Components:
    """stage3_gather_16bit_weights_on_model_save: one parameter at a time, to host memory."""
    return {GATHERS: 2 * settings.model.parameters.embedding} if settings.shards_weights else {}


def _resident(settings: Settings, states: States) -> Components:
    """The trainer between two steps: no gradients except ZeRO-3's flat buffer."""
    return {
        **_weights(states),
        OPTIMIZER: states.master + states.moments,
        GRADIENTS: states.ddp_buckets + (states.gradients if settings.zero == 3 else 0),
    }


def _sync(
    settings: Settings, states: States, engine: vllm.Engine | None, asleep: Components
) -> Components:
    """_fast_infer wakes the engine's weights and copies ours into them before it offloads anything.

    Under ZeRO-3 a group of parameters is gathered on every GPU at a time: all of them, or one of
    move_model_batches groups of layers (split_batches).
    """
    parts = _resident(settings, states)
    parameters = settings.model.parameters
    if settings.shards_weights and settings.sync_by_parameter:
        parts[GATHERS] = 2 * parameters.embedding
    elif settings.shards_weights and settings.move_model_batches > 1:
        others = parameters.embedding + parameters.head + parameters.vit + parameters.aligner
        layers = parameters.layers // settings.move_model_batches
        parts[GATHERS] = 2 * max(layers, parameters.largest_layer, others)
    elif settings.shards_weights:
        parts[GATHERS] = 2 * parameters.total
    if engine and settings.sleep_level:
        return added(parts, asleep, {VLLM_WEIGHTS: engine.weights})
    if engine:
        return added(parts, asleep)
    # rollout_mixin.py: _move_full_model_to_vllm. Parameters go in flattened buckets
    # (enable_flattened_weight_sync, on by default); one larger than a bucket alone.
    parts[TEMPORARIES] = max(SYNC_BUCKET, 2 * parameters.embedding)
    return parts


def _rollout(settings: Settings, states: States, engine: vllm.Engine | None) -> Components:
    parts = _resident(settings, states)
    if engine and settings.offload_model:
        # It points param.data (ZeRO-3: ds_tensor.data) to copies in host memory. What those were
        # views of stays: bit16_groups_flat of ZeRO-1 and 2 (deepspeed/runtime/zero/
        # stage_1_and_2.py), lp_param_buffer of ZeRO-3 (stage3.py), of the weights that train.
        parts[WEIGHTS], parts[REFERENCE] = states.flat, 0
    if engine and settings.offload_optimizer:
        # offload_optimizer moves optimizer.state: the moments. ZeRO's float32 master weights and
        # flat gradient buffer are not in it.
        parts[OPTIMIZER] = states.master
    if engine:
        return added(parts, _awake(engine))
    if settings.rollout == "transformers":
        return added(parts, _generate(settings, settings.generated_at_once))
    return parts


def _generate(settings: Settings, rows: int) -> Components:
    """transformers' generate(): a KV cache of all rows, and the largest temporary."""
    model = settings.model
    tokens = rows * max(1, settings.length - settings.completion)
    patches = rows * settings.patches
    prefill = tokens * 2 * (3 * model.intermediate + 6 * model.hidden)
    if settings.all_logits:
        # Before logits_to_keep the head computed the whole prompt's, in generate() too.
        prefill = max(prefill, tokens * model.vocabulary * 2)
    encoder = patches * 2 * (3 * model.vit_intermediate + 8 * model.vit_hidden)
    sampler = rows * model.vocabulary * 4 * 3
    # unwrap_model_for_generation gathers all weights (ds3_gather_for_generation).
    gathered = settings.shards_weights and settings.gather_for_generation
    return {
        GATHERS: 2 * model.parameters.total if gathered else 0,
        KV: rows * settings.length * vllm.kv_bytes(settings),
        TEMPORARIES: max(prefill, encoder, sampler),
    }


def _features(settings: Settings) -> Components:
    """shared_prefix/features.py: a frozen ViT's features of one generation batch."""
    if not settings.shared_prefix or settings.train_vit:
        return {}
    groups = -(-settings.generated_at_once // max(1, settings.generations))
    features = groups * settings.image_tokens * settings.model.hidden * 2
    return {VIT: min(settings.feature_cache, features)}


def _training(
    settings: Settings,
    states: States,
    train: Activations,
    evaluated: Activations,
    asleep: Components,
) -> dict[str, Components]:
    """The phases with a pass of the trainer, and the optimizer's step."""
    base = added(_resident(settings, states), _features(settings), asleep)
    if settings.offload_model and settings.rollout == "vllm_colocate":
        # rollout_mixin.py: load_model copies the weights back beside DeepSpeed's flat buffers; the
        # optimizer's step makes the parameters views of those again.
        base = added(base, {WEIGHTS: states.flat})
    # ZeRO-3's are in the base. Else from the second micro-batch on, those of the first are there.
    late: Components = {} if settings.zero == 3 else {GRADIENTS: states.gradients}
    early = late if settings.accumulation > 1 else {}
    passing = added(base, {GATHERS: states.live})
    passed = evaluated.at(stages.FORWARD_VIT, stages.FORWARD_LLM, stages.LOSS)
    dense = _dense_attention(settings)
    # A ViT that trains recomputes its scores and needs their gradient besides.
    dense_backward = dense * 3 // 2 if settings.train_vit else 0
    backward_peaks = [
        added(early, train.at(stages.BACKWARD_LOSS, stages.BACKWARD_LLM)),
        added(late, train.at(stages.BACKWARD_VIT), {TEMPORARIES: dense_backward}),
    ]
    found = {
        "forward": added(
            passing,
            early,
            train.at(stages.FORWARD_VIT, stages.FORWARD_LLM, stages.LOSS),
            {TEMPORARIES: dense},
        ),
        "backward": added(
            passing,
            {TEMPORARIES: states.bucket},
            max(backward_peaks, key=lambda parts: sum(parts.values())),
        ),
        "optimizer step": added(base, late, {TEMPORARIES: states.step}),
    }
    if settings.reference and settings.reference_in_loss:
        kept = dict(train.at(stages.LOSS))
        # The logits themselves are gone by then; their log-softmax stays for the backward pass.
        kept[LOGITS] = kept.get(LOGITS, 0) // 2
        found[LOG_PROBABILITIES] = added(passing, kept, passed)
    elif settings.reference or settings.old_logps:
        found[LOG_PROBABILITIES] = added(passing, passed)
    if settings.eval_batch and settings.eval_generates:
        found["eval"] = added(base, _generate(settings, settings.eval_batch))
    elif settings.eval_batch:
        factor = settings.eval_batch / settings.batch
        rows = {name: round(value * factor) for name, value in passed.items()}
        found["eval"] = added(passing, rows)
    return found


def _dense_attention(settings: Settings) -> int:
    """Scores and their softmax of every head, in float32: scaled_dot_product_attention's math
    kernel computes 16 bits so since torch 2.5 (allow_fp16_bf16_reduction_math_sdp).
    """
    if not settings.dense_vit_attention:
        return 0
    patches = settings.batch * settings.patches
    return int(2 * 4 * settings.model.vit_heads * patches**2)
