"""List what is on a GPU at the peak of each phase of a GRPO step, by component.

    phases(settings, states, engine)        {"load": {"weights": ...}, "vLLM start": ..., ...}

Formulas name the function that they follow: ms-swift's trainer (swift/rlhf_trainers/
rollout_mixin.py, grpo_trainer.py), DeepSpeed's ZeRO (states.py), vLLM's worker (vllm.py).
"""

from __future__ import annotations

from collections import Counter

from swift_vlrft.memory import vllm
from swift_vlrft.memory.activations import (
    LLM,
    LOGITS,
    TEMPORARIES,
    VIT,
    Components,
    evaluating_pass,
    size_of,
    training_passes,
)
from swift_vlrft.memory.settings import GIB, Settings
from swift_vlrft.memory.states import States

CUDA_CONTEXT = 0.5 * GIB
"""Assumed: a CUDA context and its kernels, which torch does not count (0.4 to 0.6 GiB in public
out-of-memory reports: "process has X in use" less "allocated" and "reserved")."""

COMMUNICATION = 0.5 * GIB
"""Assumed: NCCL's buffers if several processes train."""

OF_WEIGHTS, OF_OTHERS = 0.05, 0.15
"""Blocks that torch's caching allocator holds and cannot use: of weights, which are allocated once,
and of what comes later or comes and goes. Chosen on the sizes that ms-swift's examples state
(benchmarks/cases/memory_records.jsonl)."""

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


def phases(s: Settings, states: States, engine: vllm.Engine | None) -> dict[str, Components]:
    """Map phases to components, in the order of a run."""
    colocated = s.rollout == "vllm_colocate"
    weights = {WEIGHTS: states.weights, REFERENCE: states.reference}
    # stage3_gather_16bit_weights_on_model_save: one parameter at a time, to host memory.
    saved = {GATHERS: 2 * s.model.parameters.embedding} if s.shards_weights else {}
    awake: Components = {}
    if engine:
        awake = {VLLM_WEIGHTS: engine.weights, KV: max(0, engine.kv_cache)}
        awake |= {VLLM_OTHER: engine.profile, GRAPHS: engine.graphs}
    asleep = awake if colocated else {}
    if engine and colocated and s.sleep_level:
        asleep = {GRAPHS: engine.graphs, VLLM_OTHER: round(vllm.ASLEEP)}
    # The trainer between two steps: no gradients except ZeRO-3's flat buffer.
    resident = {
        **weights,
        OPTIMIZER: states.master + states.moments,
        GRADIENTS: states.ddp_buckets + (states.gradients if s.zero == 3 else 0),
    }
    parts_of = {"load": added(weights, saved)}
    if colocated:
        # rollout_mixin.py: _prepare_vllm, before the optimizer exists; offload_model empties first.
        parts_of["vLLM start"] = added({} if s.offload_model else weights, awake)
    if engine:
        waking = {VLLM_WEIGHTS: engine.weights} if colocated and s.sleep_level else {}
        parts_of["weight sync"] = added(resident, _sync(s), asleep, waking)
    if s.rollout != "none":
        parts_of["rollout"] = _rollout(s, states, resident, awake)
    between = added(resident, _features(s), asleep)
    parts_of |= _training(s, states, between)
    parts_of["save"] = added(between, saved)
    if engine and not colocated and s.rollout_gpus:
        parts_of["rollout GPU"] = awake
    return {
        name: _with_context(parts, alone=s.processes == 1 or name == "rollout GPU")
        for name, parts in parts_of.items()
    }


def added(*many: Components) -> Components:
    total: Counter[str] = Counter()
    for parts in many:
        total.update(parts)
    return dict(total)


def _with_context(parts: Components, *, alone: bool) -> Components:
    allocated = sum(value for name, value in parts.items() if name not in NOT_IN_TORCH)
    weights = parts.get(WEIGHTS, 0) + parts.get(REFERENCE, 0)
    unusable = OF_WEIGHTS * weights + OF_OTHERS * (allocated - weights)
    context = round(CUDA_CONTEXT + unusable)
    context += 0 if alone else round(COMMUNICATION)
    return {name: value for name, value in {**parts, CONTEXT: context}.items() if value}


def _sync(s: Settings) -> Components:
    """_fast_infer wakes the engine's weights and copies ours into them before it offloads anything.

    Under ZeRO-3 a group of parameters is gathered on every GPU at a time: all of them, or one of
    move_model_batches groups of layers (split_batches).
    """
    parameters, gathered = s.model.parameters, 0
    if s.shards_weights and s.sync_by_parameter:
        gathered = parameters.embedding
    elif s.shards_weights and s.move_model_batches > 1:
        others = parameters.embedding + parameters.head + parameters.vit + parameters.aligner
        layers = parameters.layers // s.move_model_batches
        gathered = max(layers, parameters.largest_layer, others)
    elif s.shards_weights:
        gathered = parameters.total
    # rollout_mixin.py: _move_full_model_to_vllm. Parameters go to a server in flattened buckets
    # (enable_flattened_weight_sync, on by default); one larger than a bucket alone.
    bucket = max(SYNC_BUCKET, 2 * parameters.embedding) if s.rollout == "vllm_server" else 0
    return {GATHERS: 2 * gathered, TEMPORARIES: bucket}


def _rollout(s: Settings, states: States, resident: Components, awake: Components) -> Components:
    parts, colocated = dict(resident), s.rollout == "vllm_colocate"
    if colocated and s.offload_model:
        # It points param.data (ZeRO-3: ds_tensor.data) to copies in host memory. What those were
        # views of stays: bit16_groups_flat of ZeRO-1 and 2 (deepspeed/runtime/zero/
        # stage_1_and_2.py), lp_param_buffer of ZeRO-3 (stage3.py), of the weights that train.
        parts |= {WEIGHTS: states.flat, REFERENCE: 0}
    if colocated and s.offload_optimizer:
        # offload_optimizer moves optimizer.state: the moments. ZeRO's float32 master weights and
        # flat gradient buffer are not in it.
        parts[OPTIMIZER] = states.master
    if s.rollout == "transformers":
        return added(parts, _generate(s, s.generated_at_once))
    return added(parts, awake if colocated else {})


def _generate(s: Settings, rows: int) -> Components:
    """transformers' generate() keeps a KV cache of all rows, and the largest temporary."""
    model = s.model
    tokens = rows * max(1, s.length - s.completion)
    patches = rows * s.patches
    prefill = tokens * 2 * (3 * model.intermediate + 6 * model.hidden)
    if s.all_logits:
        # Before logits_to_keep the head computed the whole prompt's, in generate() too.
        prefill = max(prefill, tokens * model.vocabulary * 2)
    encoder = patches * 2 * (3 * model.vit_intermediate + 8 * model.vit_hidden)
    sampler = rows * model.vocabulary * 4 * 3
    # unwrap_model_for_generation gathers all weights (ds3_gather_for_generation).
    gathered = s.shards_weights and s.gather_for_generation
    return {
        GATHERS: 2 * model.parameters.total if gathered else 0,
        KV: rows * s.length * vllm.kv_bytes(s),
        TEMPORARIES: max(prefill, encoder, sampler),
    }


def _features(s: Settings) -> Components:
    """shared_prefix/features.py keeps a frozen ViT's features of a generation batch."""
    if not s.shared_prefix or s.train_vit:
        return {}
    groups = -(-s.generated_at_once // max(1, s.generations))
    return {VIT: min(s.feature_cache, groups * s.image_tokens * s.model.hidden * 2)}


def _training(s: Settings, states: States, base: Components) -> dict[str, Components]:
    """Return the trainer's passes and the optimizer's step; ``base`` is held between them."""
    if s.offload_model and s.rollout == "vllm_colocate":
        # rollout_mixin.py: load_model copies the weights back beside DeepSpeed's flat buffers; the
        # optimizer's step makes the parameters views of those again.
        base = added(base, {WEIGHTS: states.flat})
    # ZeRO-3's are in the base. Else from the second micro-batch on, those of the first are there.
    late: Components = {} if s.zero == 3 else {GRADIENTS: states.gradients}
    early = late if s.accumulation > 1 else {}
    passing = added(base, {GATHERS: states.live})
    train, passed = training_passes(s), evaluating_pass(s)
    dense = 0
    if s.dense_vit_attention:
        # Scores and their softmax of every head, in float32: scaled_dot_product_attention's math
        # kernel computes 16 bits so since torch 2.5 (allow_fp16_bf16_reduction_math_sdp).
        dense = 2 * 4 * s.model.vit_heads * (s.batch * s.patches) ** 2
    # A ViT that trains recomputes its scores and needs their gradient besides.
    dense_backward = dense * 3 // 2 if s.train_vit else 0
    backward = max(
        added(early, train.backward),
        added(late, train.backward_vit, {TEMPORARIES: dense_backward}),
        key=size_of,
    )
    before = s.reference or s.old_logps
    parts_of = {LOG_PROBABILITIES: added(passing, passed)} if before else {}
    parts_of |= {
        "forward": added(passing, early, train.forward, {TEMPORARIES: dense}),
        "backward": added(passing, {TEMPORARIES: states.bucket}, backward),
        "optimizer step": added(base, late, {TEMPORARIES: states.step}),
    }
    if s.eval_batch and s.eval_generates:
        parts_of["eval"] = added(base, _generate(s, s.eval_batch))
    elif s.eval_batch:
        rows = {name: round(value * s.eval_batch / s.batch) for name, value in passed.items()}
        parts_of["eval"] = added(passing, rows)
    return parts_of
