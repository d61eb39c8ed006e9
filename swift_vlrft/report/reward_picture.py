"""The curves of the rewards as a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO


def draw_rewards(curves: Mapping[str, Sequence[float]], out: Path | BinaryIO) -> None:
    """``curves``: the mean of every step from the first, by reward."""
    import warnings

    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        marker = "." if len(values) <= 200 else ""
        axes.plot(range(1, len(values) + 1), values, marker=marker, label=name.replace("$", r"\$"))
    values = [0.0, 1.0, *(value for one in curves.values() for value in one)]
    axes.legend(loc="lower right")
    axes.set(xlabel="step", ylabel="mean reward", ylim=(min(values), max(values) + 0.05))
    axes.set(title="GRPO: rewards of the sampled answers")
    axes.grid(alpha=0.3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
        figure.savefig(out, dpi=120, format="png")
