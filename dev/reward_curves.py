"""Draws rewards of runs as an SVG: steps pale, the mean of the latest tenth of them strong.

python dev/reward_curves.py docs/tutorial/own_data.svg runs/try/instances_train/grpo ...
"""

import sys
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from swift_vlrft.report.curves import trailing_mean
from swift_vlrft.report.run_log import read_run

if __name__ == "__main__":
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for run in map(Path, sys.argv[2:]):
        for name, points in read_run(run).series.items():
            if name.startswith("rewards/") and name.endswith("/mean"):
                steps, values = zip(*points, strict=True)
                (line,) = axes.plot(steps, [trailing_mean(values, n) for n in range(len(values))])
                line.set_label(" ".join((name.split("/")[1], *run.parent.parts[-1:])))
                axes.plot(steps, values, color=line.get_color(), alpha=0.3, linewidth=1)
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.05))
    axes.legend(loc="lower right")
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": ""}):
        figure.savefig(sys.argv[1], format="svg", metadata={"Date": None})
