"""`vlrft demo --task zoom` over several seeds, beside the same trial without the tool.

    python benchmarks/zoom_seeds.py runs/zoom_seeds            # five seeds; goes on where it was
    python benchmarks/zoom_seeds.py runs/zoom_seeds --seeds 2

The seed draws other pictures and starts another model. Without the tool: the same pictures, no word
of the tool in the question, one turn, as many steps. Prints a table of the held-out pictures in
Markdown.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import replace
from pathlib import Path

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.rows import FORMAT, Row, stored
from swift_vlrft.demo.tasks import TASKS
from swift_vlrft.demo.training import reward_curve
from swift_vlrft.demo.trial import COVER, TrialConfig, run_trial
from swift_vlrft.report.curves import trailing_mean

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    print("| seed | tool | held-out accuracy | 95 % of the difference | coverage in training |")
    print("|---|---|---|---|---|")
    for seed in range(asked.seeds):
        for side in SIDES:
            folder = asked.out / f"{seed} {side}"
            if not (folder / "summary.json").exists():
                take(folder, seed, side)
            print("|", " | ".join([str(seed), side, *measured(folder)]), "|", flush=True)


if __name__ == "__main__":
    main()
