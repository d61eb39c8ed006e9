"""The command ``vlrft``; each of its commands is one file in commands/."""

import typer

from swift_vlrft.commands.data import data
from swift_vlrft.commands.demo import demo
from swift_vlrft.commands.eval import eval_app
from swift_vlrft.commands.plugin import plugin
from swift_vlrft.commands.report import report
from swift_vlrft.commands.score import score
from swift_vlrft.commands.tiny import tiny

app = typer.Typer(
    help="Visual reinforcement fine-tuning on ms-swift. Example: "
    'swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" ...',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(plugin)
app.command()(score)
app.command()(tiny)
app.command()(demo)
app.command()(report)
app.add_typer(data, name="data")
app.add_typer(eval_app, name="eval")
