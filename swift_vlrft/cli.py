"""The command ``vlrft``; each of its commands is one file in commands/."""

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
from swift_vlrft.commands.output import CONTEXT, Commands
from swift_vlrft.commands.plan import plan
from swift_vlrft.commands.plugin import plugin
from swift_vlrft.commands.publish import publish
from swift_vlrft.commands.recipe import recipe
from swift_vlrft.commands.recipe_words import WITH_FLAGS
from swift_vlrft.commands.report import report
from swift_vlrft.commands.resume import resume
from swift_vlrft.commands.score import score
from swift_vlrft.commands.tiny import tiny
from swift_vlrft.commands.try_road import try_

app = typer.Typer(
    cls=Commands,
    context_settings=CONTEXT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for reading in (plan, check):
    app.command(context_settings=WITH_FLAGS)(reading)
for command in (
    plugin,
    agree,
    tiny,
    demo,
    doctor,
    report,
    resume,
    compare,
    publish,
):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True})(score)
app.command("eval")(evaluate)
app.command("try")(try_)
app.add_typer(data, name="data")
app.add_typer(recipe, name="recipe")


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print it and end."),
    ] = False,
) -> None:
    """Visual reinforcement fine-tuning on ms-swift: rewards, data sets, recipes, memory plans.

    Example: swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" ...
    """
