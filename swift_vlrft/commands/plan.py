"""``vlrft plan``: does a run fit, which phase would fail, and what is to be changed?

vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4x80
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from swift_vlrft.commands.output import print_json, say, say_styled, show, table
from swift_vlrft.commands.recipe_words import flags_after
from swift_vlrft.recipe.flags import is_flag

if TYPE_CHECKING:
    from swift_vlrft.memory.largest import Answer
    from swift_vlrft.memory.recipe_plan import RecipePlan

GIB = 2**30
GpusOption = Annotated[
    str | None,
    typer.Option("--gpus", help="GPUs per node: 4x80 (GB), 4xA100-80G, 8xH20. Default: all here."),
]
NodesOption = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Nodes. Default: the recipe's NNODES, else 1.")
]
DatasetOption = Annotated[
    Path | None, typer.Option("--dataset", help="Parquet or JSON Lines: plan for its longest row.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plan(
    context: typer.Context,
    recipe: Annotated[
        Path,
        typer.Argument(
            help="Script, YAML or JSON of ms-swift, or a name that `vlrft recipe` prints."
        ),
    ],
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    dataset: DatasetOption = None,
    run: Annotated[
        bool, typer.Option("--run", help="Let bash read the script; nothing in it can start.")
    ] = False,
    largest: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The largest value that fits: max_completion_length, MAX_PIXELS, lora_rank, "
            "per_device_train_batch_size, num_generations, vllm_max_model_len; or gpus. "
            "Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the memory of a GRPO run per GPU and phase, before anything is downloaded.

    Example: vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4xH100

    Flags of ms-swift after the recipe are planned as `bash RECIPE --flag value` runs them.

    Exit code 0: it fits; 1: out of memory, vLLM does not start, or a --largest has no value; 2: the
    input cannot be used.
    """
    from swift_vlrft.memory.largest import cheapest_machine, largest_values
    from swift_vlrft.memory.recipe_plan import plan_recipe

    if is_flag(str(recipe)):
        raise ValueError(f"{recipe}: flags of the recipe come after the files' names")
    arguments = flags_after(context.args, context)
    names = [name.replace("-", "_") for name in largest or ()]
    if names == ["gpus"] and not (gpus or nodes or run):
        _print_answers([cheapest_machine(recipe, arguments, dataset)], as_json)
    planned = plan_recipe(recipe, gpus, arguments=arguments, nodes=nodes, dataset=dataset, run=run)
    if names:
        _print_answers(largest_values(planned, names), as_json)
    if as_json:
        shown, known = planned.plan.as_dict(), planned.gpus
        shown |= {
            "recipe": str(recipe),
            "gpus": {"count": known.count, "card": known.name, "gib": round(known.gib, 2)},
            "changes": [
                change.as_dict() | asdict(planned.run_with(change.flags))
                for change in planned.changes()
            ],
        }
        print_json(shown)
    else:
        print_plan(planned, recipe.name)
    raise typer.Exit(0 if planned.plan.fits else 1)


def _print_answers(answers: Sequence[Answer], as_json: bool) -> NoReturn:
    """Print the largest values, then their commands; exit code 1 if one has none."""
    if as_json:
        print_json([asdict(answer) for answer in answers])
    else:
        drawn = table("name", ">largest", "bounded by", wraps=("bounded by",))
        for answer in answers:
            drawn.add_row(answer.name, str(answer.largest or "none"), answer.bound)
        show(drawn)
        for answer in (answer for answer in answers if answer.command):
            say(f"run it: {answer.command}", *(f"but first: {text}" for text in answer.problems))
    raise typer.Exit(0 if all(answer.command for answer in answers) else 1)


COLUMNS = {
    "weights": ("weights", "reference model", "gathers"),
    "optimizer": ("gradients", "optimizer"),
    "activations": ("activations LLM", "activations ViT", "logits", "temporaries"),
    "vLLM": ("vLLM weights", "KV cache", "vLLM activations", "CUDA graphs"),
}
"""The columns of the table, and the components (docs/reference/planner.md) that each sums."""


def print_plan(planned: RecipePlan, name: str) -> None:
    """Print the plan, and what could be changed."""
    changes = planned.changes()
    print_memory(planned, name)
    if not changes:
        if not planned.plan.fits:
            say_styled("no set of known changes makes it fit: more or larger GPUs are needed")
        return
    drawn = table("change", ">peak", "costs", title="to make it fit, cheapest first")
    for change in changes:
        if plan := change.plan:
            host = f"host memory ({plan.host / GIB:.0f} GiB a node)"
            peak = f"{plan.peak.total / GIB:.1f} {plan.verdict}"
            drawn.add_row(change.label, peak, change.cost.replace("host memory", host))
    show(drawn)
    runs = planned.run_with(changes[0].flags)
    say_styled(f"run it with the first: {runs.command}")
    for problem in runs.problems:
        say_styled(("but first:", "red"), f" {problem}")


def print_memory(planned: RecipePlan, name: str) -> None:
    """Print the verdict, the table of phases, and the assumptions."""
    from swift_vlrft.memory.estimate import ERROR

    plan, gpus = planned.plan, planned.gpus
    peak, colour = plan.peak, {"fits": "green", "tight": "yellow"}.get(plan.verdict, "red")
    room = f"{abs(plan.headroom) / GIB:.1f} GiB {'too much' if plan.headroom < 0 else 'to spare'}"
    for failure in plan.failures:
        say_styled(("does not start", "red"), f": {name}: {failure}")
    say_styled(
        ("memory" if plan.verdict == "does not start" else plan.verdict, colour),
        f": {name} needs {peak.total / GIB:.1f} of {gpus.gib:.1f} GiB on each GPU ({gpus.name}) "
        f"in the phase `{peak.name}`, {room} (error {ERROR:.0%})",
    )
    sums = {
        head: [sum(phase.parts.get(name, 0) for name in names) for phase in plan.phases]
        for head, names in COLUMNS.items()
    }
    sums = {head: of for head, of in sums.items() if any(of)}
    sums["allocated"] = [phase.allocated for phase in plan.phases]
    sums["reserved"] = [phase.total for phase in plan.phases]
    title = "GiB on each GPU at the peak of each phase"
    drawn = table("phase", *(f">{head}" for head in sums), title=title)
    for phase, *sizes in zip(plan.phases, *sums.values(), strict=True):
        short = phase.name.replace("old/reference log-probabilities", "log-probs")
        cells = ("" if size < 0.05 * GIB else f"{size / GIB:.1f}" for size in sizes)
        drawn.add_row(short, *cells, style="bold" if phase is peak else "")
    show(drawn)
    if plan.host:
        say_styled(f"host memory for offloading: {plan.host / GIB:.0f} GiB a node")
    for note in plan.settings.assumptions:
        say_styled(f"assumed: {note}")
