"""The curves of the rewards as a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO


def draw_rewards(curves: Mapping[str, Sequence[float]], out: Path | BinaryIO) -> None:
    """``curves``: the mean of every step from the first, by reward."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        marker = "." if len(values) <= 200 else ""
        axes.plot(range(1, len(values) + 1), values, marker=marker, label=name)
    axes.legend(loc="lower right")
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.05))
    axes.set(title="GRPO: rewards of the sampled answers")
    axes.grid(alpha=0.3)
    figure.savefig(out, dpi=120, format="png")
