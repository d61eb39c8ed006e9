"""How far the engine's log-probabilities of its own tokens are from the trainer's.

figures(engine, trainer)        mean |difference|, 99th percentile, worst token, KL, ratio

With r = log p(trainer) - log p(engine) of one token: the KL divergence of the trainer's policy from
the engine's is estimated by exp(r) - r - 1 (Schulman's k3), the importance ratio is exp(r).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

FLOOR = ("mean", "p99", "worst", "kl", "beyond_two")


class Row(msgspec.Struct):
    """One prompt, the engine's answer, and what both sides say of each of its tokens."""

    place: str
    images: int
    prompt: list[int]
    """As the trainer encodes it, every image token counted."""
    asked: list[int] | None
    """The prompt as the engine had it; None if it does not tell."""
    tokens: list[int]
    texts: list[str]
    """Of the tokens."""
    engine: list[float]
    """Log-probabilities; empty if the engine returns none."""
    trainer: list[float]
    again: list[float] = []
    """The trainer's of the same tokens in a micro-batch of another size."""
    rounded: list[float] = []
    """The trainer's with every layer's output moved by at most half the spacing of its numbers."""

    apart: str = ""
    """How the two prompts go on where they first differ."""

    @property
    def comparable(self) -> bool:
        return bool(self.engine) and len(self.engine) == len(self.trainer)


class Figures(msgspec.Struct):
    rows: int
    tokens: int
    mean: float
    """Of |r| over all tokens, in nats; ``p99`` and ``worst`` likewise."""
    p99: float
    worst: float
    kl: float
    ratio: float
    """The mean importance ratio; ``beyond_two`` is the share above 2 or below 1/2."""
    beyond_two: float
    worst_at: str = ""
    """Row, position and text of the token with the largest |r|."""


def figures(
    engine: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]
) -> Figures | None:
    """Of rows of tokens; None if there is no token. A value that is not finite differs by
    infinity."""
    a, b = (np.concatenate([[], *map(np.asarray, side)]) for side in (engine, trainer))
    if not a.size:
        return None
    r = b - a
    r[~np.isfinite(r)] = np.inf
    size, ratio = np.abs(r), np.exp(np.clip(r, -20, 20))
    kl = ratio - np.clip(r, -20, 20) - 1
    beyond = float(np.mean((ratio > 2) | (ratio < 0.5)))
    largest = (
        float(size.mean()),
        float(np.quantile(size, 0.99, method="higher")),
        float(size.max()),
    )
    return Figures(len(engine), a.size, *largest, float(kl.mean()), float(ratio.mean()), beyond)


def of_rows(rows: Sequence[Row]) -> Figures | None:
    """The engine against the trainer, with the place of the worst token."""
    rows = [row for row in rows if row.comparable]
    found = figures([row.engine for row in rows], [row.trainer for row in rows])
    if found is None:
        return None
    _, row, i = max(
        (abs(b - a) if np.isfinite(b - a) else np.inf, n, i)
        for n, row in enumerate(rows)
        for i, (a, b) in enumerate(zip(row.engine, row.trainer, strict=True))
    )
    found.worst_at = f"{rows[row].place}, token {i + 1} {rows[row].texts[i]!r}"
    return found


def noise(rows: Sequence[Row], resolution: float) -> Figures | None:
    """The trainer against itself: in micro-batches of another size, and with every layer's output
    moved by the rounding of its type. The larger of both, number by number, and no less than the
    rounding of the log-probabilities themselves, whose type has that ``resolution`` (bfloat16's is
    2^-7, so that the neighbours of -12 are 0.0625 away).
    """
    kinds = []
    for name in ("again", "rounded"):
        of_kind = [row for row in rows if getattr(row, name)]
        found = figures([getattr(row, name) for row in of_kind], [row.trainer for row in of_kind])
        kinds += [found] if found else []
    if not kinds:
        return None
    most = {name: max(getattr(kind, name) for kind in kinds) for name in FLOOR}
    sizes = np.abs(np.concatenate([row.trainer for row in rows]))
    spacing = float(np.mean(resolution * 2.0 ** np.floor(np.log2(np.maximum(sizes, 2.0**-10)))))
    most |= {"mean": max(most["mean"], spacing / 4), "p99": max(most["p99"], spacing / 2)}
    return msgspec.structs.replace(kinds[0], **most)
