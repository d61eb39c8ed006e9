"""``vlrft agree``: does the engine say what the trainer says?"""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.output import print_json, say, show, table


def agree(
    target: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe, or a quoted `swift rlhf` command.")
    ],
    flags: Annotated[
        list[str] | None,
        typer.Argument(help="After --: flags of `swift rlhf` that override the recipe's."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows to compare, with and without images.")] = 8,
    tokens: Annotated[int, typer.Option(min=1, help="Longest answer to compare, in tokens.")] = 64,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: runs/agree/NAME.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Compare prompts and log-probabilities of engine and trainer.

    Example: vlrft agree recipes/qwen2_5_vl_3b/detection_4x80g.sh --rows 4

    It compares them as loaded and after a synchronisation, in a run of the recipe's own model,
    data, engine and flags up to its first step, in a minute or so.
    Exit code 0: they agree; 1: they do not; 2: nothing could be compared.
    """
    from swift_vlrft.agreement.verdict import RATIO
    from swift_vlrft.files.records import as_json as plain
    from swift_vlrft.swift_plugin.agree import agree as compare

    verdict, measured, folder = compare(
        target, out=out, rows=rows, tokens=tokens, flags=flags or ()
    )
    if as_json:
        told = {name: getattr(measured, name) for name in ("engine", "model", "dtype")}
        print_json({**plain(verdict), **told, "folder": str(folder)})
        raise typer.Exit(verdict.exit_code)
    say(f"{verdict.word}: {measured.engine} and the trainer, {measured.model}: {verdict.said}")
    limit = verdict.limit
    drawn = table("compared", ">tokens", ">mean", ">worst", f">beyond {limit.bound:g}", ">ratio")
    for name, f in verdict.figures.items():
        numbers = f"{f.mean:.2g}", f"{f.worst:.2g}", f"{f.beyond:.1%}", f"{f.ratio:.4f}"
        drawn.add_row(name, str(f.tokens), *numbers)
    last = f"{limit.mean:g}", "", f"{limit.share:.1%}", f"{RATIO}"
    drawn.add_row(f"limit, {measured.dtype}", "", *last)
    show(drawn)
    say(*(f"note: {note}" for note in verdict.notes))
    say(f"{folder}/verdict.json")
    raise typer.Exit(verdict.exit_code)
