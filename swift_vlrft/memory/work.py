"""The work of an optimizer step in floating-point operations, to compare settings by.

    step_work(changed).total / step_work(settings).total        1.31: 31 % more operations

Prompts and answers are as long as they may be, as memory is planned. An engine reads the prompt of
a group once (vLLM's prefix cache). Traffic, launches and the optimizer are not counted.
"""

from __future__ import annotations

from swift_vlrft.memory.operations import Operations, causal_pairs, forward, training
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.states import trainable_parameters


def step_work(s: Settings) -> Operations:
    """Of all GPUs: rollout, log-probabilities, forward and backward of one optimizer step."""
    once = _pass(s) * s.accumulation
    scored = (s.old_logps + s.reference) / max(1, s.iterations)
    return (_rollout(s) + once * scored + _trained(s, once)) * s.processes


def _rollout(s: Settings) -> Operations:
    """A generation serves several optimizer steps (--num_iterations) in part."""
    if s.rollout == "none":
        return Operations()
    rows = s.batch * s.accumulation / max(1, s.iterations)
    prompts = rows if s.rollout == "transformers" else rows / max(1, s.generations)
    before, answer = s.length - s.completion, s.completion
    pairs = prompts * causal_pairs(before) + rows * causal_pairs(answer, before)
    tokens, logits = prompts * before + rows * answer, rows * answer
    return forward(
        s.model, tokens=tokens, pairs=pairs, logits=logits, grids=s.grids, images=prompts
    )


def _pass(s: Settings) -> Operations:
    """One micro-batch forward on one GPU."""
    before, answer = s.length - s.completion, s.completion
    if s.shared_prefix:  # each prompt once, and its completions behind it
        images = s.prompts
        pairs = images * causal_pairs(before) + s.batch * causal_pairs(answer, before)
        tokens, logits = images * before + s.batch * answer, s.batch * answer
    else:
        images, tokens = s.batch, s.batch * s.length
        pairs = s.batch * causal_pairs(s.length)
        logits = tokens if s.all_logits else s.batch * (answer + 1)
    return forward(s.model, tokens=tokens, pairs=pairs, logits=logits, grids=s.grids, images=images)


def _trained(s: Settings, passed: Operations) -> Operations:
    """Forward, recomputation and backward; ``passed``: all micro-batches forward."""
    if s.shared_prefix and not s.train_vit:
        # shared_prefix/features.py keeps a frozen ViT's features of a generation.
        passed = Operations(passed.llm, 0, passed.head, passed.attention)
    trained = "full" if s.tuning == "full" else "inputs"
    llm = trained if s.train_llm else "inputs"
    return training(
        passed,
        llm=llm if trainable_parameters(s) else "none",
        vit=trained if s.train_vit else "none",
        checkpoint_llm=s.checkpoint_llm,
        checkpoint_vit=s.checkpoint_vit,
    )
