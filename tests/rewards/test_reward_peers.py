"""``vlrft_paper_*`` against Visual-RFT's released functions on well-formed answers.

Runs where VLRFT_PEERS names a folder with a checkout of Visual-RFT; none of it is kept here. Its
shortcut through a math parser is off: it pays for a wrong box whose y1 is right.
"""

import os
import random
from pathlib import Path

import pytest

from swift_vlrft.rewards import REWARDS

PEERS = Path(os.environ.get("VLRFT_PEERS", "nowhere"))


def peer(kind, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from peers import VISUAL_RFT, find, visual_rft

    if not PEERS.is_dir() or find(PEERS, VISUAL_RFT) is None:
        pytest.skip("VLRFT_PEERS names no folder with a checkout of Visual-RFT")
    return visual_rft(PEERS, math=None)[f"accuracy_reward_{kind}"]


def case(rng):
    def box():
        x, y = rng.randint(0, 700), rng.randint(0, 700)
        return [x, y, x + rng.randint(10, 300), y + rng.randint(10, 300)]

    golds = [box() for _ in range(rng.randint(1, 6))]
    near = [[max(0, v + rng.randint(-30, 30)) for v in rng.choice(golds)] for _ in range(6)]
    near = [b if b[0] < b[2] and b[1] < b[3] else box() for b in near[: rng.randint(1, 6)]]
    near += [list(rng.choice(near)) for _ in range(rng.randint(0, 2))]  # repeats of a position
    predictions = [{"Position": b, "Confidence": round(rng.random(), 2)} for b in near]
    solution = f"<answer>{[{'Position': b, 'Confidence': 1} for b in golds]}</answer>"
    return f"<think>t</think><answer>{predictions}</answer>", solution


@pytest.mark.parametrize("kind", ["iou", "confidence"])
def test_the_paper_rewards_are_the_released_ones(kind, monkeypatch):
    theirs, rng = peer(kind, monkeypatch), random.Random(7)
    texts, golds = zip(*(case(rng) for _ in range(3000)), strict=True)
    expected = theirs([[{"role": "assistant", "content": text}] for text in texts], list(golds))
    ours = REWARDS[f"vlrft_paper_{kind}"](list(texts), list(golds))
    assert ours == pytest.approx(expected, abs=1e-12)
    assert len({round(value, 3) for value in ours}) > 100  # not a row of zeros
