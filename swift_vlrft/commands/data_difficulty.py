"""``vlrft data difficulty`` and ``vlrft data order``: which rows can this model learn from?

vlrft data difficulty runs/sft/checkpoint-100 data/my_set --samples 8 --keep 0.1:0.9
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swift_vlrft.commands.data_check import (
    AsJson,
    Columns,
    Model,
    ModelType,
    Root,
    asked_format,
    renamed,
)
from swift_vlrft.commands.eval import answers_bar, engine_flags

if TYPE_CHECKING:
    from rich.table import Table

    from swift_vlrft.evaluation.difficulty import RowScores
    from swift_vlrft.evaluation.set_difficulty import Difficulty

SHOWN = 10
LONGEST = 40
BAR = 30

Keep = Annotated[
    str | None,
    typer.Option(metavar="LOW:HIGH", help="Only rows with such a pass rate, such as 0.1:0.9."),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Leave rows that cannot be trained on out.")
]


def difficulty(
    model: Annotated[str, typer.Argument(help="A checkpoint, an adapter, or a hub id.")],
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="SET",
            help="A set on disk, in any form; SET:pixels asks for boxes in pixels, as "
            "`--dataset SET:pixels` trains.",
        ),
    ],
    samples: Annotated[int, typer.Option(min=1, help="Answers per row.")] = 8,
    keep: Keep = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: runs/difficulty/MODEL-SET.")
    ] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(help="A reward by name; repeat for several. Default: the first of each task."),
    ] = None,
    pass_at: Annotated[
        float | None,
        typer.Option(help="Score from which an answer is right; default: 0.5 of boxes, else 1."),
    ] = None,
    task: Annotated[str, typer.Option(help="Task of rows that state none.")] = "",
    split: Annotated[str, typer.Option(help="Which split.")] = "train",
    root: Root = None,
    columns: Columns = "{}",
    temperature: Annotated[float, typer.Option(help="As GRPO samples.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.001, max=1, help="As GRPO samples.")] = 1.0,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Longest answer: --max_completion_length of the run.")
    ] = 1024,
    engine: Annotated[
        str, typer.Option(help="vllm, transformers, or auto: vLLM if installed and with a GPU.")
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes, each with a full model; default: one per GPU."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows at once.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the engine.")] = 0,
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32; default: the checkpoint's.")
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(help="Base model of an adapter that does not name it.")
    ] = None,
    engine_options: Annotated[
        str, typer.Option(help='Flags of `swift infer`, as JSON: {"vllm_max_model_len": 4096}.')
    ] = "{}",
    keep_going: KeepGoing = False,
    force: Annotated[
        bool, typer.Option("--force", help="Move the answers of another run aside.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let a model answer every row several times, and write the set with each row's pass_rate,
    reward_mean and reward_std, before any training.

    Example: vlrft data difficulty runs/sft/checkpoint-100 data/my_set --samples 8 --keep 0.1:0.9

    A killed run resumes when it is started again; another --reward, --pass-at or --keep asks
    nothing again. Exit code 0: done; 1: the set teaches this model nothing; 2: the input cannot be
    used.
    """
    given = locals() | {"engine_options": engine_flags(engine_options), "rename": renamed(columns)}
    for name in ("as_json", "columns", "root", "reward"):
        given.pop(name)
    from swift_vlrft.commands.output import print_json
    from swift_vlrft.files import records
    from swift_vlrft.swift_plugin.difficulty import measure
    from swift_vlrft.swift_plugin.evaluate import output_folder

    given["out"] = out = out or output_folder(model, dataset, "difficulty")
    with answers_bar("answers are there") as progress:
        found = measure(progress=progress, rewards=reward or (), images=root, **given)
    if as_json:
        print_json(records.as_json(found))
    else:
        _print(found, out)
    raise typer.Exit(1 if found.flags else 0)


def order(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC", help="A set with the columns that `vlrft data difficulty` writes."
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="Parquet folder to write.")],
    keep: Keep = None,
    split: Annotated[str, typer.Option(help="Which split.")] = "train",
    root: Root = None,
    model: Model = None,
    model_type: ModelType = None,
    keep_going: KeepGoing = False,
    as_json: AsJson = False,
) -> None:
    """Write the rows of a set from easy to hard: by pass_rate, then by reward_mean.

    Example: vlrft data order runs/difficulty/sft-checkpoint-100-my_set/set data/ordered

    Train on it with --dataset_shuffle false: ms-swift shuffles otherwise.
    """
    from swift_vlrft.commands.output import print_written
    from swift_vlrft.datasets.pass_rates import Share, order_folder

    share = None if keep is None else Share.of(keep)
    source, box_format, key, _ = asked_format(source, model, model_type, default="")
    written = order_folder(
        source,
        folder,
        split=split,
        root=root,
        keep=share,
        box_format=box_format,
        box_key=key,
        keep_going=keep_going,
    )
    print_written(written, as_json)


def _print(found: Difficulty, out: Path) -> None:
    from swift_vlrft.commands.output import say, say_marked, show, table
    from swift_vlrft.evaluation.set_difficulty import LIKELY
    from swift_vlrft.report.difficulty_page import bin_name

    title = (
        f"{found.scored} rows, {found.samples} answers each: mean pass rate {found.pass_rate:.3f}"
    )
    drawn, most = (
        table(">pass rate", ">rows", "", title=title),
        max(one.rows for one in found.histogram),
    )
    for one in found.histogram:
        bar = "#" * max(round(BAR * one.rows / most), one.rows > 0)
        drawn.add_row(bin_name(one.low, one.high), str(one.rows), bar)
    show(drawn)
    never, always = found.never_right, found.always_right
    if never.count:
        say(f"{never.count} rows that no answer gets right, the likeliest wrong gold first:")
        show(_rows(never.first))
    others = [row for row in found.suspects if row.pass_rate > 0 and (row.suspicion or 0) >= LIKELY]
    if others:
        say("rows whose answers are nearer to each other than to the gold:")
        show(_rows(others))
    say(
        f"{found.zero_variance} of {found.scored} rows teach nothing: all their answers earn the "
        "same"
    )
    if always.count:
        first = ", ".join(str(row.number) for row in always.first[:SHOWN])
        say(
            f"{always.count} rows are right in every answer: rows {first}"
            + ", ..." * (always.count > SHOWN)
        )
    for note in found.notes:
        say(f"note: {note}")
    for kind, count in found.problems.items():
        say(f"{count} {kind}")
    for flag in found.flags:
        say_marked("flag:", flag, "red")
    say(f"{out}/difficulty.html  {out}/ranking.jsonl")
    say(f"{found.folder}: {found.written} rows")


def _rows(rows: list[RowScores]) -> Table:
    from swift_vlrft.commands.output import number, table

    drawn = table(">row", ">pass rate", ">suspicion", "gold", "most answers")
    for row in rows[:SHOWN]:
        texts = [text or "-" for text in (row.gold, row.answer)]
        texts = [t if len(t) <= LONGEST else t[:LONGEST] + "..." for t in texts]
        drawn.add_row(str(row.number), number(row.pass_rate), number(row.suspicion), *texts)
    return drawn
