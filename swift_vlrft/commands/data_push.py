"""``vlrft data push``: uploads a Parquet folder to a hub."""

import json
from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.data_shared import AsJson


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output of data convert.")],
    hub: Annotated[str, typer.Option(help="modelscope or hf.")],
    repo: Annotated[str, typer.Option(help="ORG/NAME; created if it does not exist.")],
    private: Annotated[bool, typer.Option("--private", help="Create a private one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a converted folder with its card; afterwards --dataset ORG/NAME trains on it.

    Example: HF_TOKEN=... vlrft data push data/coco8 --hub hf --repo me/coco8

    The token is taken from HF_TOKEN or MODELSCOPE_API_TOKEN, and never shown.
    """
    from swift_vlrft.datasets.push import push_folder

    page = push_folder(folder, hub, repo, private=private)
    dataset = f"{'hf' if hub == 'hf' else 'ms'}::{repo}"
    if as_json:
        typer.echo(json.dumps({"page": page, "dataset": dataset}))
    else:
        typer.echo(f"{page}\ntrain on it with: --dataset {dataset}")
