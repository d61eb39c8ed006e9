"""The `# memory` line in a recipe's header: the planner's figures, refreshed and never by hand.

    # memory   peak 61.2 GiB of 80 per GPU in backward (vlrft plan, simulated)

`vlrft plan RECIPE --header` writes it; a test plans every recipe again and compares.
"""

from __future__ import annotations

import re

from swift_vlrft.memory.estimate import Plan
from swift_vlrft.memory.settings import GIB

LINE = re.compile(r"^# memory\b.*(?:\n#  {6,}\S.*)*$", re.MULTILINE)
FIGURES = re.compile(r"peak (\d+\.\d) GiB of (\d+) per GPU in ([\w/ -]+) \(vlrft plan, (\w+)\)")


def header_line(made: Plan) -> str:
    nominal = nominal_size(made.settings.gpu_bytes)
    return (
        f"# memory   peak {made.peak.total / GIB:.1f} GiB of {nominal} per GPU in "
        f"{made.peak.name} (vlrft plan, {made.how})"
    )


def nominal_size(size: int) -> int:
    """As it is sold: what torch sees is one or two per cent less."""
    return round(size / GIB / 0.985)


def with_header(text: str, made: Plan) -> str:
    """``text`` with its `# memory` line replaced; ValueError where there is none."""
    if not LINE.search(text):
        raise ValueError("the recipe has no line `# memory` in its header to write the figures to")
    return LINE.sub(lambda _: header_line(made), text, count=1)


def figures(text: str) -> tuple[float, int, str, str] | None:
    """peak, card, phase and how, as a recipe's header states them."""
    match = FIGURES.search(text)
    return (float(match[1]), int(match[2]), match[3], match[4]) if match else None
