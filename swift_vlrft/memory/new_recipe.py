"""Write a new recipe: the nearest tested recipe, changed for a model, a task and GPUs.

new = new_recipe(Path("new.sh"), "Qwen/Qwen2.5-VL-7B-Instruct", "counting", "4x24")
new.planned.plan.peak, new.change.flags, new.origin

Unusable input is a ValueError in one line.
"""

import re
import shlex
import textwrap
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path

from swift_vlrft.datasets.row import BOX_TASKS
from swift_vlrft.memory.advice import Change
from swift_vlrft.memory.from_recipe import changed
from swift_vlrft.memory.models import Model, read_model
from swift_vlrft.memory.recipe_plan import RecipePlan, for_machine, gpus_of, planned_run
from swift_vlrft.memory.scripts import Script, scripts
from swift_vlrft.memory.settings import GIB, Gpus, parse_gpus
from swift_vlrft.recipe.fix import write_fixed
from swift_vlrft.recipe.reader import CONFIGURATION, only, read_text
from swift_vlrft.recipe.run import Run, resolve
from swift_vlrft.rewards import PAYING, TASK_NAMES


@dataclass(frozen=True)
class NewRecipe:
    """A new recipe is a script that was written for a machine."""

    planned: RecipePlan
    change: Change  # ``flags`` is empty where the tested recipe fits as it is
    origin: str  # The sentence in the script: from which recipe, changed how and for which GPUs
    backup: Path | None  # Of a file that was there before


def new_recipe(
    out: Path,
    model: str,
    task: str,
    gpus: str | None = None,
    *,
    nodes: int | None = None,
    dataset: Path | None = None,
) -> NewRecipe:
    """Write the tested recipe nearest to a model, a task and a machine, changed until it fits."""
    if out.suffix in CONFIGURATION:
        raise ValueError(f"{out}: the output is a script; name it *.sh")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; give a file in it, as {out / 'new.sh'}")
    node, _ = gpus_of(gpus, out)
    if Path(model).name == "config.json":
        model = str(Path(model).parent)
    script, said = _draft(model, task, node, nodes or 1, dataset)
    (recipe,) = read_text(script.text(), out, {})
    planned, change, rows = _fitted(resolve(recipe), node, nodes, dataset)
    count = planned.plan.settings.nodes
    machine = f"{count} nodes of " * (count > 1) + f"{node.count} x {node.name}"
    words = [f"{n}={v}" if n.isupper() else f"--{n} {v}" for n, v in change.flags.items()]
    changes = "; ".join(filter(None, [" ".join(words), rows, *said])) or "nothing"
    origin = f"From recipes/{script.name}.sh; changed for {machine}: {changes}"
    if planned.plan.host >= GIB:
        origin += f"; needs {planned.plan.host / GIB:.0f} GiB of host memory a node"
    title = f"{task} with {model} on {machine}, written by vlrft recipe new"
    lines = textwrap.wrap(origin, 98, break_long_words=False, break_on_hyphens=False)
    # The recipe's own header is about another run.
    written = replace(script, title="\n".join([title, *lines]), header={})
    text = written.with_flags(change.flags).text()
    planned = planned_run(resolve(only(read_text(text, out, {}))), node, nodes, dataset)
    return NewRecipe(planned, change, origin, write_fixed(out, text, 0o755))


def nearest(model: Model, task: str, gpus: Gpus, nodes: int) -> Script:
    """Return the nearest tested recipe of the model's family; ValueError if it has none.

    Nearest: of the same task, of as many nodes, and of similar size of model and machine.
    """
    of_videos = TASK_NAMES[task].has_spans
    tested = [s for s in scripts().values() if s.task and TASK_NAMES[s.task].has_spans == of_videos]
    known = [(script, read_model(script.model)) for script in tested]
    same = [pair for pair in known if pair[1].family is model.family]
    if not same:
        models = ", ".join(dict.fromkeys(other.name for _, other in known))
        raise ValueError(
            f"--model {model.name}: no recipe that sees {'videos' if of_videos else 'images'} is "
            f"tested for its family, only for those of {models}; copy one (`vlrft recipe`)"
        )

    def apart(pair: tuple[Script, Model]) -> tuple[object, ...]:
        script, other = pair
        count = int((script.variables.get("NNODES") or "1")[0])
        size = abs(log2(other.parameters.total / model.parameters.total))
        own = parse_gpus(script.gpus)
        here = nodes * gpus.count * gpus.bytes
        more = log2(count * own.count * own.bytes / here)
        # A recipe for less memory counts twice: it gives up what this machine could do.
        return script.task != task, count != nodes, size + max(more, -2 * more)

    return min(same, key=apart)[0]


def _draft(
    name: str, task: str, gpus: Gpus, nodes: int, data: Path | None
) -> tuple[Script, list[str]]:
    """Return the nearest recipe for this model, task and data set, and the differences."""
    if task not in TASK_NAMES:
        raise ValueError(f"--task {task}: known tasks are {', '.join(TASK_NAMES)}")
    model = read_model(name)
    script, said = nearest(model, task, gpus, nodes), list[str]()
    other_task = task != script.task
    if name != script.model:
        said.append(f"--model {name} in place of {script.model}")
        folder = re.sub(r"\W+", "_", Path(name).name).lower()
        script = replace(script, model=shlex.quote(name), output=f"{folder}_{task}")
    if other_task:
        rewards = f"{PAYING[task][0]} {TASK_NAMES[task].format_reward}"
        asked = TASK_NAMES[task].completion_tokens
        longest = max(asked, int(script.flags["max_completion_length"]))
        changes = {"reward_funcs": rewards, "max_completion_length": str(longest)}
        said.append(f"{task} in place of {script.task}: --reward_funcs {rewards}")
        script = replace(script, flags=script.flags | changes)
    if data or other_task:
        native = (model.family and model.family.box_format) or "norm1000"
        box = f":{native}" if task in BOX_TASKS and native != "norm1000" else ""
        needed = "a folder with image, problem, solution" + (f", as FOLDER{box}" if box else "")
        said.append(f"DATASET {data}{box}" if data else "DATASET must be given")
        given = shlex.quote(f"{data}{box}") if data else ""
        script = replace(script, dataset=given, dataset_needed=needed)
    return script, said


def _fitted(
    run: Run, gpus: Gpus, nodes: int | None, dataset: Path | None
) -> tuple[RecipePlan, Change, str]:
    """Return the plan of a recipe on a machine, its change, and a change of a step's rows.

    The change: the flags that the machine demands and the cheapest that make it fit. ValueError if
    no known change does so.
    """
    flags, rows = for_machine(run, gpus, nodes, ())
    planned = planned_run(changed(run, flags), gpus, nodes, dataset)
    change = Change({}, "", plan=planned.plan)
    if not planned.plan.fits:
        if not (options := planned.changes()):
            peak, name = planned.plan.peak, planned.plan.settings.model.name
            raise ValueError(
                f"{name} does not fit on {gpus.count} x {gpus.name} with any known change: "
                f"{peak.total / GIB:.1f} GiB in {peak.name}: nothing is written; more or larger "
                "GPUs are needed, or 4 bits, as in qwen3_vl_4b/detection_qlora_1x24g"
            )
        change = options[0]
    plan = replace(planned, plan=change.plan or planned.plan)
    return plan, replace(change, flags=flags | change.flags), rows
