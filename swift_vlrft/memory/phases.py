"""List what is on a GPU at the peak of each phase of a GRPO step, by component.

    phases(settings, states, engine)        {"load": {"weights": ...}, "vLLM start": ..., ...}

Formulas name the function that they follow: ms-swift's trainer (swift/rlhf_trainers/
rollout_mixin.py, grpo_trainer.py), DeepSpeed's ZeRO (states.py), vLLM's worker (vllm.py).
"""

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
from swift_vlrft.shared_prefix.settings import KEPT

CUDA_CONTEXT = 0.5 * GIB
"""Assumed: a CUDA context and its kernels, which torch does not count (0.4 to 0.6 GiB in public
out-of-memory reports: "process has X in use" less "allocated" and "reserved")."""

COMMUNICATION = 0.5 * GIB
"""Assumed: NCCL's buffers if several processes train."""

WEIGHT_LOSS, OTHER_LOSS = 0.05, 0.15
"""Shares of blocks that torch's caching allocator holds and cannot use: of weights, which are
allocated once, and of what comes later or comes and goes. Chosen on the sizes that ms-swift's
examples state (benchmarks/cases/memory_records.jsonl)."""

EXPANDABLE_LOSS = 0.04
"""The same of all but weights where torch's segments expand. Measured on an H100: 2.8 GiB in the
optimizer's step of full tuning, under 0.2 in LoRA's passes (benchmarks/cases/memory_own.jsonl)."""

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


def phases(settings: Settings, states: States, engine: vllm.Engine | None) -> dict[str, Components]:
    """Map phases to components, in the order of a run; ``engine`` is one beside the trainer."""
    weights = {WEIGHTS: states.weights, REFERENCE: states.reference}
    # stage3_gather_16bit_weights_on_model_save: one parameter at a time, to host memory.
    saved = {GATHERS: 2 * settings.model.parameters.embedding} if settings.shards_weights else {}
    awake: Components = {}
    waking: Components = {}
    if engine:
        awake = {VLLM_WEIGHTS: engine.weights, KV: max(0, engine.kv_cache)}
        awake |= {VLLM_OTHER: engine.profile + round(vllm.BESIDE), GRAPHS: engine.graphs}
    asleep = awake
    if engine and settings.sleep_level:
        waking = {VLLM_WEIGHTS: engine.weights}
        asleep = {GRAPHS: engine.graphs, VLLM_OTHER: round(vllm.BESIDE)}
    # The trainer between two steps: no gradients except ZeRO-3's flat buffer.
    resident = {
        **weights,
        OPTIMIZER: states.master + states.moments,
        GRADIENTS: states.ddp_buckets + (states.gradients if settings.zero == 3 else 0),
    }
    parts_of = {"load": added(weights, saved)}
    if engine:
        # rollout_mixin.py: _prepare_vllm, before the optimizer exists; offload_model empties first.
        parts_of["vLLM start"] = added({} if settings.offload_model else weights, awake)
    if settings.rollout.startswith("vllm"):
        parts_of["weight sync"] = added(resident, _sync(settings), asleep, waking)
    if settings.rollout != "none":
        parts_of["rollout"] = _rollout(settings, states, resident, awake)
    between = added(resident, _features(settings), asleep)
    parts_of |= _training(settings, states, between)
    parts_of["save"] = added(between, saved)
    return {name: _with_context(settings, parts) for name, parts in parts_of.items()}


def added(*many: Components) -> Components:
    total: Counter[str] = Counter()
    for parts in many:
        total.update(parts)
    return dict(total)


def _with_context(settings: Settings, parts: Components) -> Components:
    allocated = sum(value for name, value in parts.items() if name not in NOT_IN_TORCH)
    weights = parts.get(WEIGHTS, 0) + parts.get(REFERENCE, 0)
    lost, others_lost = WEIGHT_LOSS, OTHER_LOSS
    if settings.expandable_segments:
        lost, others_lost = 0.0, EXPANDABLE_LOSS
    context = round(CUDA_CONTEXT + lost * weights + others_lost * (allocated - weights))
    context += round(COMMUNICATION) if settings.processes > 1 else 0
    return {name: value for name, value in {**parts, CONTEXT: context}.items() if value}


def _sync(settings: Settings) -> Components:
    """Return what the engine's new weights take, before _fast_infer offloads anything.

    Under ZeRO-3 a group of parameters is gathered on every GPU at a time: all of them, or one of
    move_model_batches groups of layers (split_batches).
    """
    parameters = settings.model.parameters
    if not settings.shards_weights:
        gathered = 0
    elif settings.move_model_batches > 1:
        others = parameters.embedding + parameters.head + parameters.vit + parameters.aligner
        layers = parameters.layers // settings.move_model_batches
        gathered = max(layers, parameters.largest_layer, others)
    else:
        gathered = parameters.total
    # rollout_mixin.py: _move_full_model_to_vllm. Parameters go to a server in flattened buckets
    # (enable_flattened_weight_sync, on by default); one larger than a bucket alone.
    bucket = max(SYNC_BUCKET, 2 * parameters.embedding) if settings.rollout == "vllm_server" else 0
    return {GATHERS: 2 * gathered, TEMPORARIES: bucket}


def _rollout(settings: Settings, states: States, base: Components, awake: Components) -> Components:
    parts = dict(base)
    if settings.colocated and settings.offload_model:
        # It points param.data (ZeRO-3: ds_tensor.data) to copies in host memory. What those were
        # views of stays: bit16_groups_flat of ZeRO-1 and 2 (deepspeed/runtime/zero/
        # stage_1_and_2.py), lp_param_buffer of ZeRO-3 (stage3.py), of the weights that train.
        parts |= {WEIGHTS: states.flat, REFERENCE: 0}
    if settings.colocated and settings.offload_optimizer:
        # offload_optimizer moves optimizer.state: the moments. ZeRO's float32 master weights and
        # flat gradient buffer are not in it.
        parts[OPTIMIZER] = states.master
    if settings.rollout == "transformers":
        return added(parts, _generate(settings, settings.generated_at_once))
    return added(parts, awake)


def _generate(settings: Settings, rows: int) -> Components:
    """Return what transformers' generate() keeps: a KV cache of all rows, the largest temporary."""
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
    """Return the features of a frozen ViT that shared_prefix/features.py keeps of a generation."""
    if not settings.shared_prefix or settings.train_vit:
        return {}
    groups = -(-settings.generated_at_once // max(1, settings.generations))
    features = groups * settings.image_tokens * settings.model.hidden * 2
    return {VIT: min(KEPT, features)}


def _training(settings: Settings, states: States, base: Components) -> dict[str, Components]:
    """Return the trainer's passes and the optimizer's step; ``base`` is held between them."""
    if settings.offload_model and settings.colocated:
        # rollout_mixin.py: load_model copies the weights back beside DeepSpeed's flat buffers; the
        # optimizer's step makes the parameters views of those again.
        base = added(base, {WEIGHTS: states.flat})
    # ZeRO-3's are in the base. Else from the second micro-batch on, those of the first are there.
    late: Components = {} if settings.zero == 3 else {GRADIENTS: states.gradients}
    early = late if settings.accumulation > 1 else {}
    passing = added(base, {GATHERS: states.live})
    train, passed = training_passes(settings), evaluating_pass(settings)
    dense = 0
    if settings.dense_vit_attention:
        # Scores and their softmax of every head, in float32: scaled_dot_product_attention's math
        # kernel computes 16 bits so since torch 2.5 (allow_fp16_bf16_reduction_math_sdp).
        dense = 2 * 4 * settings.model.vit_heads * (settings.batch * settings.patches) ** 2
    # A ViT that trains recomputes its scores and needs their gradient besides.
    dense_backward = dense * 3 // 2 if settings.train_vit else 0
    # DeepSpeed adds a whole micro-batch's gradients to those before (deepspeed/runtime/zero/
    # stage_1_and_2.py: independent_gradient_partition_epilogue).
    twice = early if settings.zero == 2 else {}
    backward = max(
        added(early, train.backward),
        added(late, twice, train.backward_vit, {TEMPORARIES: dense_backward}),
        key=size_of,
    )
    before = settings.reference or settings.old_logps
    parts_of = {LOG_PROBABILITIES: added(passing, passed)} if before else {}
    parts_of |= {
        "forward": added(passing, early, train.forward, {TEMPORARIES: dense}),
        "backward": added(passing, {TEMPORARIES: states.bucket}, backward),
        "optimizer step": added(base, late, {TEMPORARIES: states.step}),
    }
    if settings.eval_batch and settings.eval_generates:
        parts_of["eval"] = added(base, _generate(settings, settings.eval_batch))
    elif settings.eval_batch:
        rows = {
            name: round(value * settings.eval_batch / settings.batch)
            for name, value in passed.items()
        }
        parts_of["eval"] = added(passing, rows)
    return parts_of
