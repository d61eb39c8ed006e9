"""The command ``vlrft``; each of its commands is one file in commands/."""

import typer

from swift_vlrft.commands.check import check
from swift_vlrft.commands.data import data
from swift_vlrft.commands.demo import demo
from swift_vlrft.commands.doctor import doctor
from swift_vlrft.commands.eval import eval_app
from swift_vlrft.commands.plan import plan
from swift_vlrft.commands.plugin import plugin
from swift_vlrft.commands.recipe import recipe
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
app.command()(plan)
app.command()(score)
app.command()(tiny)
app.command()(demo)
app.command()(recipe)
app.command()(check)
app.command()(doctor)
app.command()(report)
app.add_typer(data, name="data")
app.add_typer(eval_app, name="eval")
