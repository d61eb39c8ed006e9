"""`vlrft demo --task zoom` over several seeds, beside the same trial without the tool.

    python benchmarks/zoom_seeds.py runs/zoom_seeds            # five seeds; goes on where it was
    python benchmarks/zoom_seeds.py runs/zoom_seeds --seeds 2

The seed draws other pictures and starts another model. Without the tool: the same pictures, no word
of the tool in the question, one turn, as many steps. Two trials run at a time, of one thread each.
Prints a table of the held-out pictures in Markdown, and draws the curves into docs/look_closer.png:
the median of the seeds, in a band from the lowest to the highest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median

from matplotlib.figure import Figure

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.rows import FORMAT, Row, stored
from swift_vlrft.demo.tasks import TASKS
from swift_vlrft.demo.training import reward_curve
from swift_vlrft.demo.trial import COVER, TrialConfig, run_trial
from swift_vlrft.report.curves import trailing_mean

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "look_closer.png"
ANSWER = "vlrft_classification"
COLOURS = ("#0072b2", "#d55e00")
SIDES = ("with the tool", "without")


def take(folder: Path, seed: int, side: str) -> None:
    task, rng, fields = TASKS["zoom"], random.Random(seed), dict(TASKS["zoom"].settings)
    rows = {"train": task.rows(rng, task.train), "test": task.rows(rng, task.test)}
    if side != SIDES[0]:
        rows = {split: [without_the_tool(row) for row in of] for split, of in rows.items()}
        del fields["max_turns"]
    data = folder.with_name(f"{folder.name} drawn")
    if not data.exists():
        write_folder(data, {split: map(stored, of) for split, of in rows.items()})
    run_trial(TrialConfig(str(data), seed=seed, **fields), folder)


def without_the_tool(row: Row) -> Row:
    columns = {name: value for name, value in row.columns.items() if name != "zoom_box"}
    return replace(row, problem=row.problem.partition(FORMAT)[0] + FORMAT, columns=columns)


def measured(folder: Path) -> list[str]:
    """Cells of the table: accuracy and coverage of the held-out pictures, before and after."""
    (task,) = json.loads((folder / "summary.json").read_text())["tasks"].values()
    of = {entry["metric"]: entry for entry in task["held_out"]}
    accuracy = next(entry for name, entry in of.items() if name != COVER)
    low, high = accuracy["difference_95"]
    cells = [f"{accuracy['before']:.2f} -> {accuracy['after']:.2f}", f"{low:+.2f} to {high:+.2f}"]
    cover = reward_curve(folder / "grpo", COVER)
    ends = [trailing_mean([*cover.values()], n) for n in (9, len(cover) - 1)] if cover else []
    return [*cells, f"{ends[0]:.2f} -> {ends[1]:.2f}" if ends else "-"]


def draw(folders: dict[str, list[Path]]) -> None:
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    shown = [(SIDES[0], ANSWER), (SIDES[0], COVER), (SIDES[1], ANSWER)]
    for (side, name), colour, style in zip(shown, COLOURS, ("-", "--", "-."), strict=False):
        runs = [reward_curve(folder / "grpo", name) for folder in folders[side]]
        steps = sorted(set.intersection(*map(set, runs)))
        smooth = [[trailing_mean([*run.values()], n) for n in range(len(steps))] for run in runs]
        by_step = list(zip(*smooth, strict=True))
        label = f"{name}, {side}"
        axes.plot(steps, [*map(median, by_step)], style, color=colour, linewidth=2, label=label)
        axes.fill_between(
            steps, [*map(min, by_step)], [*map(max, by_step)], color=colour, alpha=0.15
        )
    axes.axhline(0.25, color="#777777", linewidth=0.8, label="chance")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.44), frameon=False, fontsize=8)
    axes.set(xlabel="GRPO step", ylabel="mean reward of the sampled answers", ylim=(0, 1.05))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(PICTURE, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("SEED", "SIDE"), help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.one:
        seed, side = asked.one
        take(asked.out / f"{seed} {side}", int(seed), side)
        return

    def of(seed: int, side: str) -> Path:
        folder: Path = asked.out / f"{seed} {side}"
        if not (folder / "summary.json").exists():
            # -P: beside this file lies a datasets.py.
            command = [sys.executable, "-P", __file__, str(asked.out), "--one", str(seed), side]
            with (asked.out / f"{folder.name}.log").open("w") as log:
                environment = os.environ | {"OMP_NUM_THREADS": "1"}
                subprocess.run(command, check=True, env=environment, stdout=log, stderr=log)
        return folder

    pairs = [(seed, side) for seed in range(asked.seeds) for side in SIDES]
    with ThreadPoolExecutor(2) as pool:
        done = dict(zip(pairs, pool.map(lambda pair: of(*pair), pairs), strict=True))
    print("| seed | tool | held-out accuracy | 95 % of the difference | coverage in training |")
    print("|---|---|---|---|---|")
    for (seed, side), folder in done.items():
        print("|", " | ".join([str(seed), side, *measured(folder)]), "|")
    draw({side: [done[seed, side] for seed in range(asked.seeds)] for side in SIDES})


if __name__ == "__main__":
    main()
