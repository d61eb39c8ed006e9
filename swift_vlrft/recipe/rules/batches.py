"""Check rules between flags: batches, engines, lengths, GPUs.

4 processes x 2 a device x 4 steps = 32 completions; --num_generations 8 divides them

The conditions are those that ms-swift 4.6.0 (args_mixin.py, rlhf_args.py, rollout_mixin.py) raises
after the model is downloaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from swift_vlrft.families.published import attention_heads
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.run import Run

MOST_GENERATIONS = 4096
"""Largest number of generations that is proposed."""
A_GPU = re.compile(r"\d+|(?:GPU|MIG)-\S+")


def rewards(run: Run) -> Iterator[Finding]:
    names = run.texts("reward_funcs") if run.grpo else ()
    if names and not run.omits("reward_weights"):
        weights, count = run.texts("reward_weights"), len(names) + len(run.texts("reward_model"))
        if len(weights) != count:
            text = f"--reward_weights has {len(weights)} numbers for {count} rewards"
            yield problem(run, "reward_weights", "reward-weights", text)
        for name, weight in zip(names, weights, strict=False):
            if float(weight) <= 0:
                why = "counts for nothing" if float(weight) == 0 else "pays for what is wrong"
                text = f"--reward_weights {weight}: {name} {why}"
                yield note(run, "reward_weights", "reward-weights", text)


def rollout_steps(run: Run) -> int:
    """Return the micro-batches of a rollout on each process."""
    steps, batch = run.optional("steps_per_generation"), run.optional("generation_batch_size")
    if steps is None and batch is not None:
        return batch // (run.processes * run.integer("per_device_train_batch_size")) or 1
    return steps or run.integer("gradient_accumulation_steps")


def generation_batch(run: Run) -> Iterator[Finding]:
    """Check that `--num_generations` divides the completions of one generation."""
    if not run.grpo:
        return
    world, device = run.processes, run.integer("per_device_train_batch_size")
    step, product = world * device, f"{world} processes x {device} a device"
    batch, set_steps = run.optional("generation_batch_size"), run.optional("steps_per_generation")
    group = run.integer("num_generations")
    size = batch or step * (set_steps or run.integer("gradient_accumulation_steps"))
    if group == 1 and run.omits("teacher_model", "teacher_model_server"):
        text = "--num_generations 1: GRPO compares completions of a prompt, so it needs 2 or more"
        yield problem(run, "num_generations", "num-generations", text)
    elif set_steps is not None and size != step * set_steps:
        text = (
            f"--generation_batch_size {size} contradicts --steps_per_generation {set_steps}: "
            f"{product} x {set_steps} = {step * set_steps}. Leave out either flag"
        )
        yield problem(run, "generation_batch_size", "generation-batch", text)
    elif size % step:
        text = f"--generation_batch_size {size} is no multiple of {product}"
        yield problem(run, "generation_batch_size", "generation-batch", text)
    elif size % group:
        sizes = range(2, min(size, MOST_GENERATIONS) + 1)
        valid = ", ".join(str(n) for n in sizes if size % n == 0)
        more = f"--steps_per_generation {group // math.gcd(group, step)}"
        text = (
            f"--num_generations {group} does not divide the {size} completions of a "
            f"generation ({product} x {size // step} steps). "
            + f"Possible: {valid}; or {more}" * bool(valid)
            + f"A group does not fit in: give {more}" * (not valid)
        )
        yield problem(run, "num_generations", "generation-batch", text)


def steps(run: Run, rows: int, stored: int) -> Iterator[Finding]:
    """Count the optimizer's steps in an epoch of rows, of which ``stored`` are different.

    RepeatSampler (TRL) repeats the prompts of a generation and leaves out the last rows that do not
    fill a generation.
    """
    if not run.grpo or run.true("streaming") or run.number("split_dataset_ratio"):
        return
    batches = rollout_steps(run)
    answers = run.processes * run.integer("per_device_train_batch_size") * batches
    prompts, rest = divmod(answers, run.integer("num_generations"))
    if rest or not prompts:
        return  # generation_batch says so
    trained = rows // prompts * batches * run.integer("num_iterations")
    number = math.ceil(trained / run.integer("gradient_accumulation_steps"))
    repeated = f" ({stored} rows, repeated)" * (rows > stored)
    text = f"rows {rows}{repeated}, prompts of a generation {prompts}, its completions {answers}: "
    if not number:
        text += "no generation can be filled, and nothing is trained; take a smaller batch"
        yield problem(run, "dataset", "steps", text)
        return
    text += f"steps of an epoch {number}"
    if (most := run.integer("max_steps")) > 0:
        text += f", epochs in --max_steps {most / number:.3g}"
    else:
        text += f", in all {math.ceil(run.number('num_train_epochs') * number)}"
    yield note(run, "dataset", "steps", text)


def evaluation_batch(run: Run) -> Iterator[Finding]:
    if not run.grpo or not run.evaluates:
        return
    world, device = run.processes, run.integer("per_device_eval_batch_size")
    group = run.optional("num_generations_eval") or run.integer("num_generations")
    if run.integer("num_generations") > 1 and world * device % group:
        text = (
            f"evaluation: {world} processes x --per_device_eval_batch_size {device} is no multiple "
            f"of {group} generations; change it, or set --num_generations_eval"
        )
        yield problem(run, "per_device_eval_batch_size", "eval-batch", text)


def engine_mode(run: Run) -> str | None:
    """Return the mode, None without vLLM; a missing mode is the default before ms-swift 3.12."""
    if not run.true("use_vllm"):
        return None
    return run.text("vllm_mode") or ("server" if run.text("vllm_server_host") else "colocate")


def tensor_parallel(run: Run) -> Iterator[Finding]:
    """vLLM parts the attention heads; colocated, it also parts the processes into groups."""
    rollout = run.command == "rollout"
    if not rollout and not (run.grpo and engine_mode(run) == "colocate"):
        return
    parallel = run.integer("vllm_tensor_parallel_size")
    parts = {} if rollout else {"processes": run.processes}
    if heads := attention_heads(run.text("model") or ""):
        parts[f"attention heads of {Path(run.text('model') or '').name}"] = heads
    wrong = [f"{number} {part}" for part, number in parts.items() if number % parallel]
    if wrong:
        both = math.gcd(*parts.values())
        fits = ", ".join(str(n) for n in range(1, both + 1) if both % n == 0)
        text = f"--vllm_tensor_parallel_size {parallel} does not divide the {wrong[0]}. "
        text += f"Possible: {fits}"
        yield problem(run, "vllm_tensor_parallel_size", "tensor-parallel", text)


def lengths(run: Run) -> Iterator[Finding]:
    """infer_engine.py: set_default_max_tokens cuts the answer to what the prompt leaves."""
    longest = run.optional("vllm_max_model_len")
    if not run.grpo or engine_mode(run) != "colocate" or not longest:
        return  # the server has its own
    needed = (run.optional("max_length") or 1) + run.integer("max_completion_length")
    if needed > longest:
        text = (
            f"{needed} tokens of prompt and answer (--max_length, --max_completion_length) exceed "
            f"--vllm_max_model_len {longest}: long prompts get shorter answers"
        )
        yield note(run, "vllm_max_model_len", "lengths", text)


def visible_gpus(run: Run) -> Iterator[Finding]:
    """Find GPUs that do not fit the processes: ms-swift would give two of CUDA_VISIBLE_DEVICES=0,1
    to NPROC_PER_NODE=1, and DeepSpeed and vLLM refuse that (is_mp in utils/env.py, sft_args.py).
    """
    visible = run.variable("CUDA_VISIBLE_DEVICES")
    if not run.trains or run.variable("SWIFT_SINGLE_DEVICE_MODE") == "1":
        return
    processes = run.count("NPROC_PER_NODE") or 1
    listed = [name.strip() for name in (visible or "").split(",") if name.strip()]
    if len(set(listed)) < len(listed):
        text = f"CUDA_VISIBLE_DEVICES={visible} names a GPU twice: CUDA then shows none"
        yield problem(run, run.recipe.line, "visible-gpus", text)
        return
    # As in CUDA, the first invalid entry ends the list.
    names = [*takewhile(A_GPU.fullmatch, listed)]
    count = len(names)
    if not count or count == processes:
        return
    if count % processes:
        why = f'ms-swift ends with "n_gpu: {count}, local_world_size: {processes}"'
    elif refuses := _refuses(run):
        why = f'ms-swift ends with "{refuses} is not compatible with `device_map`"'
    else:
        return
    remedy = f"Set NPROC_PER_NODE={count}"
    if count > processes:
        remedy += f", or CUDA_VISIBLE_DEVICES={','.join(names[:processes])}"
    if run.recipe.launcher == "python":
        remedy = f"Start it by `swift {run.command}`, which reads NPROC_PER_NODE"
    text = f"NPROC_PER_NODE={processes} for {count} GPUs (CUDA_VISIBLE_DEVICES={visible}): {why}. "
    yield problem(run, run.recipe.line, "visible-gpus", text + remedy)


def _refuses(run: Run) -> str:
    """What ends the run if a process has several GPUs, in ms-swift's words."""
    if "deepspeed" in run.given:
        return "DeepSpeed"
    kind = run.text("rlhf_type") or ""
    if run.command == "rlhf" and kind in ("grpo", "gkd") and run.true("use_vllm"):
        return f"{kind.upper()} with vLLM"
    return "FSDP2" if "fsdp" in run.given else ""


BATCHES = (rewards, tensor_parallel, lengths, generation_batch, evaluation_batch)
