"""Rules of `megatron`: its batches, its parallel sizes, and what it does not have.

--global_batch_size 128, 8 processes, --tensor_model_parallel_size 2: 4 replicas of the model
128 completions = 4 replicas x 4 a micro-batch x 8;  128 / 8 generations = 16 prompts = 4 x 4

The conditions are those of ms-swift 4.6.0 (megatron/arguments/megatron_args.py,
megatron/trainers/rollout_mixin.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.rules.gpus import named
from swift_vlrft.recipe.run import Run

SIZES = (*("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),)
REFUSED = {"async_generate": False, "sync_ref_model": False, "num_iterations": 1}
"""Flags of GRPO that Megatron takes, and ends with an error unless they are as here."""
IGNORED = ("reward_model", "reward_model_plugin", "move_model_batches")
"""Those that it takes, and never reads."""
OURS = ("VLRFT_SHARED_PREFIX", "VLRFT_TRACK_MEMORY", "VLRFT_AGREEMENT", "VLRFT_LOG_IMAGES")
"""What this package adds to the trainer of transformers alone."""


def parallel(run: Run) -> Iterator[Finding]:
    world, one = run.processes, _copy(run)
    if world and world % one:
        sizes = " x ".join(f"--{name} {run.integer(name)}" for name in SIZES)
        text = f"{world} processes do not divide by {sizes} = {one}"
        yield problem(run, SIZES[0], "model-parallel", text)


def _copy(run: Run) -> int:
    """Processes that share one copy of the model."""
    one = 1
    for name in SIZES:
        one *= run.integer(name)
    return one


def batch(run: Run) -> Iterator[Finding]:
    """RLHFMegatronArgumentsMixin.resolve_generation_batch_size, validate_batch_dp_alignment and
    MegatronArguments._init_distributed.
    """
    world, one = run.processes, _copy(run)
    if not run.trains or not world or world % one:
        return
    copies, micro, step = (
        world // one,
        run.integer("micro_batch_size"),
        run.integer("global_batch_size"),
    )
    if step % (micro * copies):
        text = (
            f"--global_batch_size {step} is no multiple of --micro_batch_size {micro} x {copies} "
            f"copies of the model = {micro * copies}"
        )
        yield problem(run, "global_batch_size", "global-batch", text)
    elif run.grpo:
        yield from _generation(run, step, copies, micro)


def _generation(run: Run, step: int, copies: int, micro: int) -> Iterator[Finding]:
    group, steps = run.integer("num_generations"), run.optional("steps_per_generation")
    size = run.optional("generation_batch_size")
    if group == 1 and run.lacks("teacher_model", "teacher_model_server"):
        text = "GRPO compares the completions of one prompt, so it needs 2"
        yield problem(run, "num_generations", "num-generations", f"--num_generations 1: {text}")
    elif size is not None and steps is not None and size != step * steps:
        text = (
            f"--generation_batch_size {size} contradicts --steps_per_generation {steps}: "
            f"--global_batch_size {step} x {steps} = {step * steps}. Give one of them"
        )
        yield problem(run, "generation_batch_size", "generation-batch", text)
    elif size is not None and size % step:
        text = f"--generation_batch_size {size} is no multiple of --global_batch_size {step}"
        yield problem(run, "generation_batch_size", "generation-batch", text)
    else:
        size = size or step * (steps or 1)
        if size % (group * copies * micro):
            text = (
                f"the {size} completions of a generation (--global_batch_size {step} x "
                f"{size // step} steps) are no multiple of --num_generations {group} x {copies} "
                f"copies of the model x --micro_batch_size {micro} = {group * copies * micro}"
            )
            yield problem(run, "num_generations", "generation-batch", text)


def visible_gpus(run: Run) -> Iterator[Finding]:
    visible = run.variable("CUDA_VISIBLE_DEVICES")
    processes = run.count("NPROC_PER_NODE") or 1
    if visible is not None and run.recipe.ray is None and 0 < named(visible) < processes:
        text = (
            f"NPROC_PER_NODE={processes}, and CUDA_VISIBLE_DEVICES={visible} names "
            f"{named(visible)}: each process takes the GPU of its number"
        )
        yield problem(run, run.recipe.line, "visible-gpus", text)


def iterations(run: Run) -> Iterator[Finding]:
    """TrainerState(max_steps=None), after the model is loaded (megatron/trainers/base.py)."""
    if run.trains and run.lacks("train_iters", "num_train_epochs"):
        text = "neither --train_iters nor --num_train_epochs is given: Megatron has no default"
        yield problem(run, run.recipe.line, "train-iters", text)


def engine(run: Run) -> Iterator[Finding]:
    if not run.grpo or run.recipe.ray is not None:
        return
    if not run.true("use_vllm"):
        text = "--use_vllm false: in Megatron GRPO generates with vLLM alone"
        yield problem(run, "use_vllm", "vllm-mode", text)
    elif run.lacks("vllm_mode"):
        text = "GRPO in Megatron needs --vllm_mode colocate or server"
        yield problem(run, run.recipe.line, "vllm-mode", text)


def not_supported(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    for name, value in REFUSED.items():
        if run.read(name) != value:
            text = f"--{name} {run.read(name)}: Megatron's GRPO ends with an error (not supported)"
            yield problem(run, name, "megatron", text)
    for name in filter(run.given.get, IGNORED):
        text = f"--{name} has no effect in Megatron's GRPO, which does not read it"
        yield problem(run, name, "megatron", text)


def recomputation(run: Run) -> Iterator[Finding]:
    method = run.text("recompute_method")
    if method and run.text("recompute_granularity") == "selective":
        text = (
            f"--recompute_method {method} is for --recompute_granularity full, and here it is "
            "selective: ms-swift ends with an error"
        )
        yield problem(run, "recompute_method", "recompute", text)


def checkpoints(run: Run) -> Iterator[Finding]:
    kept = run.optional("save_total_limit")
    if kept is not None and kept < 2:
        text = f"--save_total_limit {kept}: Megatron keeps 2 or more (the best and the last)"
        yield problem(run, "save_total_limit", "save", text)
    elif kept is not None and run.true("async_save"):
        text = "--async_save true with --save_total_limit: ms-swift ends with an error"
        yield problem(run, "async_save", "save", text)


def packing(run: Run) -> Iterator[Finding]:
    if run.true("group_by_length") and (run.true("padding_free") or run.true("packing")):
        text = (
            "--group_by_length true does not go with --padding_free, which is on by default: add "
            "--padding_free false"
        )
        yield problem(run, "group_by_length", "padding-free", text)


def only_transformers(run: Run) -> Iterator[Finding]:
    """Switches of this package that no trainer of Megatron reads."""
    for name in OURS:
        if (run.variable(name) or "0").lower() not in ("0", "", "no", "false", "f", "n"):
            text = f"{name} has no effect with `megatron`: it is of the transformers trainer"
            yield note(run, run.recipe.line, "megatron", text)


MEGATRON = (
    *(parallel, batch, visible_gpus, iterations, engine, not_supported, recomputation),
    *(checkpoints, packing, only_transformers),
)
