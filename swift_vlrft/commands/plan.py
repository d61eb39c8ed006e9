"""``vlrft plan``: will it fit, where would it break, what to change.

vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4x80
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from swift_vlrft.memory.advice import Change
    from swift_vlrft.memory.estimate import Plan
    from swift_vlrft.memory.images import Longest
    from swift_vlrft.memory.settings import Gpus
    from swift_vlrft.recipe.reader import Recipe


HEADINGS = {
    "weights": "wgts",
    "reference model": "ref",
    "gradients": "grad",
    "optimizer": "opt",
    "activations LLM": "LLM",
    "activations ViT": "ViT",
    "logits": "lgts",
    "temporaries": "temp",
    "gathers": "gath",
    "vLLM weights": "vLLM",
    "KV cache": "KV",
    "vLLM activations": "vact",
    "CUDA graphs": "grph",
    "context, fragmentation": "ctx",
    "total": "sum",
}
"""Short enough for a table of 80 columns; docs/plan.md and --json have the long names."""

REST = ("vLLM activations", "CUDA graphs", "context, fragmentation")
"""One column, "rest", where a table would be wider than the terminal."""


def plan(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A recipe: shell script, or ms-swift's YAML or JSON configuration."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="Cards of one machine: 4x80 (GB), 4xA100-80G, 8xH20. Default: this machine's."
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Machines. Default: the recipe's NNODES, else 1."),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="Parquet or JSON Lines: plan for its longest row, not for MAX_PIXELS."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture (.png, .svg): bars per phase.")
    ] = None,
    apply: Annotated[
        Path | None, typer.Option(help="Write the recipe with the first change that makes it fit.")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="Write the figures into the recipe's `# memory` line.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(help="A run's folder (VLRFT_TRACK_MEMORY=1): planned against measured."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Without a recipe: plan a new one for this model.")
    ] = None,
    task: Annotated[str, typer.Option(help="Task of the new recipe.")] = "detection",
    write: Annotated[Path | None, typer.Option(help="Where the new recipe goes.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Closed form only: no simulation, coarser.")
    ] = False,
) -> None:
    """Predict the memory of a GRPO run per card and phase, before anything is downloaded.

    Example: vlrft plan recipes/qwen2_5_vl_3b/detection_4x80g.sh --gpus 4x80

    Exit code 0: it fits; 1: out of memory; 2: the input cannot be used.
    """
    try:
        _plan(
            recipe, gpus, nodes, dataset, as_json, plot, apply, header, compare, model, task,
            write, quick,
        )  # fmt: skip
    except (OSError, UnicodeError, ValueError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


def _plan(
    path: Path | None,
    gpus_text: str | None,
    nodes: int | None,
    dataset: Path | None,
    as_json: bool,
    plot: Path | None,
    apply: Path | None,
    header: bool,
    compare: Path | None,
    model: str | None,
    task: str,
    write: Path | None,
    quick: bool,
) -> None:
    from swift_vlrft.memory.advice import advise, raises
    from swift_vlrft.memory.estimate import computed, simulated
    from swift_vlrft.memory.from_recipe import as_written
    from swift_vlrft.memory.rewrite import callers_part
    from swift_vlrft.recipe.reader import read_recipe

    source = computed if quick else simulated
    if model is not None:
        _new(model, task, gpus_text, nodes, dataset, write, as_json, quick)
        return
    if path is None:
        raise ValueError("a recipe is needed (vlrft plan RECIPE), or --model with --write OUT.sh")
    recipe = read_recipe(path)
    gpus, where = _gpus(gpus_text, path)
    longest = _longest(recipe, dataset)
    made = _estimated(recipe, gpus, nodes, longest, quick)
    if where:
        made = _noted(made, where)
    if given := callers_part(recipe):
        made = _noted(made, f"from your environment: {_assignments(given)}")
    if compare is not None:
        from swift_vlrft.memory.compare import compared, read_run

        rows = compared(made, read_run(compare))
        if as_json:
            typer.echo(json.dumps(rows, indent=2))
        else:
            _print_comparison(rows, compare)
        return
    written = as_written(recipe, gpus, nodes=nodes, longest=longest)
    changes = advise(made, source, written)
    higher = raises(made, source, written)
    if header:
        from swift_vlrft.memory.estimate import estimate_where_it_matters
        from swift_vlrft.memory.header import with_header
        from swift_vlrft.recipe.fix import write_fixed

        text = with_header(recipe.text, estimate_where_it_matters(made.settings))
        write_fixed(path, text, keep=False)
    if plot is not None:
        from swift_vlrft.memory.plot import draw

        draw(made, plot, title=path.name)
    if apply is not None:
        said, kept = _apply(recipe, changes, apply, made, gpus, given)
    if as_json:
        report = made.as_dict() | {
            "recipe": str(path),
            "gpus": {"count": gpus.count, "card": gpus.name, "gib": round(gpus.gib, 2)},
            "changes": [change.as_dict() for change in changes],
            "raise": [change.as_dict() for change in higher],
        }
        if apply is not None:
            report |= {"written": str(apply), "before": str(kept) if kept else None}
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(made, gpus, changes, higher, path)
        if apply is not None:
            Console().print(said, markup=False, soft_wrap=True, highlight=False)
    raise typer.Exit(0 if made.fits else 1)


def _longest(recipe: Recipe, dataset: Path | None) -> Longest | None:
    from swift_vlrft.memory.from_recipe import limits
    from swift_vlrft.memory.images import longest_row
    from swift_vlrft.memory.models import read_model

    if dataset is None:
        return None
    known = read_model(recipe.get("model") or "")
    return longest_row(dataset, known.image_rule, *limits(recipe, known))


def _estimated(
    recipe: Recipe, gpus: Gpus, nodes: int | None, longest: Longest | None, quick: bool
) -> Plan:
    from swift_vlrft.memory.activations import can_simulate
    from swift_vlrft.memory.estimate import computed, estimate, simulated
    from swift_vlrft.memory.from_recipe import settings_of

    settings = settings_of(recipe, gpus, nodes=nodes, longest=longest)
    if quick or not can_simulate(settings.model):
        why = "--quick" if quick else "torch is not installed or this model class cannot be run"
        made = estimate(settings, computed)
        return _noted(made, f"activations in closed form, not simulated: {why}")
    made = estimate(settings, simulated)
    if made.how == "computed":
        return _noted(
            made, f"activations in closed form: {settings.model.type} cannot be run without data"
        )
    return made


def _noted(made: Plan, note: str) -> Plan:
    from dataclasses import replace

    settings = replace(made.settings, assumptions=(*made.settings.assumptions, note))
    return replace(made, settings=settings)


def _gpus(text: str | None, path: Path) -> tuple[Gpus, str]:
    """The cards asked for, this machine's, or those in the recipe's name; and what was assumed."""
    from swift_vlrft.memory.settings import GIB, Gpus, parse_gpus

    if text is not None:
        return parse_gpus(text), ""
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
        cards = [line.rsplit(",", 1) for line in done.stdout.splitlines() if "," in line]
        if done.returncode == 0 and cards:
            least = min(float(size) for _, size in cards) * 2**20 * 0.985 / GIB
            return Gpus(len(cards), least, cards[0][0]), f"this machine's {len(cards)} cards"
    if match := re.search(r"(?:(\d+)\+\d+|(\d+))x(\d+)g", path.name):
        count = match[1] or match[2]
        said = f"{count}x{match[3]}"
        return parse_gpus(said), f"no --gpus and no card here: {said} from the recipe's name"
    raise ValueError("this machine has no NVIDIA card; say for which cards to plan: --gpus 4x80")


def _apply(
    recipe: Recipe, changes: list[Change], out: Path, made: Plan, gpus: Gpus, given: dict[str, str]
) -> tuple[str, Path | None]:
    """Write a copy of the recipe with the first change in it; what is to be said of it, and where
    the file is kept that stood there.
    """
    from swift_vlrft.memory.from_recipe import nodes_of
    from swift_vlrft.memory.rewrite import changed_text, copied, remarked
    from swift_vlrft.recipe.fix import write_fixed

    if made.fits:
        raise ValueError(f"--apply {out}: the recipe fits as it is; nothing to change")
    if not changes:
        raise ValueError(
            f"--apply {out}: no set of changes makes it fit; more or larger cards are needed"
        )
    change = changes[0]
    flags = dict(change.flags)
    if made.settings.nodes != nodes_of(recipe):
        flags["NNODES"] = str(made.settings.nodes)  # only --nodes says so
    text = copied(recipe, changed_text(recipe, flags), out)
    remark = f"{recipe.path.name}, changed by vlrft plan for {gpus.count} x {gpus.name}: "
    remark += change.label
    if given:
        remark += f"; planned with {_assignments(given)} in the environment"
    kept = write_fixed(out, remarked(text, out, remark), recipe.path.stat().st_mode)
    said = f"written: {out} ({change.label})"
    if kept:
        said += f"; what was there before: {kept}"
    if given:
        said += (
            f"\nthe plan rests on your environment, and {out.name} reads it as the recipe does: "
            f"run it with {_assignments(given)}"
        )
    return said, kept


def _assignments(given: dict[str, str]) -> str:
    """As they would stand in front of a command; never a key."""
    secret = re.compile(r"TOKEN|KEY|SECRET|PASSWORD")
    return " ".join(
        f"{name}=..." if secret.search(name) else f"{name}={shlex.quote(value)}"
        for name, value in given.items()
    )


def _new(
    model: str,
    task: str,
    gpus_text: str | None,
    nodes: int | None,
    dataset: Path | None,
    out: Path | None,
    as_json: bool,
    quick: bool,
) -> None:
    """A recipe from nothing that fits, or an error that says what is too large."""
    from swift_vlrft.memory.advice import advise
    from swift_vlrft.memory.estimate import computed, simulated
    from swift_vlrft.memory.from_recipe import as_written, changed
    from swift_vlrft.memory.rewrite import changed_text, new_recipe
    from swift_vlrft.recipe.fix import write_fixed
    from swift_vlrft.recipe.reader import read_recipe
    from swift_vlrft.recipe.rules import check_recipe

    if out is None:
        raise ValueError("--model needs --write OUT.sh: where the new recipe goes")
    gpus, _ = _gpus(gpus_text, out)
    data = str(dataset) if dataset else None
    text = new_recipe(model, task, gpus.count, data, nodes=nodes or 1)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / out.name
        draft.write_text(text)
        recipe = read_recipe(draft)
        longest = _longest(recipe, dataset)
        made = _estimated(recipe, gpus, nodes, longest, quick)
        if not made.fits:
            written = as_written(recipe, gpus, nodes=nodes, longest=longest)
            found = advise(made, computed if quick else simulated, written)
            if not found:
                raise ValueError(
                    f"{model} does not fit on {gpus.count} cards of {gpus.gib:.0f} GiB with any "
                    f"known change: {made.peak.total / 2**30:.1f} GiB in {made.peak.name}"
                )
            # First one that needs nothing that is missing here (liger-kernel).
            clean = [c for c in found if not check_recipe(changed(recipe, c.flags))]
            text = changed_text(recipe, (clean or found)[0].flags)
            draft.write_text(text)
            made = _estimated(read_recipe(draft), gpus, nodes, longest, quick)
    kept = write_fixed(out, text, 0o755)
    if as_json:
        typer.echo(json.dumps(made.as_dict() | {"written": str(out)}, indent=2))
    else:
        _print(made, gpus, [], [], out)
        before = f"; what was there before: {kept}" if kept else ""
        Console().print(f"written: {out}{before}", markup=False, soft_wrap=True)
        if dataset is None:
            Console().print("put your data set in place of DATASET", markup=False)


def _print(made: Plan, gpus: Gpus, changes: list[Change], higher: list[Change], path: Path) -> None:
    from swift_vlrft.memory.estimate import COMPONENTS, ERROR
    from swift_vlrft.memory.settings import GIB

    console = Console()
    used = [n for n in COMPONENTS if any(p.parts.get(n, 0) >= GIB / 20 for p in made.phases)]
    columns: dict[str, tuple[str, ...]] = {HEADINGS[name]: (name,) for name in used}
    if 13 + 5 * (len(columns) + 1) > console.width:
        columns = {head: names for head, names in columns.items() if names[0] not in REST}
        columns["rest"] = REST
    table = Table(
        title=f"{path.name}: GiB on each card of {gpus.gib:.1f} ({gpus.name})",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("phase", no_wrap=True)
    for head in [*columns, HEADINGS["total"]]:
        table.add_column(head, justify="right", no_wrap=True)
    for phase in made.phases:
        cells = [sum(phase.parts.get(n, 0) for n in names) for names in columns.values()]
        table.add_row(
            _short(phase.name),
            *(_size(cell / GIB) for cell in [*cells, phase.total]),
            style="bold" if phase is made.peak else "",
        )
    console.print(table)
    peak, room = made.peak.total / GIB, made.headroom / GIB
    colour = {"fits": "green", "tight": "yellow"}.get(made.verdict, "red")
    where = f" in {made.peak.name}" if made.verdict == "out of memory" else ""
    console.print(f"[{colour}]{made.verdict}{where}[/{colour}]: peak {peak:.1f} GiB in "
                  f"{made.peak.name}, {room:+.1f} GiB of room, error {ERROR:.0%}",
                  soft_wrap=True, highlight=False)  # fmt: skip
    if made.host:
        console.print(f"host memory for offloading: {made.host / GIB:.0f} GiB a machine")
    for failure in made.failures:
        console.print(escape(failure), style="red", soft_wrap=True)
    console.print(
        f"activations, logits, temporaries: {made.how}; weights, optimizer, gradients, gathers, "
        "KV cache: computed; CUDA context, fragmentation, CUDA graphs: assumed",
        soft_wrap=True,
        highlight=False,
    )
    for note in made.settings.assumptions:
        console.print(f"assumed: {note}", markup=False, soft_wrap=True, highlight=False)
    if changes:
        _print_changes(console, "to make it fit, cheapest first", changes)
    elif not made.fits:
        console.print("no set of known changes makes it fit: more or larger cards are needed")
    if higher:
        _print_changes(console, "room to raise, each alone", higher)


def _size(value: float) -> str:
    if value < 0.05:
        return ""
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _short(name: str) -> str:
    return name.replace("old/reference log-probabilities", "log-probs").replace("optimizer ", "")


def _print_changes(console: Console, title: str, changes: list[Change]) -> None:
    table = Table(title=title, show_lines=False)
    for heading in ("change", "peak", "costs"):
        table.add_column(heading, justify="right" if heading == "peak" else "left")
    for change in changes:
        assert change.plan is not None
        peak = change.plan.peak.total / 2**30
        table.add_row(change.label, f"{peak:.1f} {change.plan.verdict}", change.cost)
    console.print(table)


def _print_comparison(rows: list[dict[str, object]], run: Path) -> None:
    table = Table(title=f"planned and measured, GiB per card: {run.name}")
    for heading in ("phase", "planned", "allocated", "reserved", "error"):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    for row in rows:
        table.add_row(*(str(row[key]) for key in row))
    Console().print(table)
