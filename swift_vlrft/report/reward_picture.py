"""Draw the curves of the rewards as a PNG, as the report draws them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from swift_vlrft.report.curves import trailing_mean

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which the colour-blind tell apart, too."""
STYLES = ("-", "--", "-.", ":")


def draw_rewards(curves: Mapping[str, Mapping[int, float]], out: Path | BinaryIO) -> None:
    """Draw ``curves``: the mean of a reward by step, by the reward's name."""
    import warnings

    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        colour, steps, values = COLOURS[number % len(COLOURS)], [*points], [*points.values()]
        smooth = [trailing_mean(values, n) for n in range(len(values))]
        axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.45)
        style, label = STYLES[number % len(STYLES)], name.replace("$", r"\$")
        axes.plot(steps, smooth, color=colour, linewidth=2, linestyle=style, label=label)
    everything = [0.0, 1.0, *(value for points in curves.values() for value in points.values())]
    axes.legend(loc="lower right", frameon=False)
    axes.set(xlabel="GRPO step", ylabel="mean reward of the sampled answers")
    axes.set(ylim=(min(everything), max(everything) + 0.05))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
        figure.savefig(out, dpi=120, format="png")
