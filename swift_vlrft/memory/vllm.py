"""Count what vLLM takes of a GPU, as its worker does (vllm/v1/worker/gpu_worker.py).

request_memory            asks for gpu_memory_utilization x the whole GPU, and refuses to start
                          where less is free
determine_available_memory  KV cache = that - weights - peak of a profiled forward pass
CUDA graphs               estimated and taken from the share as well (vLLM 0.21)
sleep level 1 / 2         weights to host memory / dropped, KV cache dropped; graphs and the
                          process's own buffers stay
"""

import math
from dataclasses import dataclass

from swift_vlrft.memory.models import Model
from swift_vlrft.memory.settings import GIB, Settings

CUDA_GRAPHS = 0.6 * GIB
"""Assumed. vLLM logs "Graph capturing finished ... took 0.4x to 0.9 GiB" for models of 2 to 8 B."""

BESIDE = 1.4 * GIB
"""Beside its share and the CUDA context, awake or asleep: communicators, loaded kernels, and what
torch's cache holds of its passes. Measured in three runs on an H100 with vLLM 0.26, as GiB of the
card less what is counted here: 1.25 at its start, 1.45 asleep, 1.8 to 2.0 in rollout."""

TOKENS, SEQUENCES = 2048, 256
"""Defaults of vllm/engine/arg_utils.py: tokens at once outside of its LLM class and server, as in
ms-swift's engine, and --vllm_max_num_seqs."""


@dataclass(frozen=True)
class Engine:
    """An engine takes these bytes of a GPU; ``profile``: the profiled pass beside the weights."""

    share: int
    weights: int
    profile: int
    kv_cache: int
    graphs: int
    needed_kv: int  # KV cache of one row of the longest length, without which vLLM refuses to start
    host: int


def engine(settings: Settings) -> Engine:
    model, tp = settings.model, settings.vllm_tp
    share = round(settings.vllm_utilization * settings.gpu_bytes)
    weights = 2 * model.parameters.total // tp
    sequences = settings.vllm_max_sequences or settings.generated_at_once * tp
    # Never fewer tokens than sequences. A larger image is cut: chunked prefill.
    tokens = max(TOKENS, sequences)
    profile = tokens * 2 * (2 * model.intermediate + 4 * model.hidden) // tp
    profile += min(sequences, SEQUENCES) * model.vocabulary * 4  # the sampler
    graphs = 0 if settings.vllm_eager else round(CUDA_GRAPHS)
    if model.sees and settings.grids:
        patches = settings.vllm_profiled_patches or max(t * h * w for t, h, w in settings.grids)
        # One image passes the encoder: MLP in and out and attention's parts; its output is kept
        # during the LLM's pass (gpu_model_runner.py: profile_run, encoder_cache).
        profile += patches * 2 * (3 * model.vit_intermediate + 8 * model.vit_hidden)
        profile += patches // model.merge**2 * 2 * model.hidden
    return Engine(
        share=share,
        weights=weights,
        profile=profile,
        kv_cache=share - weights - profile - graphs,
        graphs=graphs,
        needed_kv=row_bytes(settings, settings.vllm_max_length or settings.length),
        host=weights if settings.sleep_level == 1 else 0,
    )


def largest_image(model: Model) -> int | None:
    """Count the patches of the image that vLLM profiles: the largest from the checkpoint's image
    processor (longest_edge), as ms-swift gives the engine no other limit, not even MAX_PIXELS
    (vllm/model_executor/models/qwen2_vl.py: get_image_size_with_most_features).
    """
    if not model.knows_images:
        return None
    rule = model.image_rule.of(model.name, {})
    if rule.adjustable:
        return rule.max_pixels // rule.frames // model.patch**2
    return sum(map(math.prod, rule.parts(*rule.largest()))) // model.patch**2


def row_bytes(settings: Settings, length: int) -> int:
    """Return the KV cache of a row on a GPU, which has at least one head (vllm/config/model.py:
    get_num_kv_heads), so more GPUs than heads hold copies.
    """
    heads = settings.model.kv_heads
    return kv_bytes(settings) // heads * max(1, heads // settings.vllm_tp) * length


def kv_bytes(settings: Settings) -> int:
    """Return the bytes of a token's keys and values in all layers, 2 bytes each."""
    model = settings.model
    return 2 * 2 * model.attention_layers * model.kv_heads * model.head_size
