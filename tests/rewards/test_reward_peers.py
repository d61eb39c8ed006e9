"""``vlrft_paper_*`` against Visual-RFT's released functions on well-formed answers.

Runs where VLRFT_PEERS names a folder with a checkout of Visual-RFT; none of it is kept here. Its
shortcut through a math parser is off: it pays for a wrong box whose y1 is right.
"""

import os
import random
import sys
from pathlib import Path

import pytest

from swift_vlrft.rewards import REWARDS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Only for the import: a benchmarks/datasets.py left on the path hides the library of that name.
sys.path.insert(0, str(BENCHMARKS))
try:
    from peers import VISUAL_RFT, find, visual_rft
finally:
    sys.path.remove(str(BENCHMARKS))

PEERS = os.environ.get("VLRFT_PEERS")

pytestmark = pytest.mark.skipif(
    not PEERS or not Path(PEERS).is_dir() or find(Path(PEERS), VISUAL_RFT) is None,
    reason="VLRFT_PEERS names no folder with a checkout of Visual-RFT",
)


def cases(count):
    rng = random.Random(7)

    def box():
        x, y = rng.randint(0, 700), rng.randint(0, 700)
        return [x, y, x + rng.randint(10, 300), y + rng.randint(10, 300)]

    for _ in range(count):
        golds = [box() for _ in range(rng.randint(1, 6))]
        near = [
            [max(0, v + rng.randint(-30, 30)) for v in rng.choice(golds)]
            for _ in range(rng.randint(1, 7))
        ]
        near = [b if b[0] < b[2] and b[1] < b[3] else box() for b in near]
        near += [list(rng.choice(near)) for _ in range(rng.randint(0, 2))]  # repeats of a position
        predictions = [{"Position": b, "Confidence": round(rng.random(), 2)} for b in near]
        yield (
            f"<think>t</think><answer>{predictions}</answer>",
            f"<answer>{[{'Position': b, 'Confidence': 1} for b in golds]}</answer>",
        )


@pytest.mark.parametrize("kind", ["iou", "confidence"])
def test_the_paper_rewards_are_the_released_ones(kind):
    theirs = visual_rft(Path(PEERS), math=None)[f"accuracy_reward_{kind}"]
    texts, golds = zip(*cases(3000), strict=True)
    expected = theirs([[{"role": "assistant", "content": text}] for text in texts], list(golds))
    ours = REWARDS[f"vlrft_paper_{kind}"](list(texts), list(golds))
    assert ours == pytest.approx(expected, abs=1e-12)
    assert len({round(value, 3) for value in ours}) > 100  # not a row of zeros
