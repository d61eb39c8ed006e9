"""Find settings of the loss that do nothing, or that work against each other.

docs/how_to/learn_faster.md has the sources behind them, dev/measurements.md the figures.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.rules.batches import rollout_steps
from swift_vlrft.recipe.rules.finding import Finding, note
from swift_vlrft.recipe.run import Run

LONG = 2048
"""Tokens from which on an answer is called long."""
LEVEL = "importance_sampling_level"
RATIO_FLAGS = ("epsilon", "epsilon_high", LEVEL, "delta")


def loss_types(run: Run) -> list[str]:
    """Return the loss types, of which `swift rlhf` takes several; by default none."""
    return list(run.texts("loss_type")) or [""]


def length_bias(run: Run) -> Iterator[Finding]:
    """A mean over each completion biases length (arXiv:2503.20783, 3.1; om-ai-lab/VLM-R1#280)."""
    longest = run.integer("max_completion_length")
    if not run.texts("reward_funcs") and not run.omits("teacher_model", "teacher_model_server"):
        return  # a teacher's tokens, no answer that is right or wrong
    if run.grpo and longest >= LONG and loss_types(run) in ([""], ["grpo"]):
        text = (
            f"under the loss type grpo answers of up to {longest} tokens get short, as tokens of "
            "short right ones weigh more: add --loss_type dapo, or dr_grpo and --scale_rewards none"
        )
        yield note(run, "max_completion_length", "length-bias", text)


def idle_ratio(run: Run) -> Iterator[Finding]:
    """Find clipping of a ratio that is always 1.

    ms-swift 4.6.0 takes the ratio from the same forward pass where a rollout trains one update
    (grpo_trainer.py: the condition of old_per_token_logps): 1, whatever is done with it.
    """
    if not run.grpo or run.integer("num_iterations") > 1:
        return
    # cispo's scale is epsilon_high.
    names = RATIO_FLAGS if loss_types(run) != ["cispo"] else (LEVEL,)
    per_token = run.text(LEVEL) == "token"
    idle = [name for name in names if name in run.given and not (per_token and name == LEVEL)]
    if not idle:
        return
    accumulated = run.integer("gradient_accumulation_steps")
    if accumulated % (rollout_steps(run) * (run.optional("sequence_parallel_size") or 1)) == 0:
        text = (
            f"--{idle[0]} changes nothing: a rollout trains one update, so the policies' ratio is "
            f"1. --steps_per_generation {2 * accumulated} or --num_iterations 2 makes two updates"
        )
        yield note(run, idle[0], "idle-ratio", text)


LOSSES = (length_bias, idle_ratio)
