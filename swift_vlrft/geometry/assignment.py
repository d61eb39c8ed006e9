"""Match predicted boxes with gold boxes, one to one.

    match(numpy.array([[0.9, 0.8], [0.7, 0]]))    [(0, 1, 0.8), (1, 0, 0.7)]

Both predictions overlap gold box 0; prediction 0 takes gold box 1, since 0.8 + 0.7 > 0.9.
"""

from collections.abc import Sequence

from swift_vlrft.geometry.boxes import Array, Pair

_PER_CONFIDENCE = 1e-10
"""Weight of a confidence beside an IoU: it only decides between equal sums."""


def match(overlaps: Array, confidences: Sequence[float | None] = ()) -> list[Pair]:
    """Return the one-to-one matching with the largest summed IoU.

    ``overlaps``: a table (predictions, gold boxes) that is 0 where there is no pair. Among equal
    sums the matching with the lowest total of ``confidences`` wins (a number in [0, 1] per
    prediction, None counts as 0.5), so a repeated box cannot pick its better confidence.
    """
    import numpy as np
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    rows = np.flatnonzero(overlaps.any(axis=1))
    if not len(rows):
        return []
    weights = overlaps[rows]
    first = weights.argmax(axis=1)
    best = weights[np.arange(len(rows)), first]
    if len(set(first.tolist())) == len(rows) == (weights == best[:, None]).sum():
        # Every prediction gets its best gold box: no sum is larger.
        return list(zip(rows.tolist(), first.tolist(), best.tolist(), strict=True))
    if confidences:
        values = np.array([0.5 if c is None else c for c in confidences])[rows, None]
        weights = np.where(weights > 0.0, weights - _PER_CONFIDENCE * values, 0.0)
    # The order in the text must not matter: predictions are distinguished by their overlaps only.
    order = np.lexsort(weights.T)
    chosen, j = linear_sum_assignment(weights[order], maximize=True)
    i = rows[order[chosen]]
    triples = zip(i.tolist(), j.tolist(), overlaps[i, j].tolist(), strict=True)
    return [triple for triple in triples if triple[2] > 0.0]


def greedy(overlaps: Array) -> list[float]:
    """Return, for each row in turn, its largest overlap with a column not yet taken, else 0."""
    free = overlaps.copy()
    taken = []
    for row in free:
        best = row.argmax()
        taken.append(float(row[best]))
        if taken[-1]:
            free[:, best] = 0.0
    return taken
