"""Rules of ms-swift's two ways to Ray.

swift sft --use_ray true --device_groups '{...}'     workers of a group; `swift sample` has it, too
megatron rlhf --use_ray true --config cfg.yaml       GRPO and GKD: roles that have GPUs

The conditions are those of ms-swift 4.6.0 (ray_utils/, ray/megatron/driver_utils.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swift_vlrft.recipe.reader import ROLES, Ray
from swift_vlrft.recipe.rules.finding import Finding, note, problem
from swift_vlrft.recipe.run import Run

WORKERS = {"sft": ("default",), "sample": ("sampler", "prm", "orm")}
"""The commands that start Ray, and the workers that each of them needs."""
COUNTS = ("nproc_per_node", "nnodes")


def device_groups(run: Run) -> Iterator[Finding]:
    if run.megatron or not run.true("use_ray"):
        return
    needed = WORKERS.get(run.command)
    if needed is None:
        text = f"`swift {run.command}` does not start Ray: --use_ray changes nothing. "
        grpo = "`megatron rlhf --use_ray true --config cfg.yaml` does, for GRPO and GKD"
        other = f"`swift {'` and `swift '.join(WORKERS)}` do"
        yield note(run, "use_ray", "ray", text + (grpo if run.command == "rlhf" else other))
        return
    if run.lacks("device_groups"):
        yield problem(run, "use_ray", "ray", "--use_ray true needs --device_groups")
        return
    try:
        groups = run.json("device_groups")
    except (OSError, ValueError) as error:
        yield problem(run, "device_groups", "ray", f"--device_groups: {error}")
        return
    for text in _wrong_groups(groups, needed):
        yield problem(run, "device_groups", "ray", f"--device_groups: {text}")


def _wrong_groups(groups: dict[str, Any], needed: tuple[str, ...]) -> Iterator[str]:
    """ray_utils/resource_manager.py, ray_utils/base.py: _create_workers."""
    if not str(groups.get("nproc_per_node", "")).isdecimal():
        yield "nproc_per_node, the GPUs of a node, is missing or no number"
    found = {name: group for name, group in groups.items() if name not in COUNTS}
    for name, group in found.items():
        keys = ("device", "ranks", "workers")
        lacking = [key for key in keys if not isinstance(group, dict) or group.get(key) is None]
        if not lacking and not isinstance(group["workers"], list):
            lacking = ["list of workers"]
        if lacking:
            yield f"{name} has no {', '.join(lacking)}"
            return
    devices = {str(group["device"]).upper() for group in found.values()}
    if "CPU" in devices:
        yield "device CPU: ms-swift 4.6.0 ends with KeyError: 'CPU'; give GPU or NPU"
    elif len(devices) > 1:
        yield f"devices of {len(devices)} kinds ({', '.join(sorted(devices))}); it takes one"
    known = {str(worker) for group in found.values() for worker in group["workers"]}
    if missing := [worker for worker in needed if worker not in known]:
        yield f"no group has the worker {', '.join(missing)}"


def roles(run: Run) -> Iterator[Finding]:
    """ray/megatron/driver_utils.py: parse_ray_yaml, _validate_colocate_groups."""
    recipe, ray = run.recipe, run.recipe.ray
    if recipe.on_ray and ray is None and not recipe.may_add:
        text = "--use_ray true needs --config cfg.yaml (two words) with the roles train and rollout"
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
        text = f"rlhf_type {run.text('rlhf_type')}: on Ray Megatron trains grpo and gkd"
        yield problem(run, "rlhf_type", "ray", text)
    for name in ("val_dataset", "split_dataset_ratio"):
        if name in run.given and run.as_given(name).value:
            text = f"{name} is ignored: on Ray nothing is evaluated yet"
            yield note(run, name, "ray", text)


def _wrong_roles(ray: Ray) -> Iterator[str]:
    gpus = ray.gpus
    for role, count in gpus.items():
        if not isinstance(count, int) or count < 1:
            yield f"{role}: gpus is {count!r}; a whole number is needed, 1 or more"
            return
    for role in ("train", "rollout"):
        if role not in gpus:
            yield f"the role {role} with its gpus is missing"
    shared = ray.shared or []
    sets = shared if isinstance(shared, list) else [shared]
    if not all(isinstance(roles, list) and len(roles) > 1 for roles in sets):
        yield f"colocate_groups is {ray.shared!r}; lists of roles are needed, as [[train, rollout]]"
        return
    sets = [[str(role) for role in roles] for roles in sets]
    for role in (role for roles in sets for role in roles if role not in gpus):
        yield f"colocate_groups names {role}; known are those of {', '.join(ROLES)} that have gpus"
    for roles in sets:
        counts = {role: gpus[role] for role in roles if role in gpus}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{role} {count}" for role, count in counts.items())
            yield f"roles that share GPUs need the same number of them: {listed}"
