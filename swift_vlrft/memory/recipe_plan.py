"""Plan a recipe, and find changes that make it fit.

    planned = plan_recipe("qwen2_5_vl_3b/detection_4x80g", "4x24")
    planned.plan.verdict, planned.changes()[0].flags

Unusable input is a ValueError in one line.
"""

import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from swift_vlrft.memory import append
from swift_vlrft.memory import from_recipe as reading
from swift_vlrft.memory.advice import Change, Written, advise
from swift_vlrft.memory.estimate import Plan, estimate
from swift_vlrft.memory.images import Longest, longest_row
from swift_vlrft.memory.refused import refuse
from swift_vlrft.memory.row_tokens import rule_of
from swift_vlrft.memory.settings import GIB, USABLE, Gpus, parse_gpus
from swift_vlrft.recipe.by_bash import run_recipes
from swift_vlrft.recipe.gpus import installed_gpus
from swift_vlrft.recipe.reader import hands_on, only, read_recipes
from swift_vlrft.recipe.run import NotKnown, Run, resolve
from swift_vlrft.recipe.shipped import recipe_path


@dataclass(frozen=True)
class RecipePlan:
    run: Run
    gpus: Gpus
    plan: Plan
    path: Path
    nodes: int | None = None  # In place of the recipe's NNODES
    longest: Longest | None = None
    arguments: tuple[str, ...] = ()  # Flags behind the file, as behind `bash FILE`

    @cached_property
    def written(self) -> Written:
        """Return what reads the recipe with other flags (from_recipe.as_written)."""
        return reading.as_written(self.run, self.gpus, nodes=self.nodes, longest=self.longest)

    def changes(self) -> list[Change]:
        """Return the changes that make it fit, cheapest first."""
        return advise(self.plan, self.written)

    def run_with(self, flags: Mapping[str, str]) -> append.RunWith:
        """Add the nodes, where only --nodes says how many, and the caller's processes."""
        nodes, processes = self.plan.settings.nodes, os.environ.get("NPROC_PER_NODE")
        other = {"NNODES": str(nodes)} if nodes != reading.nodes_of(self.run) else {}
        if processes == str(self.gpus.count):
            other["NPROC_PER_NODE"] = processes
        return append.run_with(self.path, {**flags, **other}, self.arguments)


def plan_recipe(
    path: str | Path,
    gpus: str | None = None,
    *,
    arguments: Sequence[str] = (),
    nodes: int | None = None,
    dataset: str | Path | None = None,
    run: bool = False,
) -> RecipePlan:
    """Plan the memory of each phase of a recipe's run, as `vlrft plan` prints it.

    ``path``: a file, or a name that `vlrft recipe` prints. ``gpus``: of one node, as 4x80; by
    default this machine's, or those in the recipe's name. ``arguments``: flags behind it, as behind
    `bash RECIPE`. ``nodes``: by default the recipe's NNODES. ``dataset``: plan for its longest row.
    ``run``: bash itself reads the script (recipe/by_bash.py). ValueError says what cannot be used.
    """
    path = recipe_path(path)
    environment = append.elsewhere(parse_gpus(gpus).count) if gpus else os.environ
    resolved, variables = read_training(path, arguments, environment, run)
    node, note = gpus_of(gpus, resolved.recipe.path)
    planned = planned_run(resolved, node, nodes, dataset)
    plan = planned.plan.with_notes(note, variables and f"from your environment: {variables}")
    return replace(planned, plan=plan, path=path, arguments=tuple(arguments))


def read_training(
    path: Path, words: Sequence[str], environment: Mapping[str, str], by_bash: bool = False
) -> tuple[Run, str]:
    """Return the command that trains, and the caller's other variables that it depends on."""
    read = run_recipes if by_bash else read_recipes
    recipes = read(path, environment, words)
    hands_on(recipes, words)
    run = resolve(only(recipes))
    refuse(run)
    return run, append.callers_part(run.recipe, environment)


def planned_run(run: Run, gpus: Gpus, nodes: int | None, dataset: str | Path | None) -> RecipePlan:
    longest = None
    if dataset is not None:
        room = run.optional("max_length") if run.command == "sft" else None
        longest = longest_row(dataset, rule_of(run, reading.model_of(run)), room)
    settings = reading.settings_of(run, gpus, nodes=nodes, longest=longest)
    return RecipePlan(run, gpus, estimate(settings), run.recipe.path, nodes, longest)


def gpus_of(text: str | None, path: Path) -> tuple[Gpus, str]:
    """Return the GPUs of the flag, this machine or the recipe's name; and what was assumed."""
    if text is not None:
        return parse_gpus(text), ""
    try:
        here = installed_gpus()
    except OSError:
        here = ()
    if sizes := [gpu.mib for gpu in here if gpu.mib]:
        least = min(sizes) * 2**20 * USABLE / GIB
        return Gpus(len(here), least, here[0].name), f"this machine's {len(here)} GPUs"
    if match := re.search(r"(?:(\d+)\+\d+|(\d+))x(\d+)g", path.name):
        named = f"{match[1] or match[2]}x{match[3]}"
        return parse_gpus(named), f"no --gpus and no GPU here: {named} from the recipe's name"
    raise ValueError("this machine has no NVIDIA GPU; name the GPUs to plan for: --gpus 4x80")


def for_machine(
    run: Run, gpus: Gpus, nodes: int | None, own: Container[str]
) -> tuple[dict[str, str], str]:
    """Return the flags that the number of GPUs demands, and a change of a step's rows.

    A process for each GPU, as many rows a step as before or the nearest possible number, a tensor
    parallel size that divides both, ZeRO-2 where nothing is shared. ``own`` flags stay.
    """
    recipe, before, said = run.recipe, reading.nodes_of(run), ""
    flags = {"NNODES": str(nodes)} if (nodes or before) != before else {}
    try:
        count = run.count("NPROC_PER_NODE") or 1
    except NotKnown:
        count = gpus.count
    if count != gpus.count and run.text("vllm_mode") == "server":
        raise ValueError(
            f"{recipe.path} trains on {count} GPUs beside `swift rollout`, and no change here "
            f"keeps the two apart: give the trainer's GPUs alone (--gpus {count}x80), or write "
            "both numbers into a copy of the recipe"
        )
    flags |= {"NPROC_PER_NODE": str(gpus.count)} if count != gpus.count else {}
    differs, most = bool(flags), run.integer("vllm_tensor_parallel_size")
    alone = {"vllm_tensor_parallel_size": "1"} if most > 1 else {}
    s = reading.settings_of(reading.changed(run, flags | alone), gpus, nodes=nodes)
    tps = [n for n in range(1, most + 1) if gpus.count % n == 0 == s.model.heads % n]
    flags |= {"vllm_tensor_parallel_size": str(tps[-1])} if tps and tps[-1] != most else {}
    for name, steps in (
        ("steps_per_generation", s.steps_per_generation),
        ("gradient_accumulation_steps", s.accumulation),
    ):
        if steps and differs:
            rows, wide = count * before * s.batch * steps, s.processes * s.batch
            even = [n for n in range(1, rows + s.generations + 1) if wide * n % s.generations == 0]
            best = steps if name in own else min(even, key=lambda n: abs(wide * n - rows))
            flags |= {name: str(best)} if best != steps else {}
            said = f"{wide * best} rows a step in place of {rows}" if wide * best != rows else ""
    if differs and s.processes == 1 and recipe.get("deepspeed") in ("zero3", "zero3_offload"):
        flags["deepspeed"] = str(recipe.get("deepspeed")).replace("3", "2")
    return {name: value for name, value in flags.items() if name not in own}, said
