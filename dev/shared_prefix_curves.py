"""Draws dev/shared_prefix_curves.svg: the reward of every step of two runs, stock and shared.

python dev/shared_prefix_curves.py runs/stock runs/shared      each holds a run, grpo/
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from swift_vlrft.demo.training import reward_curve


def draw(stock: Path, shared: Path, target: Path) -> None:
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for folder, name, style in ((stock, "stock", "-"), (shared, "VLRFT_SHARED_PREFIX=1", "--")):
        rewards = reward_curve(folder / "grpo")
        axes.plot([*rewards], [*rewards.values()], style, label=name)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(target, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    here = Path(__file__).parents[1] / "dev" / "shared_prefix_curves.svg"
    draw(Path(sys.argv[1]), Path(sys.argv[2]), here)
