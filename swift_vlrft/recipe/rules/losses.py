"""Rules of the loss: settings that do nothing, or that work against each other.

8 steps of a rollout, 8 accumulated: one update, so the policies' ratio is 1, --epsilon_high is idle

docs/what_to_set.md has the measurements and sources behind them.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.rules.finding import Finding, note
from swift_vlrft.recipe.run import Run

LONG = 2048
"""Tokens from which on an answer is called long."""
OF_THE_RATIO = ("epsilon", "epsilon_high", "importance_sampling_level", "delta")


def loss_types(run: Run) -> list[str]:
    """Several in `swift rlhf`, one in `megatron rlhf`; by default none."""
    return list(run.texts("loss_type")) or [run.text("loss_type") or ""]


def length_bias(run: Run) -> Iterator[Finding]:
    """The mean over each completion (arXiv:2503.20783, section 3.1; om-ai-lab/VLM-R1#280)."""
    longest = run.integer("max_completion_length")
    if not run.texts("reward_funcs") and not run.lacks("teacher_model", "teacher_model_server"):
        return  # a teacher's tokens, no answer that is right or wrong
    if run.grpo and longest >= LONG and loss_types(run) in ([""], ["grpo"]):
        text = (
            f"answers of up to {longest} tokens under the loss type grpo, which averages over each "
            "completion: the shorter a right answer, the more each of its tokens counts, and with "
            "time answers collapse to short ones. Add --loss_type dapo, or dr_grpo with "
            "--scale_rewards none"
        )
        yield note(run, "max_completion_length", "length-bias", text)


def idle_ratio(run: Run) -> Iterator[Finding]:
    """ms-swift 4.6.0 takes the ratio from the same forward pass where a rollout trains one update
    (grpo_trainer.py: the condition of old_per_token_logps): 1, whatever is done with it."""
    if not run.grpo or run.integer("num_iterations") > 1:
        return
    given = [name for name in OF_THE_RATIO if name in run.given]
    if loss_types(run) == ["cispo"]:  # whose scale is epsilon_high: see unscaled_cispo
        given = [name for name in given if name == "importance_sampling_level"]
    if run.text("importance_sampling_level") == "token":
        given = [name for name in given if name != "importance_sampling_level"]
    if not given:
        return
    accumulated, steps = run.integer("gradient_accumulation_steps"), rollout_steps(run)
    if accumulated % (steps * (run.optional("sequence_parallel_size") or 1)) == 0:
        text = (
            f"each rollout ({steps} micro-batches) trains one update ({accumulated} accumulated), "
            f"so the new policy is the old one, their ratio 1, and --{given[0]} changes nothing: "
            f"--steps_per_generation {2 * accumulated} or --num_iterations 2 makes two updates"
        )
        yield note(run, given[0], "idle-ratio", text)


def rollout_steps(run: Run) -> int:
    """Micro-batches of a rollout, on each process."""
    steps, batch = run.optional("steps_per_generation"), run.optional("generation_batch_size")
    if steps is None and batch is not None:
        return batch // (run.processes * run.integer("per_device_train_batch_size")) or 1
    return steps or run.integer("gradient_accumulation_steps")


def unscaled_cispo(run: Run) -> Iterator[Finding]:
    """grpo_trainer.py: min(ratio, epsilon_high) weighs each token; other losses add 1 to it."""
    if not run.grpo or loss_types(run) != ["cispo"]:
        return
    high = run.number("epsilon_high" if "epsilon_high" in run.given else "epsilon")
    if high < 1:
        text = (
            f"under the loss type cispo each token weighs at most --epsilon_high, here {high:g}: "
            f"where policies agree the loss is {high:g} of what it should be beside --beta. "
            "MiniMax-M1 clips above: --epsilon_high 5 (arXiv:2506.13585)"
        )
        yield note(run, "loss_type", "cispo", text)


LOSSES = (length_bias, idle_ratio, unscaled_cispo)
