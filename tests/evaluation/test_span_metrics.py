"""Recall at an IoU, and mean IoU, of spans: beside the formulas of the released evaluations."""

import random
from fractions import Fraction

from scored import answer, assert_metrics, run_json, write_lines

FORMS = [
    "{} to {}",
    "{}s - {}s",
    "[{}, {}]",
    '{{"start": {}, "end": {}}}',
    "from {} to {} seconds.",
]


def drawn(rng):
    """A gold span of one query, and what is answered: a span, one in the wrong order, or none."""
    start = round(rng.uniform(0, 25), 1)
    gold = [start, round(start + rng.uniform(0.5, 10), 1)]
    moved = sorted(round(max(0, side + rng.gauss(0, 2)), 1) for side in gold)
    given = rng.choice([gold, moved, moved, moved, [0.0, 35.0], moved[::-1], None])
    return gold, given


def as_released(pairs):
    """VideoChat-R1's evaluate_grounding.py, and TimeR1's eval_all.py: hull in place of union; in
    fractions, since of an IoU of exactly 0.5 their floats may make less.
    """
    ious = []
    for (start, end), given in pairs:
        if given is None:
            ious.append(0)
            continue
        start, end, *given = (Fraction(str(side)) for side in (start, end, *given))
        hull = max(end, given[1]) - min(start, given[0])
        ious.append(max(0, min(end, given[1]) - max(start, given[0])) / hull if hull else 0)
    shares = {n: sum(iou >= Fraction(n, 100) for iou in ious) for n in (30, 50, 70)}
    named = {f"r1_iou{n}": count / len(ious) for n, count in shares.items()}
    return named | {"mean_iou": float(sum(ious) / len(ious))}


def test_metrics_are_those_of_the_released_evaluations(tmp_path):
    rng = random.Random(63)
    pairs = [drawn(rng) for _ in range(500)]
    rows = [
        {
            "task": "temporal",
            "completion": "?" if given is None else answer(rng.choice(FORMS).format(*given)),
            "solution": gold,
        }
        for gold, given in pairs
    ]
    summary = run_json("eval", "--predictions", write_lines(tmp_path / "p.jsonl", rows))
    expected = as_released(pairs)
    assert 0.1 < expected["r1_iou70"] < expected["r1_iou50"] < expected["r1_iou30"] < 0.95
    assert_metrics(summary, **expected)
    assert summary["headline"] == "mean_iou"
    for name, value in expected.items():
        assert summary["metrics"][name]["low"] < value < summary["metrics"][name]["high"]
