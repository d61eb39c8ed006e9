"""Which predicted box is which gold box: the one-to-one choice with the largest summed IoU.

    match([(0, 0, 0.9), (0, 1, 0.8), (1, 0, 0.7)])    [(0, 1, 0.8), (1, 0, 0.7)]

Two predictions want gold box 0; the first one gives way, since 0.8 + 0.7 is more than 0.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from swift_vlrft.geometry.boxes import MANY_PAIRS, Pair, PairArrays, Pairs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FEW_COLUMNS = 6
_PER_CONFIDENCE = 1e-10
"""What a confidence weighs beside an IoU: it decides between equal sums and nothing else."""


def match(pairs: Pairs, against: Sequence[float | None] = ()) -> list[Pair]:
    """The one-to-one choice of ``pairs`` with the largest summed IoU.

    Equal sums are decided by ``against``, a number in [0, 1] per prediction (None counts as 0.5):
    the choice that matches less of it wins, so a repeated box cannot pick its better confidence.
    """
    if isinstance(pairs, PairArrays) or len(pairs) > MANY_PAIRS:
        return _match_many(pairs, against)
    if len(pairs) == len({i for i, _, _ in pairs}) == len({j for _, j, _ in pairs}):
        return list(pairs)
    best: dict[int, Pair] = {}
    tied = False
    for pair in pairs:
        other = best.get(pair[0])
        if other is None or pair[2] > other[2]:
            best[pair[0]] = pair
        elif pair[2] == other[2]:
            tied = True
    if not tied and len({j for _, j, _ in best.values()}) == len(best):
        return list(best.values())  # every prediction gets its best gold box: no sum is larger
    in_row = Counter(i for i, _, _ in pairs)
    in_column = Counter(j for _, j, _ in pairs)
    alone = [pair for pair in pairs if in_row[pair[0]] == in_column[pair[1]] == 1]
    rest = [pair for pair in pairs if in_row[pair[0]] > 1 or in_column[pair[1]] > 1]
    columns = sorted({pair[1] for pair in rest})
    if len(columns) > _FEW_COLUMNS:
        return [*alone, *_match_many(rest, against)]

    def weight(pair: Pair) -> float:
        stated = against[pair[0]] if against else 0.0
        return pair[2] - _PER_CONFIDENCE * (0.5 if stated is None else stated)

    # The order in the text must decide nothing: predictions are told apart by their overlaps only.
    overlaps: dict[int, dict[int, Pair]] = {}
    for pair in rest:
        overlaps.setdefault(pair[0], {})[pair[1]] = pair
    rows = sorted(overlaps, key=lambda i: [(j, weight(p)) for j, p in sorted(overlaps[i].items())])
    if len(rows) > len(columns) ** 2:
        # Of n gold boxes each finds, among its n best predictions, one that no other one takes.
        kept: set[int] = set()
        for j in columns:
            near = [overlaps[i][j] for i in rows if j in overlaps[i]]
            kept.update(p[0] for p in nlargest(len(columns), near, key=weight))
        rows = [i for i in rows if i in kept]
    return [*alone, *_solve_few([list(overlaps[i].values()) for i in rows], columns, weight)]


def _solve_few(
    rows: list[list[Pair]], columns: list[int], weight: Callable[[Pair], float]
) -> list[Pair]:
    """The best choice for every set of gold boxes, one prediction after another.

    The common case of a few contested boxes; scipy alone takes longer to import than a reward may.
    """
    bits = {j: 1 << n for n, j in enumerate(columns)}
    best: dict[int, tuple[float, list[Pair]]] = {0: (0.0, [])}
    for row in rows:
        for taken, (total, chosen) in list(best.items()):
            for pair in row:
                bit = bits[pair[1]]
                more = total + weight(pair)
                if not taken & bit and more > best.get(taken | bit, (0.0,))[0]:
                    best[taken | bit] = (more, [*chosen, pair])
    return max(best.values(), key=lambda choice: choice[0])[1]


def _match_many(pairs: Pairs, against: Sequence[float | None]) -> list[Pair]:
    """The same as one table, predictions by gold boxes, of those that somebody contests."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    if not isinstance(pairs, PairArrays):
        pairs = PairArrays(*map(np.array, zip(*pairs, strict=True)))
    contested = (np.bincount(pairs.i)[pairs.i] > 1) | (np.bincount(pairs.j)[pairs.j] > 1)
    alone = list(pairs.where(~contested))
    if len(alone) == len(pairs):
        return alone
    pairs = pairs.where(contested)
    i, j, overlap = pairs.i, pairs.j, pairs.iou
    rows, row = np.unique(i, return_inverse=True)
    columns, column = np.unique(j, return_inverse=True)
    table = np.zeros((len(rows), len(columns)))
    table[row, column] = overlap
    weights = np.zeros_like(table)
    weights[row, column] = overlap - _PER_CONFIDENCE * _stated(against, i)
    # As above: an order of the predictions that does not depend on that in the text.
    order = np.lexsort(weights.T)
    if len(rows) > len(columns) ** 2:
        best = np.argsort(-weights[order], axis=0, kind="stable")[: len(columns)]
        order = order[np.unique(best)]
    chosen, of = linear_sum_assignment(weights[order], maximize=True)
    chosen = order[chosen]
    found = (table[chosen, of] > 0.0).nonzero()[0]
    chosen, of = chosen[found], of[found]
    triples = zip(
        rows[chosen].tolist(), columns[of].tolist(), table[chosen, of].tolist(), strict=True
    )
    return [*alone, *triples]


def _stated(against: Sequence[float | None], i: NDArray[np.intp]) -> NDArray[np.float64]:
    import numpy as np

    if not against:
        return np.zeros(len(i))
    return np.array([0.5 if stated is None else stated for stated in against])[i]
