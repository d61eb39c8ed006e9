"""Rules between flags: batches, engines, lengths.

4 processes x 2 a device x 4 steps = 32 completions; --num_generations 8 divides them
--vllm_tensor_parallel_size 4 divides 4 processes

The conditions are those of ms-swift 4.6.0 (args_mixin.py, rlhf_args.py, rollout_mixin.py), which
raises them after the model is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from swift_vlrft.families import sees_images
from swift_vlrft.recipe.reader import Recipe
from swift_vlrft.recipe.rules.finding import NOTE, PROBLEM, Finding

COUNTS = ("NPROC_PER_NODE", "NNODES")
BATCHES = ("steps_per_generation", "generation_batch_size", "gradient_accumulation_steps")


def batches(recipe: Recipe) -> Iterator[Finding]:
    if recipe.command[-1] != "rlhf":
        return
    yield from _algorithm(recipe)
    if recipe.get("rlhf_type") != "grpo":
        return
    yield from _generation_batch(recipe)
    yield from _engine(recipe)
    yield from _lengths(recipe)
    yield from _sampling(recipe)
    yield from _precision(recipe)


def processes(recipe: Recipe) -> int | None:
    """Processes over all nodes; None where they are not known."""
    found = 1
    said = recipe.launched if recipe.launcher else map(recipe.variable, COUNTS, ("1", "1"))
    for value in said:
        if value is None or not value.isdigit() or int(value) < 1:
            return None
        found *= int(value)
    return found


def number(recipe: Recipe, name: str, default: int | None) -> int | None:
    """A whole number; ``default`` where the flag is absent, None where it is not known."""
    if recipe.lacks(name):
        return default
    text = recipe.get(name) or ""
    return int(text) if text.lstrip("-").isdigit() else None


def finding(recipe: Recipe, name: str, level: str, rule: str, text: str) -> Finding:
    """A finding at a flag, or at the command where the flag is absent."""
    flag = recipe.flag(name)
    return Finding(recipe.path, flag.line if flag else recipe.line, level, rule, text)


def _algorithm(recipe: Recipe) -> Iterator[Finding]:
    if recipe.lacks("rlhf_type") and recipe.flag("reward_funcs"):
        yield finding(
            recipe,
            "reward_funcs",
            PROBLEM,
            "rlhf-type",
            "--reward_funcs without --rlhf_type: ms-swift would train DPO. Add --rlhf_type grpo",
        )
    if recipe.get("rlhf_type") != "grpo":
        return
    others = ("reward_model", "gym_env", "use_gym_env", "teacher_model", "teacher_model_server")
    rewards = recipe.flag("reward_funcs")
    none = not rewards.values if rewards else recipe.lacks("reward_funcs")
    server = recipe.get("vllm_mode") == "server"  # which may be a gym, and then gives the rewards
    if none and recipe.lacks(*others) and recipe.knows("vllm_mode") and not server:
        yield finding(
            recipe, "rlhf_type", PROBLEM, "no-reward", "GRPO without --reward_funcs learns nothing"
        )
    weights = recipe.flag("reward_weights")
    names = len(recipe.values("reward_funcs")) + len(recipe.values("reward_model"))
    known = recipe.knows("reward_funcs", "reward_model", "reward_weights")
    if known and rewards and weights and len(weights.values) != names:
        yield finding(
            recipe,
            "reward_weights",
            PROBLEM,
            "reward-weights",
            f"{len(weights.values)} --reward_weights for {names} rewards",
        )


def _generation_batch(recipe: Recipe) -> Iterator[Finding]:
    world = processes(recipe)
    device = number(recipe, "per_device_train_batch_size", 1)
    steps = number(recipe, "steps_per_generation", None)
    batch = number(recipe, "generation_batch_size", None)
    accumulation = number(recipe, "gradient_accumulation_steps", 1)
    group = number(recipe, "num_generations", 8)
    if world is None or device is None or group is None or accumulation is None:
        return
    if not recipe.knows(*BATCHES):
        return
    if group == 1 and recipe.lacks("teacher_model"):
        yield finding(
            recipe,
            "num_generations",
            PROBLEM,
            "num-generations",
            "--num_generations 1: GRPO compares the completions of one prompt, so it needs 2",
        )
        return
    step = world * device
    if batch is not None and steps is None and batch % step:
        yield finding(
            recipe,
            "generation_batch_size",
            PROBLEM,
            "generation-batch",
            f"--generation_batch_size {batch} is no multiple of {world} processes x {device} a "
            f"device = {step}",
        )
        return
    if batch is not None and steps is not None and batch != step * steps:
        yield finding(
            recipe,
            "generation_batch_size",
            PROBLEM,
            "generation-batch",
            f"--generation_batch_size {batch} contradicts --steps_per_generation {steps}: "
            f"{world} processes x {device} a device x {steps} = {step * steps}. Give one of them",
        )
        return
    if steps is None:
        steps = accumulation
    size = batch if batch is not None else step * steps
    if group > 1 and size % group:
        valid = [str(n) for n in range(2, size + 1) if size % n == 0]
        yield finding(
            recipe,
            "num_generations",
            PROBLEM,
            "generation-batch",
            f"--num_generations {group} does not divide the {size} completions of a generation "
            f"({world} processes x {device} a device x {size // step} steps). "
            f"Possible: {', '.join(valid) or 'none'}; or change the batch",
        )
    yield from _evaluation_batch(recipe, world, group)


def _evaluation_batch(recipe: Recipe, world: int, group: int) -> Iterator[Finding]:
    if not recipe.knows("split_dataset_ratio", "eval_strategy", "save_strategy"):
        return
    ratio = recipe.get("split_dataset_ratio") or "0"
    evaluates = recipe.flag("val_dataset") or ratio.strip("0.") != ""
    strategy = recipe.get("eval_strategy") or recipe.get("save_strategy") or "steps"
    device = number(recipe, "per_device_eval_batch_size", 1)
    group = number(recipe, "num_generations_eval", group) or 0
    if evaluates and strategy != "no" and device and group and world * device % group:
        yield finding(
            recipe,
            "per_device_eval_batch_size",
            PROBLEM,
            "eval-batch",
            f"evaluation: {world} processes x --per_device_eval_batch_size {device} = "
            f"{world * device} is no multiple of {group} generations. Set "
            "--per_device_eval_batch_size or --num_generations_eval",
        )


def _engine(recipe: Recipe) -> Iterator[Finding]:
    mode = recipe.get("vllm_mode")
    uses = recipe.truth("use_vllm")
    if mode and uses is False:
        yield finding(
            recipe,
            "vllm_mode",
            PROBLEM,
            "vllm-mode",
            f"--vllm_mode {mode} without --use_vllm true: ms-swift ends with an error",
        )
    if not uses:
        return
    if not recipe.knows("vllm_mode"):
        return
    mode = mode or ("server" if recipe.flag("vllm_server_host") else "colocate")  # as before 3.12
    world = processes(recipe)
    parallel = number(recipe, "vllm_tensor_parallel_size", 1)
    if mode == "colocate" and world and parallel and world % parallel:
        yield finding(
            recipe,
            "vllm_tensor_parallel_size",
            PROBLEM,
            "tensor-parallel",
            f"--vllm_tensor_parallel_size {parallel} does not divide {world} processes "
            f"(NPROC_PER_NODE x NNODES)",
        )
    if mode == "server":
        yield from _server(recipe)
    elif recipe.get("sleep_level", "0") == "0" and (
        recipe.truth("offload_model") or recipe.truth("offload_optimizer")
    ):
        yield finding(
            recipe,
            "offload_model",
            NOTE,
            "sleep-level",
            "the trainer is offloaded while vLLM generates, but without --sleep_level 1 vLLM keeps "
            "its memory while the trainer works",
        )


def _server(recipe: Recipe) -> Iterator[Finding]:
    if recipe.lacks("vllm_server_host", "vllm_server_base_url"):
        yield finding(
            recipe,
            "vllm_mode",
            PROBLEM,
            "vllm-server",
            "--vllm_mode server needs --vllm_server_host (and --vllm_server_port) of a running "
            "`swift rollout`",
        )
    ignored = (
        "vllm_max_model_len",
        "vllm_gpu_memory_utilization",
        "vllm_tensor_parallel_size",
        "sleep_level",
    )
    for name in ignored:
        if recipe.flag(name):
            yield finding(
                recipe,
                name,
                NOTE,
                "vllm-server",
                f"--{name} has no effect here with --vllm_mode server; give it to `swift rollout`",
            )


def _lengths(recipe: Recipe) -> Iterator[Finding]:
    longest = number(recipe, "vllm_max_model_len", None)
    if recipe.get("vllm_mode") == "server" or not recipe.knows("vllm_mode"):
        longest = None  # the server has its own
    completion = number(recipe, "max_completion_length", 512)
    prompt = number(recipe, "max_length", None)
    if recipe.truth("use_vllm") and longest and completion:
        # infer_engine.py: set_default_max_tokens cuts the answer to what the prompt leaves.
        said = ""
        if prompt and prompt + completion > longest:
            said = (
                f"--max_length {prompt} (prompt) + --max_completion_length {completion} = "
                f"{prompt + completion} exceeds --vllm_max_model_len {longest}"
            )
        elif completion >= longest:
            said = (
                f"--max_completion_length {completion} leaves no room for a prompt in "
                f"--vllm_max_model_len {longest}"
            )
        if said:
            text = f"{said}: long prompts get shorter answers"
            yield finding(recipe, "vllm_max_model_len", NOTE, "lengths", text)
    strategy = recipe.get("truncation_strategy", "left")
    if strategy is None:
        return
    if strategy not in ("left", "delete"):
        yield finding(
            recipe,
            "truncation_strategy",
            PROBLEM,
            "lengths",
            f"--truncation_strategy {strategy}: GRPO takes left or delete",
        )
    elif (
        strategy == "left" and recipe.flag("max_length") and sees_images(recipe.get("model") or "")
    ):
        yield finding(
            recipe,
            "max_length",
            NOTE,
            "lengths",
            "prompts longer than --max_length are cut on the left, image tokens included: add "
            "--truncation_strategy delete",
        )


def _sampling(recipe: Recipe) -> Iterator[Finding]:
    try:
        temperature = float(recipe.get("temperature") or "0.9")
    except ValueError:
        return
    if temperature < 0.3:
        yield finding(
            recipe,
            "temperature",
            NOTE,
            "sampling",
            f"--temperature {temperature}: completions of one prompt will be alike, and without "
            "spread nothing is learned",
        )


def _precision(recipe: Recipe) -> Iterator[Finding]:
    """bfloat16 weights that nothing keeps in 32 bits."""
    low = (recipe.get("torch_dtype") or "") in ("bfloat16", "float16")
    if not low or not recipe.lacks("deepspeed", "fsdp"):
        return
    tuner = recipe.get("tuner_type", "lora")
    if tuner == "full":
        yield finding(
            recipe,
            "torch_dtype",
            NOTE,
            "no-32-bit-copy",
            "without --deepspeed the weights are trained in 16 bits, where steps of a learning "
            "rate like 1e-6 are rounded away: add --deepspeed zero2, also on one GPU",
        )
    elif tuner is not None and recipe.get("vllm_mode") == "colocate":
        yield finding(
            recipe,
            "torch_dtype",
            NOTE,
            "no-32-bit-copy",
            "without --deepspeed ms-swift's weight sync turns the LoRA weights into 16 bits, and "
            "the run cannot go on from a checkpoint: add --deepspeed zero2, also on one GPU",
        )
