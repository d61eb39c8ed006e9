"""Rules between flags: batches, engines, lengths.

4 processes x 2 a device x 4 steps = 32 completions; --num_generations 8 divides them
--vllm_tensor_parallel_size 4 divides 4 processes

The conditions are those of ms-swift 4.6.0 (args_mixin.py, rlhf_args.py, rollout_mixin.py), which
raises them after the model is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.families import sees_images
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.run import Run

SERVER_ONLY = (
    *("vllm_max_model_len", "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size"),
    "sleep_level",
)
MOST_GENERATIONS = 4096
"""Largest number of generations that is proposed."""
OTHER_REWARDS = ("reward_model", "gym_env", "use_gym_env", "teacher_model", "teacher_model_server")


def algorithm(run: Run) -> Iterator[Finding]:
    if run.command == "rlhf" and "reward_funcs" in run.given and run.lacks("rlhf_type"):
        text = "--reward_funcs without --rlhf_type: ms-swift would train DPO. Add --rlhf_type grpo"
        yield problem(run, "reward_funcs", "rlhf-type", text)


def no_reward(run: Run) -> Iterator[Finding]:
    if not run.grpo or run.texts("reward_funcs") or not run.lacks(*OTHER_REWARDS):
        return
    if run.text("vllm_mode") != "server":  # which may be a gym, and then gives the rewards
        yield problem(run, "rlhf_type", "no-reward", "GRPO without --reward_funcs learns nothing")


def reward_weights(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.texts("reward_funcs") or run.lacks("reward_weights"):
        return
    weights = len(run.texts("reward_weights"))
    names = len(run.texts("reward_funcs")) + len(run.texts("reward_model"))
    if weights != names:
        text = f"{weights} --reward_weights for {names} rewards"
        yield problem(run, "reward_weights", "reward-weights", text)


def generation_batch(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    world, device = run.processes, run.integer("per_device_train_batch_size")
    steps = run.optional("steps_per_generation")
    batch = run.optional("generation_batch_size")
    group = run.integer("num_generations")
    accumulation = run.integer("gradient_accumulation_steps")
    step = world * device
    product = f"{world} processes x {device} a device"
    if group == 1:
        if run.lacks("teacher_model"):
            text = "GRPO compares the completions of one prompt, so it needs 2"
            yield problem(run, "num_generations", "num-generations", f"--num_generations 1: {text}")
        return
    if batch is not None and steps is None and batch % step:
        text = f"--generation_batch_size {batch} is no multiple of {product} = {step}"
        yield problem(run, "generation_batch_size", "generation-batch", text)
        return
    if batch is not None and steps is not None and batch != step * steps:
        text = (
            f"--generation_batch_size {batch} contradicts --steps_per_generation {steps}: "
            f"{product} x {steps} = {step * steps}. Give one of them"
        )
        yield problem(run, "generation_batch_size", "generation-batch", text)
        return
    size = batch or step * (steps or accumulation)
    if size % group:
        sizes = range(2, min(size, MOST_GENERATIONS) + 1)
        valid = ", ".join(str(n) for n in sizes if size % n == 0) or "none"
        text = (
            f"--num_generations {group} does not divide the {size} completions of a generation "
            f"({product} x {size // step} steps). Possible: {valid}; or change the batch"
        )
        yield problem(run, "num_generations", "generation-batch", text)


def evaluation_batch(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.evaluates:
        return
    world, device = run.processes, run.integer("per_device_eval_batch_size")
    group = run.optional("num_generations_eval") or run.integer("num_generations")
    if run.integer("num_generations") > 1 and world * device % group:
        text = (
            f"evaluation: {world} processes x --per_device_eval_batch_size {device} = "
            f"{world * device} is no multiple of {group} generations. Set "
            "--per_device_eval_batch_size or --num_generations_eval"
        )
        yield problem(run, "per_device_eval_batch_size", "eval-batch", text)


def engine(run: Run) -> Iterator[Finding]:
    mode = run.text("vllm_mode")
    if run.grpo and mode and not run.true("use_vllm"):
        text = f"--vllm_mode {mode} without --use_vllm true: ms-swift ends with an error"
        yield problem(run, "vllm_mode", "vllm-mode", text)


def vllm_mode(run: Run) -> str | None:
    """None without vLLM; if the mode is missing, the default before ms-swift 3.12. On Ray engines
    have their own GPUs unless colocate_groups says otherwise.
    """
    if not run.grpo or not run.true("use_vllm"):
        return None
    if (ray := run.recipe.ray) is not None:
        return "colocate" if "rollout" in str(ray.shared) else "apart"
    return run.text("vllm_mode") or ("server" if run.text("vllm_server_host") else "colocate")


def tensor_parallel(run: Run) -> Iterator[Finding]:
    if vllm_mode(run) != "colocate":
        return
    parallel = run.integer("vllm_tensor_parallel_size")
    if run.processes % parallel:
        text = (
            f"--vllm_tensor_parallel_size {parallel} does not divide {run.processes} processes "
            "(NPROC_PER_NODE x NNODES)"
        )
        yield problem(run, "vllm_tensor_parallel_size", "tensor-parallel", text)


def sleep_level(run: Run) -> Iterator[Finding]:
    if vllm_mode(run) != "colocate" or run.integer("sleep_level"):
        return
    if run.true("offload_model") or run.true("offload_optimizer"):
        text = (
            "the trainer is offloaded while vLLM generates, but without --sleep_level 1 vLLM keeps "
            "its memory while the trainer works"
        )
        yield note(run, "offload_model", "sleep-level", text)


def server(run: Run) -> Iterator[Finding]:
    if vllm_mode(run) != "server":
        return
    for name in SERVER_ONLY:
        if name in run.given:
            text = (
                f"--{name} has no effect here with --vllm_mode server; give it to `swift rollout`"
            )
            yield note(run, name, "vllm-server", text)
    if run.lacks("vllm_server_host", "vllm_server_base_url"):
        text = (
            "--vllm_mode server needs --vllm_server_host (and --vllm_server_port) of a running "
            "`swift rollout`"
        )
        yield problem(run, "vllm_mode", "vllm-server", text)


def lengths(run: Run) -> Iterator[Finding]:
    longest = run.optional("vllm_max_model_len")
    if vllm_mode(run) in (None, "server") or not longest:
        return  # the server has its own
    completion, prompt = run.integer("max_completion_length"), run.optional("max_length")
    # infer_engine.py: set_default_max_tokens cuts the answer to what the prompt leaves.
    if prompt and prompt + completion > longest:
        text = (
            f"--max_length {prompt} (prompt) + --max_completion_length {completion} = "
            f"{prompt + completion} exceeds --vllm_max_model_len {longest}"
        )
    elif completion >= longest:
        text = (
            f"--max_completion_length {completion} leaves no room for a prompt in "
            f"--vllm_max_model_len {longest}"
        )
    else:
        return
    yield note(run, "vllm_max_model_len", "lengths", f"{text}: long prompts get shorter answers")


def truncation(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    strategy = run.text("truncation_strategy")
    sees = sees_images(run.text("model") or "")
    if strategy not in ("left", "delete"):
        text = f"--truncation_strategy {strategy}: GRPO takes left or delete"
        yield problem(run, "truncation_strategy", "lengths", text)
    elif strategy == "left" and "max_length" in run.given and sees:
        text = (
            "prompts longer than --max_length are cut on the left, image tokens included: add "
            "--truncation_strategy delete"
        )
        yield note(run, "max_length", "lengths", text)


def sampling(run: Run) -> Iterator[Finding]:
    if run.grpo and run.number("temperature") < 0.3:
        text = (
            f"--temperature {run.number('temperature')}: completions of one prompt will be alike, "
            "and with a reward std of 0 nothing is learned"
        )
        yield note(run, "temperature", "sampling", text)


def precision(run: Run) -> Iterator[Finding]:
    """bfloat16 weights without a 32-bit copy."""
    low = run.text("torch_dtype") in ("bfloat16", "float16")
    if not run.grpo or not low or not run.lacks("deepspeed", "fsdp"):
        return
    remedy = "add --deepspeed zero2, also on one GPU"
    if run.text("tuner_type") == "full":
        text = (
            "without --deepspeed the weights are trained in 16 bits, where steps of a learning "
            f"rate like 1e-6 are rounded away: {remedy}"
        )
        yield note(run, "torch_dtype", "no-32-bit-copy", text)
    elif run.text("vllm_mode") == "colocate":
        text = (
            "without --deepspeed ms-swift's weight sync turns the LoRA weights into 16 bits, and "
            f"the run cannot go on from a checkpoint: {remedy}"
        )
        yield note(run, "torch_dtype", "no-32-bit-copy", text)


OF_BOTH = (
    *(algorithm, no_reward, reward_weights, tensor_parallel, sleep_level, server, lengths),
    *(truncation, sampling),
)
"""Those that hold for Megatron's trainers, too."""
BATCHES = (*OF_BOTH, generation_batch, evaluation_batch, engine, precision)
