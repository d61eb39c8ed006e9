"""The rollout's half of a step: weights to the engine, prompts read, answers written.

Each function returns the operations of all GPUs and the costs of one GPU for one generation, that
is for ``generated_at_once`` completions of every training process.
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_vlrft.memory import vllm
from swift_vlrft.memory.operations import (
    Operations,
    causal_pairs,
    expert_parameters,
    forward,
    layer_parameters,
)
from swift_vlrft.memory.roofline import Cost, all_gather, launching
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.states import model_states

ENGINE_STEP = 4e-3
"""Seconds that vLLM's scheduler and sampler add to a token, with CUDA graphs. Assumed."""

ENGINE_ROW = 20e-6
"""Seconds that each row adds to that: detokenizer and output. Assumed."""

EAGER_LAYER = 1e-3
"""Seconds of a layer for one token in transformers' generate(), which launches from Python; half
of it in vLLM with --vllm_enforce_eager. Assumed."""

REDUCTION, REDUCTION_PCIE = 15e-6, 60e-6
"""Seconds of a sum over GPUs, behind attention and behind the MLP under tensor parallel: with
NVLink, and with PCIe only. Assumed."""

WAKING = 1.0
"""Seconds of every weight sync beside its bytes: waking and sleeping engine, loading by name.
Assumed."""


@dataclass(frozen=True)
class Answers:
    """Tokens of a completion: on average, and of the longest in a generation."""

    mean: float
    longest: float


@dataclass(frozen=True)
class Engines:
    """``count`` engines of ``tp`` GPUs with ``rows`` completions each."""

    count: int
    tp: int
    rows: float
    at_once: float  # Rows that its KV cache and max_num_seqs hold


Work = tuple[Operations, list[Cost]]


def engines(s: Settings, answers: Answers, server_gpus: int | None = None) -> Engines:
    """``server_gpus``: of the rollout server; unknown: one."""
    rows = float(s.generated_at_once * s.processes)
    if not s.rollout.startswith("vllm"):
        return Engines(s.processes, 1, rows / s.processes, rows / s.processes)
    tp = max(1, s.vllm_tp)
    gpus = s.processes if s.rollout == "vllm_colocate" else server_gpus or s.rollout_gpus or tp
    count = max(1, gpus // tp)
    rows /= count
    row = vllm.row_bytes(s, round(prompt(s) + answers.mean))
    room = max(1, vllm.engine(s).kv_cache // max(1, row))
    most = s.vllm_max_sequences or (rows if s.rollout == "vllm_colocate" else vllm.SEQUENCES)
    return Engines(count, tp, rows, min(rows, room, most))


def prompt(s: Settings) -> int:
    return s.length - s.completion


def weight_sync(s: Settings, times: float) -> list[Cost]:
    """Of an optimizer step with so many generations. The weights go to the engine once, with sleep
    level 2 for each (ms-swift's rollout_mixin.py: needs_weight_sync); waking and offloading for
    each.
    """
    if not s.rollout.startswith("vllm"):
        return []
    size, tp = 2 * s.model.parameters.total, max(1, s.vllm_tp)
    syncs = times if s.sleep_level == 2 else min(times, 1.0)
    found = [Cost(serial=WAKING * (times if s.sleep_level else syncs))]
    if s.shards_weights:
        found.append(Cost(link=syncs * all_gather(s, size), nodes=s.nodes))
    if s.rollout == "vllm_server":
        return [*found, Cost(link=syncs * size)]
    found.append(Cost(memory=syncs * 2 * size / tp))
    states, moved = model_states(s), 0.0
    # Sleep level 1 copies the engine's weights to host memory and back; ours go there and back.
    moved += size / tp * (s.sleep_level == 1)
    moved += (states.weights + states.reference) * s.offload_model
    moved += states.moments * s.offload_optimizer
    return [*found, Cost(pcie=times * 2 * moved)]


def read_prompts(s: Settings, e: Engines) -> float:
    """Prompts that an engine reads: with a prefix cache each of a group once."""
    cached = s.prefix_caching and s.rollout != "transformers"
    return -(-e.rows // max(1, s.generations)) if cached else e.rows


def prefill(s: Settings, e: Engines) -> Work:
    length, prompts = prompt(s), read_prompts(s, e)
    work = forward(
        s.model,
        tokens=prompts * length,
        pairs=prompts * causal_pairs(length),
        logits=e.rows,
        grids=s.grids,
        images=prompts,
    )
    passes = 1.0
    if s.rollout != "transformers":
        passes = -(-prompts * length // s.vllm_batched_tokens)
    cost = Cost(
        operations=work.total / e.tp,
        memory=passes * active_bytes(s, s.vllm_batched_tokens) / e.tp,
        launches=launching(s, s.model.layers, passes),
    )
    return work * e.count, [cost]


def decode(s: Settings, e: Engines, answers: Answers, *, linked: bool = True) -> Work:
    model, tokens = s.model, e.rows * answers.mean
    # Every step writes one token of each row that is there; short rows leave room for others.
    steps = max(answers.longest, tokens / e.at_once)
    beside = tokens / max(1.0, steps)
    seen = prompt(s) + answers.mean / 2
    work = forward(model, tokens=tokens, pairs=tokens * seen, logits=tokens)
    read = steps * active_bytes(s, beside) / e.tp
    read += tokens * vllm.row_bytes(s, round(seen))
    serial = 0.0
    if e.tp > 1:
        serial += 2 * model.layers * (REDUCTION if linked else REDUCTION_PCIE)
    if s.rollout == "transformers":
        serial += EAGER_LAYER * model.layers
    else:
        serial += ENGINE_STEP + ENGINE_ROW * beside + EAGER_LAYER / 2 * model.layers * s.vllm_eager
    cost = Cost(operations=work.total / e.tp, memory=read, serial=steps * serial)
    costs = [cost]
    if s.rollout == "transformers" and s.shards_weights:
        whole = 2 * model.parameters.total
        times = 1 if s.gather_for_generation else steps
        costs.append(Cost(link=times * all_gather(s, whole), nodes=s.nodes))
    return work * e.count, costs


def active_bytes(s: Settings, rows: float) -> float:
    """Bytes of the weights that a pass over so many tokens reads: of experts those that any of
    them chooses, taken at random.
    """
    model = s.model
    chosen = model.chosen_experts
    read = layer_parameters(model) + (model.parameters.head or model.parameters.embedding)
    if model.experts > chosen:
        touched = model.experts * (1 - (1 - chosen / model.experts) ** max(1.0, rows))
        read += round(expert_parameters(model) * (touched - chosen))
    return 2.0 * read
