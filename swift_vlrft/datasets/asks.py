"""Count the prompts that never ask for what a reward reads: every answer to them earns 0.

"Which flower is this?"    vlrft_classification reads <answer> or \\boxed, and nobody asks for it
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from swift_vlrft.datasets.check import Report
from swift_vlrft.rewards import REWARDS
from swift_vlrft.rewards.contract import ANSWER, BOXED, CONFIDENCE

LINES = {
    ANSWER[0]: "First think in <think> </think>, then answer in <answer> </answer>.",
    BOXED[0]: r"First think in <think> </think>, then give the answer in \boxed{}.",
    CONFIDENCE[0]: "Give each box a Confidence between 0 and 1.",
}
"""What asks for it, for --system or the end of a prompt."""


class Unasked(NamedTuple):
    """Of ``rows`` that the rewards ``names`` score, so many never ask for ``what``; ``line`` does,
    and for all else that is lacking.
    """

    what: str
    lacking: int
    rows: int
    names: list[str]
    line: str

    def __str__(self) -> str:
        line = f"'{self.line}'"
        return (
            f"{self.lacking} of {self.rows} prompts never ask for {self.what}, and every answer "
            f"without it earns 0 under {' and '.join(self.names)}: add --system {line} to the "
            f"training, or write it into the prompts by vlrft data convert SRC DST --ask {line}"
        )


def unasked(
    rewards: Sequence[str], reports: Sequence[Report], written: Collection[str] = ()
) -> list[Unasked]:
    """Return what prompts of these sets never ask for; the model writes ``written`` by itself."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for name in filter(REWARDS.get, rewards):
        task = REWARDS[name].task
        for words in REWARDS[name].asks or ():
            lacking = sum(r.unasked[task.name if task else "", words] for r in reports)
            if lacking and not {*words} & {*written}:
                rows = sum(r.scored[task.name] if task else r.good for r in reports)
                found.setdefault((words[0], lacking, rows), []).append(name)
    line = " ".join(dict.fromkeys(LINES[what] for what, *_ in found))
    return [Unasked(*key, names, line) for key, names in found.items()]
