"""``vlrft data check``: is every row of a set fit to train on?"""

from pathlib import Path
from typing import Annotated

import typer


def check(
    source: Annotated[Path, typer.Argument(help="A set on disk, in any form.")],
) -> None:
    """Run every row: image, prompt, solution, boxes, and the gold answer under its task's rewards.

    Example: vlrft data check data/my_set
    """
    from swift_vlrft.datasets.check import check_set

    check_set(source)
