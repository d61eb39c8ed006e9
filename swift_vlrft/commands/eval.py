"""``vlrft eval``: how good is a model? Its options are those of ``swift_vlrft.evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from swift_vlrft.commands.output import number, print_json, say, show, table
from swift_vlrft.rewards import TASK_NAMES

Categories = Annotated[
    list[str] | None,
    typer.Option(
        help="Names, or lists: coco80, coco-base65, coco-novel15, virft-coco8, lvis-rare6, "
        "lvis-rare13; repeat, or put commas between."
    ),
]
Join = Annotated[
    str | None,
    typer.Option(
        help="How to match predictions of other programs with the rows: id, image or order. "
        "Predictions of `vlrft eval` need no --join."
    ),
]
SHOWN_CLASSES = 20


def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint, an adapter, or a hub id; code in it is run, as by ms-swift."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A set on disk, or COCO annotations (instances_*.json); with :pixels behind it, "
            "boxes are asked in pixels, as `--dataset PATH:pixels` trains."
        ),
    ] = None,
    rest: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    task: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(TASK_NAMES)}."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: runs/eval/MODEL-DATASET.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Score this file instead of running a model: ours, `swift infer` results, output "
            "of OpenAI's or vLLM's batches, ms-swift's completions.jsonl, or COCO detections."
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="With --predictions: the COCO annotations or the data set they were made on; "
            "rows that are missing count as unanswered."
        ),
    ] = None,
    join: Join = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="all: every category of every image; visual-rft: the categories of --exist-map. "
            "Their results are not comparable."
        ),
    ] = None,
    existence_map: Annotated[
        Path | None, typer.Option("--exist-map", help="JSON object: categories by image id.")
    ] = None,
    categories: Categories = None,
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Ask a sample of the queries, by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of sample, engine and intervals.")] = 0,
    split: Annotated[
        str | None, typer.Option(help="Split to ask. Default: test, else validation, else train.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder that relative image paths start from.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="vllm, transformers, or auto: vLLM if installed and with a GPU.")
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes, each with a full model; default: one per GPU."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Queries at once.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 1024,
    temperature: Annotated[float, typer.Option(min=0, help="0: greedy.")] = 0.0,
    samples: Annotated[
        int,
        typer.Option(
            min=1,
            help="Answers per row: the first counts in the metrics, all in the row's pass_rate, "
            "by which `vlrft data convert --keep` chooses rows.",
        ),
    ] = 1,
    max_turns: Annotated[
        int,
        typer.Option(min=1, help="Above 1, the model may call image_zoom_in_tool first."),
    ] = 1,
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32; default: the checkpoint's.")
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="Base model of an adapter that does not name it.")
    ] = None,
    engine_options: Annotated[
        str, typer.Option(help='Flags of `swift infer`, as JSON: {"vllm_max_model_len": 4096}.')
    ] = "{}",
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Draws for AP's intervals; 0: no intervals.")
    ] = 1000,
    force: Annotated[
        bool, typer.Option("--force", help="Move the results of another run aside.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run a model on every query of a set and score the answers, or score existing predictions.

    Example: vlrft eval runs/grpo/checkpoint-200 data/held_out --task detection

    A killed run resumes when it is started again. Exit code 2: the input cannot be used.
    """
    options = locals() | {"engine_options": engine_flags(engine_options)}
    if model == "compare":
        raise ValueError("`vlrft eval compare A B` is `vlrft compare A B`, with the same options")
    if options.pop("rest"):
        raise ValueError(f"expected only MODEL and DATASET, but also got {rest}")
    options.pop("as_json")
    from swift_vlrft.files import records
    from swift_vlrft.swift_plugin.evaluate import evaluate as evaluate_model
    from swift_vlrft.swift_plugin.evaluate import output_folder

    if out is None and model is not None and dataset is not None:
        options["out"] = out = output_folder(model, dataset)
    with answers_bar() as progress:
        summary = evaluate_model(progress=progress, **options)
    if as_json:
        print_json(records.as_json(summary))
        return
    print_summary(summary)
    if out is not None:
        say(f"{out}/summary.json")


@contextmanager
def answers_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a bar on the error stream; if that is not a terminal, only the number done before."""
    console = Console(emoji=False, stderr=True)
    columns = ("answers", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

        def progress(total: int, n: int) -> None:
            if not bar.tasks:
                bar.add_task("answers", total=total)
                if n:
                    console.print(f"{n} of {total} answers are there already", highlight=False)
            bar.update(bar.tasks[0].id, advance=n)

        yield progress


def engine_flags(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        problem = f"--engine-options is not a JSON object ({error}): {text[:80]}"
        raise ValueError(problem) from None


def print_summary(summary: Any) -> None:
    kind = f"{summary.task}, protocol {summary.protocol}" if summary.protocol else summary.task
    title = f"{kind}: {summary.rows} rows, {summary.images} images"
    metrics = table("metric", ">value", ">95 %", title=title)
    for name, m in summary.metrics.items():
        bounds = "-" if m.low is None else f"{m.low:.3f} to {m.high:.3f}"
        metrics.add_row(name, number(m.value), bounds)
    for name, value in summary.selected.items():
        metrics.add_row(f"AP of {name}", number(value), "-")
    show(metrics)
    if summary.by_class:
        heads = list(dict.fromkeys(m for values in summary.by_class.values() for m in values))
        title = "by category" if summary.task == "detection" else "by class"
        of_class = table("name", *(f">{head}" for head in heads), title=title)
        for name, values in list(summary.by_class.items())[:SHOWN_CLASSES]:
            of_class.add_row(name, *(number(values.get(m)) for m in heads))
        show(of_class)
        if len(summary.by_class) > SHOWN_CLASSES:
            say(f"and {len(summary.by_class) - SHOWN_CLASSES} more (--json has them)")
    for note in summary.notes:
        say(f"note: {note}")
    for kind, count in summary.problems.items():
        say(f"{count} {kind}: {', '.join(summary.named.get(kind, []))}")
