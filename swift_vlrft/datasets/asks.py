"""Count the prompts that never ask for what a reward reads: every answer to them earns 0.

"Which flower is this?"    vlrft_classification reads <answer> or \\boxed, and nobody asks for it
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from swift_vlrft.datasets.check import Report
from swift_vlrft.rewards import REWARDS


def unasked(
    rewards: Sequence[str], reports: Sequence[Report], written: Collection[str] = ()
) -> list[tuple[str, bool]]:
    """Return what prompts of these sets never ask for, and whether all of them; the model writes
    ``written`` by itself.
    """
    found: dict[tuple[str, int, int, str], list[str]] = {}
    for name in filter(REWARDS.get, rewards):
        task = REWARDS[name].task
        for asked in REWARDS[name].asks or ():
            lacking = sum(r.unasked[task.name if task else "", asked] for r in reports)
            if lacking and not any(re.search(asked.pattern, text) for text in written):
                rows = sum(r.scored[task.name] if task else r.good for r in reports)
                found.setdefault((asked.what, lacking, rows, asked.line), []).append(name)
    line = "'" + " ".join(dict.fromkeys(asks for *_, asks in found)) + "'"
    return [
        (
            f"{lacking} of {rows} prompts never ask for {what}, and every answer without it earns "
            f"0 under {' and '.join(names)}: add --system {line} to the training, or write it "
            f"into the prompts by vlrft data convert SRC DST --ask {line}",
            lacking >= rows,
        )
        for (what, lacking, rows, _), names in found.items()
    ]
