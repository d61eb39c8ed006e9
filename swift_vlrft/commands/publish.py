"""``vlrft publish`` puts a trained model on a hub, with a card that says what ran."""

from pathlib import Path
from typing import Annotated

import typer

from swift_vlrft.commands.hub_options import CardOnly, Hub, Private, Repo, show_card
from swift_vlrft.commands.output import print_json, say


def publish(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint, full or LoRA; or a run's folder, for its last checkpoint."
        ),
    ],
    hub: Hub,
    repo: Repo,
    before: Annotated[
        Path | None,
        typer.Option(help="Folder of `vlrft eval` of the model that training started from."),
    ] = None,
    after: Annotated[
        Path | None, typer.Option(help="Folder of `vlrft eval` of this checkpoint.")
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(help="Hub id of the base model, where training started from a local folder."),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option(
            "--license", help="Licence of the model, as the hub names it, such as apache-2.0."
        ),
    ] = None,
    private: Private = False,
    card_only: CardOnly = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Publish a trained model with a card that says what ran: recipe, data, rewards, evaluation.

    Example: HF_TOKEN=... vlrft publish runs/demo/grpo --hub hf --repo me/shapes

    Weights, configuration, tokenizer and processor go up; optimizer states, logs and answers do
    not. A pickle, a path of this machine or a secret in what goes up is refused by name. The token
    is taken from HF_TOKEN or MODELSCOPE_API_TOKEN, and never shown.
    """
    from swift_vlrft.hub.cards import model_files
    from swift_vlrft.hub.checkpoint import open_checkpoint
    from swift_vlrft.hub.push import check_target, upload

    hub = check_target(hub, repo)
    opened = open_checkpoint(checkpoint, base_model)
    files = model_files(opened, hub, repo, before=before, after=after, licence=licence)
    if card_only is not None:
        return show_card(files, card_only, as_json)
    page = upload(files, hub, repo, "model", licence=licence, private=private)
    if as_json:
        print_json({"page": page, "checkpoint": str(opened.folder), "files": sorted(files)})
    else:
        say(opened.folder, page)
