"""Rules between flags: batches, engines, lengths.

4 processes x 2 a device x 4 steps = 32 completions; --num_generations 8 divides them
--vllm_tensor_parallel_size 4 divides 4 processes

The conditions are those of ms-swift 4.6.0 (args_mixin.py, rlhf_args.py, rollout_mixin.py), which
raises them after the model is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.families import sees_images
from swift_vlrft.recipe.rules.finding import Finding, found
from swift_vlrft.recipe.run import Run

SERVER_ONLY = (
    *("vllm_max_model_len", "vllm_gpu_memory_utilization", "vllm_tensor_parallel_size"),
    "sleep_level",
)
OTHER_REWARDS = ("reward_model", "gym_env", "use_gym_env", "teacher_model", "teacher_model_server")


def algorithm(run: Run) -> Iterator[Finding]:
    if run.command == "rlhf" and "reward_funcs" in run.given and run.lacks("rlhf_type"):
        yield found(run, "reward_funcs", "rlhf-type")


def no_reward(run: Run) -> Iterator[Finding]:
    if not run.grpo or run.texts("reward_funcs") or not run.lacks(*OTHER_REWARDS):
        return
    if run.text("vllm_mode") != "server":  # which may be a gym, and then gives the rewards
        yield found(run, "rlhf_type", "no-reward")


def reward_weights(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.texts("reward_funcs") or run.lacks("reward_weights"):
        return
    weights = len(run.texts("reward_weights"))
    names = len(run.texts("reward_funcs")) + len(run.texts("reward_model"))
    if weights != names:
        yield found(run, "reward_weights", "reward-weights", weights=weights, names=names)


def generation_batch(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    device, group = run.integer("per_device_train_batch_size"), run.integer("num_generations")
    steps = run.optional("steps_per_generation")
    batch = run.optional("generation_batch_size")
    step = run.processes * device
    size = batch or step * (steps or run.integer("gradient_accumulation_steps"))
    product = f"{run.processes} processes x {device} a device"
    if group == 1:
        if run.lacks("teacher_model"):
            yield found(run, "num_generations", "num-generations")
    elif batch is not None and steps is None and batch % step:
        key = "generation-batch/multiple"
        yield found(run, "generation_batch_size", key, product=product, step=step)
    elif batch is not None and steps is not None and batch != step * steps:
        key = "generation-batch/steps"
        yield found(run, "generation_batch_size", key, product=product, size=step * steps)
    elif size % group:
        possible = ", ".join(str(n) for n in range(2, size + 1) if size % n == 0) or "none"
        values = {"size": size, "steps": size // step, "possible": possible, "product": product}
        yield found(run, "num_generations", "generation-batch/group", **values)


def evaluation_batch(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.evaluates:
        return
    rows = run.processes * run.integer("per_device_eval_batch_size")
    group = run.optional("num_generations_eval") or run.integer("num_generations")
    if run.integer("num_generations") > 1 and rows % group:
        yield found(run, "per_device_eval_batch_size", "eval-batch", rows=rows, group=group)


def engine(run: Run) -> Iterator[Finding]:
    if run.grpo and run.text("vllm_mode") and not run.true("use_vllm"):
        yield found(run, "vllm_mode", "vllm-mode/alone")


def vllm_mode(run: Run) -> str | None:
    """None without vLLM; if the mode is missing, the default before ms-swift 3.12."""
    if not run.grpo or not run.true("use_vllm"):
        return None
    return run.text("vllm_mode") or ("server" if run.text("vllm_server_host") else "colocate")


def tensor_parallel(run: Run) -> Iterator[Finding]:
    colocate = vllm_mode(run) == "colocate"
    if colocate and run.processes % run.integer("vllm_tensor_parallel_size"):
        yield found(run, "vllm_tensor_parallel_size", "tensor-parallel")


def sleep_level(run: Run) -> Iterator[Finding]:
    if vllm_mode(run) != "colocate" or run.integer("sleep_level"):
        return
    if run.true("offload_model") or run.true("offload_optimizer"):
        yield found(run, "offload_model", "sleep-level")


def server(run: Run) -> Iterator[Finding]:
    if vllm_mode(run) != "server":
        return
    for name in SERVER_ONLY:
        if name in run.given:
            yield found(run, name, "vllm-server/flag", flag=name)
    if run.lacks("vllm_server_host", "vllm_server_base_url"):
        yield found(run, "vllm_mode", "vllm-server")


def lengths(run: Run) -> Iterator[Finding]:
    longest = run.optional("vllm_max_model_len")
    if vllm_mode(run) in (None, "server") or not longest:
        return  # the server has its own
    completion, prompt = run.integer("max_completion_length"), run.optional("max_length")
    # infer_engine.py: set_default_max_tokens cuts the answer to what the prompt leaves.
    if prompt and prompt + completion > longest:
        yield found(run, "vllm_max_model_len", "lengths/sum", sum=prompt + completion)
    elif completion >= longest:
        yield found(run, "vllm_max_model_len", "lengths/room")


def truncation(run: Run) -> Iterator[Finding]:
    if not run.grpo:
        return
    strategy = run.text("truncation_strategy")
    sees = sees_images(run.text("model") or "")
    if strategy not in ("left", "delete"):
        yield found(run, "truncation_strategy", "lengths/truncation")
    elif strategy == "left" and "max_length" in run.given and sees:
        yield found(run, "max_length", "lengths/left")


def sampling(run: Run) -> Iterator[Finding]:
    if run.grpo and run.number("temperature") < 0.3:
        yield found(run, "temperature", "sampling", temperature=run.number("temperature"))


def precision(run: Run) -> Iterator[Finding]:
    """bfloat16 weights without a 32-bit copy."""
    low = run.text("torch_dtype") in ("bfloat16", "float16")
    if not run.grpo or not low or not run.lacks("deepspeed", "fsdp"):
        return
    if run.text("tuner_type") == "full":
        yield found(run, "torch_dtype", "no-32-bit-copy/full")
    elif run.text("vllm_mode") == "colocate":
        yield found(run, "torch_dtype", "no-32-bit-copy/lora")


BATCHES = (
    *(algorithm, no_reward, reward_weights, generation_batch, evaluation_batch, engine),
    *(tensor_parallel, sleep_level, server, lengths, truncation, sampling, precision),
)
