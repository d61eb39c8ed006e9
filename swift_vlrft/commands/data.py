"""``vlrft data``: everything about data sets; each command is one file, data_<name>.py."""

import typer

from swift_vlrft.commands.data_check import check
from swift_vlrft.commands.data_coco import coco
from swift_vlrft.commands.data_convert import convert
from swift_vlrft.commands.data_list import list_sources
from swift_vlrft.commands.data_push import push
from swift_vlrft.commands.data_show import show

data = typer.Typer(
    help="Data sets: view, check, convert and publish them. Example: vlrft data check data/my_set",
    no_args_is_help=True,
)
data.command()(check)
data.command()(coco)
data.command("list")(list_sources)
data.command()(push)
data.command()(convert)
data.command()(show)
