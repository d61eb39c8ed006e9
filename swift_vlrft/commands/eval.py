"""``vlrft eval``: how good is a model, and did it get better?

vlrft eval runs/grpo/checkpoint-200 data/held_out --task detection --out runs/eval/after
vlrft eval --predictions result.jsonl
vlrft eval compare runs/eval/before runs/eval/after
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup


class DefaultCommand(TyperGroup):
    """``vlrft eval MODEL DATASET`` is ``vlrft eval run MODEL DATASET``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


eval_app = typer.Typer(
    cls=DefaultCommand,
    help="Evaluate a model or existing predictions with the rewards' own scoring. "
    "Example: vlrft eval runs/grpo/checkpoint-200 data/held_out --task detection; "
    "options: vlrft eval run --help",
    no_args_is_help=True,
)

PredictionsFile = Annotated[
    Path | None,
    typer.Option(
        "--predictions",
        help="Score this file instead of asking a model: ours, `swift infer` results, ms-swift's "
        "completions.jsonl, or a list of COCO detections (Visual-RFT).",
    ),
]


@eval_app.command("run")
def run(
    model: Annotated[
        str | None, typer.Argument(help="A checkpoint, an adapter, or a hub id.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A set on disk, or COCO annotations (instances_*.json); with :pixels behind it, "
            "boxes are asked in pixels, as `--dataset PATH:pixels` trains."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="detection, grounding, classification or counting."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: runs/eval/MODEL-DATASET.")
    ] = None,
    predictions: PredictionsFile = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="With --predictions: the COCO annotations or the data set they were made on; "
            "rows that are missing count as unanswered."
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="all: every category of every image; visual-rft: those of --exist-map. "
            "Their numbers do not compare."
        ),
    ] = None,
    exist_map: Annotated[
        Path | None, typer.Option(help="JSON object of image id: [category, ...].")
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, or lists: coco80, coco-base65, coco-novel15, virft-coco8, lvis-rare6, "
            "lvis-rare13; repeat, or put commas between."
        ),
    ] = None,
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Ask a sample of the questions, by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample, the engine and the intervals.")] = 0,
    split: Annotated[
        str | None, typer.Option(help="Default: test, else validation, else train.")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="Folder that image paths start from.")] = None,
    engine: Annotated[
        str, typer.Option(help="vllm, transformers, or auto: vLLM where it and a GPU are.")
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes with a whole model each; default: one per GPU."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Questions at once.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 1024,
    temperature: Annotated[float, typer.Option(min=0, help="0: greedy.")] = 0.0,
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32; default: the checkpoint's.")
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="Model of an adapter, where it does not say it.")
    ] = None,
    engine_options: Annotated[
        str, typer.Option(help='Flags of `swift infer`, as JSON: {"vllm_max_model_len": 4096}.')
    ] = "{}",
    bootstrap: Annotated[int, typer.Option(min=0, help="Draws for the intervals; 0: none.")] = 1000,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a better summary, or another run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Ask a model every question of a set and score the answers, or score existing predictions.

    Example: vlrft eval runs/grpo/checkpoint-200 data/held_out --task detection

    Goes on where it was when it is killed and started again. Exit code 2: the input cannot be used.
    """
    from swift_vlrft.evaluation.predictions import read_predictions
    from swift_vlrft.evaluation.questions import is_annotation_file
    from swift_vlrft.evaluation.summary import summarise, write_summary

    try:
        names = tuple(categories or ())
        if predictions is not None:
            if model is not None:
                raise ValueError(f"give {model} or --predictions, not both")
            _only(
                exist_map is None and max_queries is None,
                "--exist-map and --max-queries choose "
                "what a model is asked; existing predictions are scored as they are",
            )
            found = read_predictions(_predictions_file(predictions), task)
            if gold is not None and not is_annotation_file(gold):
                from swift_vlrft.evaluation.joined import join_gold

                join_gold(found, gold, split=split, images=images)
                gold = None
            about: dict[str, Any] = {"predictions": str(predictions)}
        else:
            if model is None or dataset is None or task is None:
                raise ValueError(
                    "give MODEL, DATASET and --task, or --predictions FILE; "
                    "`vlrft eval run --help` shows examples"
                )
            _only(gold is None, "--gold is of --predictions")
            from swift_vlrft.evaluation.framing import split_box_format
            from swift_vlrft.evaluation.questions import Settings
            from swift_vlrft.families.resize import RESOLUTION

            path, frame = split_box_format(dataset)
            settings = Settings(
                model=model,
                dataset=path,
                task=task,
                split=split,
                images=images,
                protocol=protocol,
                categories=names,
                existence_map=exist_map,
                max_queries=max_queries,
                seed=seed,
                max_tokens=max_tokens,
                temperature=temperature,
                engine=engine,
                base_model=base_model,
                batch_size=batch_size,
                dtype=dtype,
                engine_options=_options(engine_options),
                frame=frame,
                resolution={name: v for name in RESOLUTION if (v := os.environ.get(name))},
            )
            out = out or Path("runs/eval") / f"{_short(model)}-{path.stem}"
            about, file, problems = _ask(settings, out, workers, force)
            found = read_predictions(file, task)
            for kind, count in problems.counts.items():
                found.problems.counts[kind] += count
                found.problems.examples.setdefault(kind, []).extend(problems.examples[kind])
            if is_annotation_file(path):
                gold, protocol = path, protocol or "all"
            else:
                names, protocol = (), None
        summary = summarise(
            found,
            annotations=gold,
            categories=names,
            protocol=protocol,
            bootstrap=bootstrap,
            seed=seed,
            run=about,
        )
        if not as_json:
            print_summary(summary)
        if out is not None:
            write_summary(summary, out / "summary.json", force=force)
            if not as_json:
                typer.echo(f"{out}/summary.json")
    except (OSError, ValueError) as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps(summary.as_dict(), indent=2))


def _only(fine: bool, message: str) -> None:
    if not fine:
        raise ValueError(message)


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--engine-options is not JSON ({error}): {text[:80]}") from None
    if not isinstance(options, dict):
        raise ValueError(f"--engine-options must be a JSON object, not {text[:80]}")
    return options


def _short(model: str) -> str:
    parts = [part for part in Path(model).parts if part not in ("/", ".", "..")]
    return "-".join(parts[-2:] if parts[-1].startswith("checkpoint") else parts[-1:])


def _predictions_file(path: Path) -> Path:
    return path / "predictions.jsonl" if path.is_dir() else path


def _ask(settings: Any, out: Path, workers: int | None, force: bool) -> tuple[Any, Path, Any]:
    """Let the model answer what is left; what ran, the predictions, and what was not asked."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from swift_vlrft.evaluation.predictions import EvaluationError
    from swift_vlrft.evaluation.questions import check_settings, count_questions
    from swift_vlrft.evaluation.run import begin, finish, versions

    os.environ.setdefault("LOG_LEVEL", "WARNING")  # read by ms-swift when it is imported
    from swift_vlrft.swift_plugin.inference import (
        chosen_engine,
        gpu_count,
        model_and_adapter,
        run_worker,
        run_workers,
    )

    check_settings(settings)
    model_and_adapter(settings.model, settings.base_model)
    total = count_questions(settings)
    if not total:
        raise EvaluationError(f"{settings.dataset} holds no question of task {settings.task}")
    done = begin(out, settings, force=force)
    console = Console(stderr=True)
    if done:
        console.print(f"{out}: {len(done)} of {total} rows are answered already", highlight=False)
    columns = ("answers", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        shown = bar.add_task("answers", total=total, completed=len(done))

        def progress(n: int) -> None:
            bar.update(shown, advance=n)

        if len(done) < total:
            count = workers or max(1, gpu_count())
            if count > 1:
                run_workers(out, settings, count, progress)
            else:
                run_worker(out, settings, progress=progress)
    file, problems = finish(out, settings)
    used = {"engine": chosen_engine(settings.engine), "versions": versions()}
    return settings.as_dict() | used, file, problems


@eval_app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(help="Predictions, or the folder of a run: before.")],
    b: Annotated[Path, typer.Argument(help="The same: after.")],
    task: Annotated[str | None, typer.Option(help="Where the files do not say it.")] = None,
    gold: Annotated[
        Path | None, typer.Option(help="COCO annotations, where the run was made on them.")
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="With --gold: all or visual-rft.")] = None,
    categories: Annotated[
        list[str] | None, typer.Option(help="Names or lists of them, as in `vlrft eval`.")
    ] = None,
    bootstrap: Annotated[int, typer.Option(min=2, help="Draws for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    show: Annotated[int, typer.Option(min=0, help="Flipped rows to print.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Is B better than A? Metric differences with paired bootstrap intervals, and what flipped.

    Example: vlrft eval compare runs/eval/before runs/eval/after
    """
    from swift_vlrft.evaluation.compare import compare as compare_predictions
    from swift_vlrft.evaluation.predictions import read_predictions

    try:
        if gold is None:
            gold, protocol, made_of = made_on(a, protocol)
            categories = categories or made_of
        result = compare_predictions(
            read_predictions(_predictions_file(a), task),
            read_predictions(_predictions_file(b), task),
            annotations=gold,
            protocol=protocol,
            categories=tuple(categories or ()),
            bootstrap=bootstrap,
            seed=seed,
        )
    except (OSError, ValueError) as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=2))
        return
    console = Console()
    kind = f"{result.task}, protocol {result.protocol}" if result.protocol else result.task
    table = Table(title=f"{kind}: {result.rows} rows in both, {result.images} pictures")
    table.add_column("metric", no_wrap=True)
    for heading in ("A", "B", "B - A", "95 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, d in result.metrics.items():
        sign = f"{d.difference:+.3f}" if d.difference is not None else "-"
        bounds = "-" if d.low is None or d.high is None else f"{d.low:+.3f} to {d.high:+.3f}"
        table.add_row(name, _number(d.a), _number(d.b), sign, bounds)
    console.print(table)
    if (difference := _seen_otherwise(a, b)) is not None:
        typer.echo(difference)
    for note in result.notes:
        typer.echo(f"note: {_printable(note)}")
    if result.only_a or result.only_b:
        typer.echo(f"rows only in A: {result.only_a}; only in B: {result.only_b} (left out)")
    if result.other_prompts:
        typer.echo(
            f"{result.other_prompts} of {result.rows} rows were asked in other words in B: is it "
            "the same data set?"
        )
    typer.echo(f"became right: {len(result.gained)}; became wrong: {len(result.lost)}")
    for name, flips in (("right", result.gained), ("wrong", result.lost)):
        for flip in flips[:show]:
            typer.echo(
                f"  row {_printable(flip.id)} became {name}: {flip.a:.2f} ({_printable(flip.why_a)}"
                f") -> {flip.b:.2f} ({_printable(flip.why_b)})"
            )


def made_on(folder: Path, protocol: str | None) -> tuple[Path | None, str | None, list[str] | None]:
    """Annotations, protocol and categories of a run, as its run.json has them."""
    from swift_vlrft.evaluation.questions import Settings, is_annotation_file

    manifest = folder / "run.json"
    if not manifest.is_file():
        return None, protocol, None
    try:
        settings = Settings.from_dict(json.loads(manifest.read_text())["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{manifest} cannot be read ({error!r})") from None
    if not is_annotation_file(settings.dataset):
        return None, protocol, None
    return settings.dataset, protocol or settings.protocol or "all", list(settings.categories)


def _seen_otherwise(a: Path, b: Path) -> str | None:
    """One sentence where the two runs showed their pictures at different sizes."""
    seen = []
    for folder in (a, b):
        try:
            settings = json.loads((folder / "run.json").read_text())["settings"]
            options = settings["engine_options"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        found = dict(settings.get("resolution") or {})
        found |= {"--max_pixels": options["max_pixels"]} if "max_pixels" in options else {}
        named = " ".join(f"{key}={value}" for key, value in sorted(found.items()))
        seen.append(named or "the model's own limits")
    if seen[0] == seen[1]:
        return None
    return f"the pictures were shown at {seen[0]} in A, at {seen[1]} in B"


def print_summary(summary: Any, shown_classes: int = 20) -> None:
    console = Console()
    kind = f"{summary.task}, protocol {summary.protocol}" if summary.protocol else summary.task
    table = Table(title=f"{kind}: {summary.rows} rows, {summary.images} pictures")
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("95 %", justify="right", no_wrap=True)
    for name, m in summary.metrics.items():
        bounds = "-" if m.low is None else f"{m.low:.3f} to {m.high:.3f}"
        table.add_row(name, _number(m.value), bounds)
    for name, value in summary.selected.items():
        table.add_row(f"AP of {name}", _number(value), "-")
    console.print(table)
    if summary.by_class:
        heads = list(dict.fromkeys(m for values in summary.by_class.values() for m in values))
        of_class = Table(title="by category" if summary.task == "detection" else "by class")
        of_class.add_column("name")
        for head in heads:
            of_class.add_column(head, justify="right")
        for name, values in list(summary.by_class.items())[:shown_classes]:
            cells = [_number(values.get(m)) for m in heads]
            of_class.add_row(escape(_printable(name)), *cells)
        console.print(of_class)
        if len(summary.by_class) > shown_classes:
            typer.echo(f"and {len(summary.by_class) - shown_classes} more (--json has them)")
    for note in summary.notes:
        typer.echo(f"note: {_printable(note)}")
    for kind, count in summary.problems.items():
        named = ", ".join(map(_printable, summary.named.get(kind, [])))
        typer.echo(f"{count} {kind}: {named}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _printable(text: str) -> str:
    """What a model or a file says must not reach the terminal as control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def fail(error: Exception) -> NoReturn:
    Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
    raise typer.Exit(2) from None
