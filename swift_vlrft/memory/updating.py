"""The trainer's half of a step: log-probabilities, forward and backward passes, the optimizer.

Each function returns the operations of all GPUs and the costs of one GPU for one optimizer step.
"""

from __future__ import annotations

from swift_vlrft.memory.generation import Answers, Work, active_bytes, prompt
from swift_vlrft.memory.operations import Operations, causal_pairs, forward, training
from swift_vlrft.memory.roofline import Cost, all_gather, launching
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.states import trainable_parameters

STEP_BYTES = 28
"""Bytes that AdamW reads and writes of a parameter in 32 bits: gradient, weight and two moments,
and the copy in 16 bits."""

HOST_MEMORY = 100e9
"""Bytes a second of host memory, for all processes of a node that step an optimizer on the CPU.
Assumed."""

BACKWARD_LAUNCHES = 2.0
"""Launches of a backward pass, in forward passes."""


def log_probabilities(s: Settings, answers: Answers) -> Work:
    """The old policy's and the reference's, once for each generation."""
    count = (s.old_logps + s.reference) / max(1, s.iterations)
    if not count:
        return Operations(), []
    passed = _pass(s, answers) * s.accumulation
    passes = count * s.accumulation
    cost = Cost(
        operations=passed.total * count,
        memory=passes * active_bytes(s, s.batch * s.length),
        link=passes * _gathered(s),
        pcie=passes * _from_host(s),
        launches=launching(s, _layers(s), passes),
        nodes=s.nodes,
    )
    return passed * (count * s.processes), [cost]


def forward_backward(s: Settings, answers: Answers) -> Work:
    passed = _pass(s, answers)
    if s.shared_prefix and not s.train_vit:
        # shared_prefix/features.py keeps a frozen ViT's features of a generation.
        passed = Operations(passed.llm, 0, passed.head, passed.attention)
    trained = "full" if s.tuning == "full" else "inputs"
    llm = trained if s.train_llm else "inputs"
    once = training(
        passed,
        llm=llm if trainable_parameters(s) else "none",
        vit=trained if s.train_vit else "none",
        checkpoint_llm=s.checkpoint_llm,
        checkpoint_vit=s.checkpoint_vit,
    )
    total = once * s.accumulation
    forwards = s.accumulation * (1 + s.checkpoint_llm)
    reads = s.accumulation * (2 + s.checkpoint_llm)
    cost = Cost(
        operations=total.total,
        memory=reads * active_bytes(s, s.batch * s.length),
        link=_gathered(s) * s.accumulation * 2 + _reduced(s),
        pcie=_from_host(s) * s.accumulation * 2,
        launches=launching(s, _layers(s), forwards + BACKWARD_LAUNCHES * s.accumulation),
        nodes=s.nodes,
    )
    return total * s.processes, [cost]


def optimizer_step(s: Settings) -> list[Cost]:
    trainable = trainable_parameters(s)
    sharded = s.processes if s.zero or s.sharding == "fsdp" else 1
    own = trainable / sharded
    found = [Cost(memory=STEP_BYTES * own)]
    if s.cpu_states:
        node = s.processes / max(1, s.nodes)
        found = [Cost(pcie=(4 + 2) * own), Cost(serial=STEP_BYTES * own * node / HOST_MEMORY)]
    if s.zero in (1, 2):
        found.append(Cost(link=all_gather(s, 2 * trainable), nodes=s.nodes))
    return found


def _pass(s: Settings, answers: Answers) -> Operations:
    """One micro-batch forward on one GPU, with completions of the mean length."""
    before, answer = prompt(s), answers.mean
    if s.shared_prefix:
        # Each prompt once, and its completions behind it.
        each = s.prompts
        pairs = each * causal_pairs(before) + s.batch * causal_pairs(answer, before)
        tokens, logits, images = each * before + s.batch * answer, s.batch * answer, each
    else:
        tokens, images = s.batch * (before + answer), s.batch
        pairs = s.batch * causal_pairs(before + answer)
        logits = tokens if s.all_logits else s.batch * (answer + 1)
    return forward(s.model, tokens=tokens, pairs=pairs, logits=logits, grids=s.grids, images=images)


def trained_tokens(s: Settings, answers: Answers) -> float:
    """Tokens that forward and backward passes of all GPUs read."""
    before = prompt(s) * (s.prompts if s.shared_prefix else s.batch)
    return (before + s.batch * answers.mean) * s.accumulation * s.processes


def _layers(s: Settings) -> int:
    return s.model.layers + (s.model.vit_layers if s.grids else 0)


def _gathered(s: Settings) -> float:
    """Bytes that ZeRO-3 or FSDP gathers for one pass over the model."""
    return all_gather(s, 2.0 * s.model.parameters.total) if s.shards_weights else 0.0


def _from_host(s: Settings) -> float:
    """Bytes of a process's own part of the weights that DeepSpeed keeps in host memory."""
    return 2.0 * s.model.parameters.total / s.processes if s.cpu_parameters else 0.0


def _reduced(s: Settings) -> float:
    """Bytes of gradients between GPUs in one optimizer step."""
    size = s.trainable_size * trainable_parameters(s)
    if s.zero >= 2 or s.sharding == "fsdp":  # every micro-batch's go to their owner
        return s.accumulation * all_gather(s, size)
    # An all-reduce receives everything twice.
    return (1 if s.zero == 1 else 2) * all_gather(s, size) if s.processes > 1 else 0.0
