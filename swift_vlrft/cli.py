"""The command ``vlrft``; each of its commands is one file in commands/."""

from collections.abc import Callable
from typing import Annotated

import typer

from swift_vlrft import __version__
from swift_vlrft.commands.agree import agree
from swift_vlrft.commands.check import check
from swift_vlrft.commands.compare import compare
from swift_vlrft.commands.data import data
from swift_vlrft.commands.demo import demo
from swift_vlrft.commands.doctor import doctor
from swift_vlrft.commands.eval import evaluate
from swift_vlrft.commands.output import CONTEXT, PANEL_OF, Commands
from swift_vlrft.commands.plan import plan
from swift_vlrft.commands.plugin import plugin
from swift_vlrft.commands.publish import publish
from swift_vlrft.commands.recipe import recipe
from swift_vlrft.commands.recipe_words import WITH_FLAGS
from swift_vlrft.commands.report import report
from swift_vlrft.commands.score import score
from swift_vlrft.commands.tiny import tiny
from swift_vlrft.commands.try_ import try_

app = typer.Typer(
    cls=Commands,
    context_settings=CONTEXT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    **{"try": try_, "demo": demo, "tiny": tiny},
    **{"check": check, "plan": plan, "agree": agree, "doctor": doctor, "plugin": plugin},
    **{"score": score, "eval": evaluate, "compare": compare, "report": report, "publish": publish},
}
CONTEXTS = {"plan": WITH_FLAGS, "check": WITH_FLAGS}
for name, command in COMMANDS.items():
    app.command(name, context_settings=CONTEXTS.get(name), rich_help_panel=PANEL_OF[name])(command)
for name, group in {"data": data, "recipe": recipe}.items():
    app.add_typer(group, name=name, rich_help_panel=PANEL_OF[name])


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Visual reinforcement fine-tuning on ms-swift: rewards, data sets, recipes, memory plans.

    Example: swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" ...
    """
