"""Find where ms-swift 4.6.0 ends with an error under `megatron`, or in either of its ways to Ray.

swift sft --use_ray true --device_groups '{...}'     workers of a group; `swift sample` has it, too
megatron rlhf --use_ray true --config cfg.yaml       GRPO and GKD: roles that have GPUs

Its files: megatron/arguments/megatron_args.py, megatron/trainers/rollout_mixin.py, ray/megatron/.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from swift_vlrft.recipe.reader import Ray
from swift_vlrft.recipe.rules.batches import generation_size
from swift_vlrft.recipe.rules.finding import Finding, problem
from swift_vlrft.recipe.rules.gpus import named
from swift_vlrft.recipe.run import Run

SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
WORKERS = {"sft": ("default",), "sample": ("sampler", "prm", "orm")}
"""The commands that start Ray, and the workers that each of them needs."""
COUNTS = ("nproc_per_node", "nnodes")


def batch(run: Run) -> Iterator[Finding]:
    """MegatronArguments._init_distributed; RLHFMegatronArgumentsMixin.validate_batch_dp_alignment
    and resolve_generation_batch_size.
    """
    world, per_copy = run.processes, prod(map(run.integer, SIZES))
    if world % per_copy:
        sizes = " x ".join(f"--{name} {run.integer(name)}" for name in SIZES)
        text = f"{world} processes are no multiple of {sizes} = {per_copy}"
        yield problem(run, SIZES[0], "model-parallel", text)
    elif world and run.trains:
        yield from _batch(run, world // per_copy, run.integer("micro_batch_size"))


def _batch(run: Run, copies: int, micro: int) -> Iterator[Finding]:
    step, copied = run.integer("global_batch_size"), f"{copies} copies of the model"
    if step % (micro * copies):
        needed = f"--micro_batch_size {micro} x {copied} = {micro * copies}"
        text = f"--global_batch_size {step} is no multiple of {needed}"
        yield problem(run, "global_batch_size", "global-batch", text)
    elif run.grpo:
        product, shared = f"--global_batch_size {step}", f" x {copied} x --micro_batch_size {micro}"
        yield from generation_size(run, step, product, 1, copies * micro, shared)


def visible_gpus(run: Run) -> Iterator[Finding]:
    visible, processes = run.variable("CUDA_VISIBLE_DEVICES"), run.count("NPROC_PER_NODE") or 1
    if visible is not None and run.recipe.ray is None and 0 < len(named(visible)) < processes:
        text = f"NPROC_PER_NODE={processes}, and CUDA_VISIBLE_DEVICES={visible} names fewer GPUs"
        yield problem(run, run.recipe.line, "visible-gpus", text)


def roles(run: Run) -> Iterator[Finding]:
    """ray/megatron/driver_utils.py: parse_ray_yaml, _validate_colocate_groups."""
    recipe, ray = run.recipe, run.recipe.ray
    if recipe.on_ray and ray is None and recipe.lacks("rlhf_type"):  # no unread configuration
        text = "--use_ray true needs --config cfg.yaml (two words), with the roles' GPUs"
        yield problem(run, "use_ray", "ray", text)
    if ray is None:
        return
    for flag in ray.lost:
        text = f"--{flag.name} is lost: with --use_ray only --config is read. Write it there"
        yield problem(run, flag.line, "ray", text)
    if recipe.on_ray and run.variable("NPROC_PER_NODE") is not None:
        text = "NPROC_PER_NODE would start the driver of Ray several times: unset it"
        yield problem(run, recipe.line, "ray", text)
    for text in _wrong_roles(ray):
        yield problem(run, recipe.line, "ray", text)
    if run.text("rlhf_type") not in ("grpo", "gkd"):
        text = f"rlhf_type {run.text('rlhf_type')}: Megatron on Ray trains only grpo and gkd"
        yield problem(run, "rlhf_type", "ray", text)


def _wrong_roles(ray: Ray) -> Iterator[str]:
    gpus = ray.gpus
    wrong = [role for role, count in gpus.items() if not isinstance(count, int) or count < 1]
    missing = [role for role in ("train", "rollout") if role not in gpus]
    for role in wrong[:1] or missing:
        yield f"{role}: gpus is {gpus.get(role)!r}; a whole number is needed, 1 or more"
    if wrong:
        return
    shared = ray.shared or []
    sets = shared if isinstance(shared, list) else [shared]
    if not all(isinstance(roles, list) and len(roles) > 1 for roles in sets):
        yield f"colocate_groups is {ray.shared!r}; lists of roles are needed, as [[train, rollout]]"
        return
    for roles in sets:
        counts = {str(role): gpus.get(str(role), "none") for role in roles}
        if len(set(counts.values())) > 1 or "none" in counts.values():
            listed = ", ".join(f"{role} {count}" for role, count in counts.items())
            yield f"roles of colocate_groups need the same number of gpus: {listed}"


def device_groups(run: Run) -> Iterator[Finding]:
    needed = WORKERS.get(run.command)
    if run.megatron or needed is None or not run.true("use_ray"):
        return
    if run.lacks("device_groups"):
        yield problem(run, "use_ray", "ray", "--use_ray true needs --device_groups")
        return
    try:
        wrong = list(_wrong_groups(run.json("device_groups"), needed))
    except (OSError, ValueError) as error:
        wrong = [str(error)]
    for text in wrong:
        yield problem(run, "device_groups", "ray", f"--device_groups: {text}")


def _wrong_groups(groups: dict[str, Any], needed: tuple[str, ...]) -> Iterator[str]:
    """ray_utils/resource_manager.py, ray_utils/base.py: _create_workers."""
    if not str(groups.get("nproc_per_node", "")).isdecimal():
        yield "nproc_per_node, the GPUs of a node, is missing or no number"
    workers = {name: group for name, group in groups.items() if name not in COUNTS}
    for name, group in workers.items():
        keys = group if isinstance(group, dict) else {}
        lacks = any(keys.get(key) is None for key in ("device", "ranks"))
        if lacks or not isinstance(keys.get("workers"), list):
            yield f"{name} needs a device, ranks and a list of workers"
            return
    devices = {str(group["device"]).upper() for group in workers.values()}
    if "CPU" in devices:
        yield "device 'CPU': ms-swift 4.6.0 ends with an error; give GPU or NPU"
    elif len(devices) > 1:
        yield f"the devices are of several kinds ({', '.join(sorted(devices))}); give one kind"
    known = {str(worker) for group in workers.values() for worker in group["workers"]}
    if missing := [worker for worker in needed if worker not in known]:
        yield f"no group has the worker {', '.join(missing)}"


MEGATRON = (batch, visible_gpus, roles)
