"""The plan of a recipe, changes that make it fit, and recipes written from plans.

    planned = plan_recipe("recipes/qwen2_5_vl_3b/detection_4x80g.sh", "4x24")
    planned.plan.verdict, planned.changes()[0].flags
    apply_change(planned, Path("smaller.sh"))
    new_plan(Path("new.sh"), "Qwen/Qwen2.5-VL-3B-Instruct", "detection", "8x24")

Unusable input is a ValueError in one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from swift_vlrft.memory import from_recipe as reading
from swift_vlrft.memory.advice import Change, Written, advise, headroom_options
from swift_vlrft.memory.append import RunWith, applied, callers_part, run_with
from swift_vlrft.memory.estimate import Plan, estimate
from swift_vlrft.memory.images import longest_row
from swift_vlrft.memory.models import read_model
from swift_vlrft.memory.new_recipe import new_recipe
from swift_vlrft.memory.settings import GIB, USABLE, Gpus, parse_gpus
from swift_vlrft.recipe.by_bash import run_recipes
from swift_vlrft.recipe.fix import write_fixed
from swift_vlrft.recipe.gpus import installed_gpus
from swift_vlrft.recipe.reader import Recipe, only, read_recipe, read_text
from swift_vlrft.recipe.rules import check_recipe
from swift_vlrft.recipe.run import resolve


@dataclass(frozen=True)
class RecipePlan:
    recipe: Recipe
    gpus: Gpus
    plan: Plan
    written: Written
    path: Path
    """The file that was given, which may run another script that the recipe stands in."""
    environment: str = ""
    """The caller's variables that the plan depends on, as written in front of a command."""

    def changes(self) -> list[Change]:
        return advise(self.plan, self.written)

    def run_with(self, change: Change) -> RunWith:
        return run_with(self.path, self.all_flags(change))

    def all_flags(self, change: Change) -> dict[str, str]:
        """The flags of a change, with the nodes where only --nodes says how many."""
        nodes = self.plan.settings.nodes
        other = nodes != reading.nodes_of(self.recipe)
        return change.flags | ({"NNODES": str(nodes)} if other else {})

    def headroom(self) -> list[Change]:
        return headroom_options(self.plan, self.written)


def plan_recipe(
    path: str | Path,
    gpus: str | None = None,
    *,
    nodes: int | None = None,
    dataset: str | Path | None = None,
    run: bool = False,
) -> RecipePlan:
    """The memory of each phase of a recipe's run, as `vlrft plan` prints it.

    ``gpus``: of one node, as 4x80; by default this machine's, or those in the recipe's name.
    ``nodes``: by default the recipe's NNODES. ``dataset``: plan for its longest row. ``run``:
    bash itself reads the script (recipe/by_bash.py). ValueError says what cannot be used.
    """
    recipe = only(run_recipes(path)) if run else read_recipe(path)
    return plan_read(recipe, gpus, nodes=nodes, dataset=dataset, path=Path(path))


def plan_read(
    recipe: Recipe,
    gpus: str | None = None,
    *,
    nodes: int | None = None,
    dataset: str | Path | None = None,
    path: Path | None = None,
) -> RecipePlan:
    """As ``plan_recipe``, of a recipe that has been read, from ``path`` where that runs it."""
    reading.refuse(recipe)
    node, note = _gpus(gpus, recipe.path)
    planned = _planned(recipe, node, nodes, dataset)
    path = path or recipe.path
    given = callers_part(recipe, path)
    plan = planned.plan.with_note(note).with_note(given and f"from your environment: {given}")
    return replace(planned, plan=plan, environment=given, path=path)


def _planned(
    recipe: Recipe, gpus: Gpus, nodes: int | None, dataset: str | Path | None
) -> RecipePlan:
    longest = None
    if dataset is not None:
        model = read_model(reading.model_name(resolve(recipe)))
        longest = longest_row(dataset, model.image_rule, *reading.limits(recipe, model))
    settings = reading.settings_of(recipe, gpus, nodes=nodes, longest=longest)
    written = reading.as_written(recipe, gpus, nodes=nodes, longest=longest)
    return RecipePlan(recipe, gpus, estimate(settings), written, recipe.path)


def _gpus(text: str | None, path: Path) -> tuple[Gpus, str]:
    """The given GPUs, this machine's, or those in the recipe's name; and what was assumed."""
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


def apply_change(planned: RecipePlan, out: Path) -> tuple[Change, Path | None]:
    """Write a script that runs the recipe with the first change that makes it fit; the second
    result is the backup of a file that was there before.
    """
    path, gpus = planned.path, planned.gpus
    if planned.plan.fits:
        raise ValueError(f"{path} fits as it is: {out} is not written")
    if not (changes := planned.changes()):
        raise ValueError(
            f"no set of changes makes {path} fit; more or larger GPUs are needed: {out} is not "
            "written"
        )
    change = changes[0]
    remark = f"{path.name}, changed by vlrft for {gpus.count} x {gpus.name}: {change.label}"
    if planned.environment:
        remark += f"; planned with {planned.environment} in the environment"
    return change, write_fixed(out, applied(path, planned.all_flags(change), out, remark), 0o755)


def new_plan(
    out: Path,
    model: str,
    task: str,
    gpus: str | None = None,
    *,
    nodes: int | None = None,
    dataset: Path | None = None,
) -> tuple[RecipePlan, Path | None]:
    """Write a new recipe that fits; ValueError if no known change makes it fit."""
    node, _ = _gpus(gpus, out)
    data = str(dataset) if dataset else None

    def plan_of(text: str) -> RecipePlan:
        return _planned(read_text(text, out)[0], node, nodes, dataset)

    planned = plan_of(new_recipe(model, task, node.count, data, nodes=nodes or 1))
    if not planned.plan.fits:
        recipe, peak, options = planned.recipe, planned.plan.peak, planned.changes()
        if not options:
            raise ValueError(
                f"{model} does not fit on {node.count} GPUs of {node.gib:.0f} GiB with any "
                f"known change: {peak.total / GIB:.1f} GiB in {peak.name}"
            )
        # Preferably one that needs no package that is missing here (liger-kernel).
        clean = [c for c in options if not check_recipe(reading.changed(recipe, c.flags))]
        changes = (clean or options)[0].flags
        text = new_recipe(model, task, node.count, data, nodes=nodes or 1, changes=changes)
        planned = plan_of(text)
    return planned, write_fixed(out, planned.recipe.text, 0o755)
