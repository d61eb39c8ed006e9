"""Run `vlrft try` on two detection sets over several seeds: held-out AP before and after.

    python benchmarks/trial_seeds.py runs/trial_seeds                    # on a GPU if one is free
    python benchmarks/trial_seeds.py runs/trial_seeds --tiny             # a rehearsal on the CPU

drawn    one shape, 112 x 112, 2,000 rows
coins    windows of scikit-image's photograph of coins, 77 x 77; no pixel of its lowest row of coins
         is trained on

Held out is the split test of each set, which the trial does not look at.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[1]))
from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.rows import FORMAT, Row, stored
from swift_vlrft.demo.trial import TrialConfig, run_trial
from swift_vlrft.evaluation.compare import Comparison, compare_runs
from tests.support.drawn_rows import boxed_rows

FAMILY = "qwen2_5_vl"
SETS = ("drawn", "coins")
WINDOW = 77  # pixels: the largest coin is 65 wide, the held-out part 78 high
CUT = 225  # the row of pixels between the third and the fourth row of coins
BOXES = [
    *((305, 16, 365, 72), (132, 28, 179, 74), (192, 30, 240, 73), (255, 34, 297, 72)),
    *((22, 35, 67, 74), (81, 39, 120, 74), (245, 95, 296, 144), (25, 104, 67, 145)),
    *((186, 105, 226, 144), (317, 106, 356, 145), (84, 108, 122, 145), (134, 110, 173, 145)),
    *((315, 156, 380, 218), (189, 170, 237, 217), (251, 172, 297, 217), (80, 175, 124, 217)),
    *((26, 179, 63, 217), (135, 179, 174, 217), (18, 233, 75, 288), (144, 236, 201, 288)),
    *((276, 239, 326, 289), (220, 240, 269, 288), (93, 245, 136, 287), (336, 248, 382, 289)),
]
"""A box per coin, in pixels: a watershed between darker than 30 and brighter than 150."""
PROBLEM = f"Find the coin that is whole, in coordinates from 0 to 1000. {FORMAT}"


def coin_rows(rng: random.Random, n: int, top: int, bottom: int) -> list[Row]:
    """Windows of one whole coin, between two rows of pixels."""
    from skimage.data import coins

    image, rows = Image.fromarray(coins()), list[Row]()
    while len(rows) < n:
        x, y = rng.randint(0, image.width - WINDOW), rng.randint(top, bottom - WINDOW)
        moved = [(left - x, up - y, right - x, down - y) for left, up, right, down in BOXES]
        inside = [box for box in moved if min(box) >= 0 and max(box) <= WINDOW]
        if len(inside) == 1:
            box = [round(1000 * side / WINDOW) for side in inside[0]]
            window = image.crop((x, y, x + WINDOW, y + WINDOW)).convert("RGB")
            answer = f"<answer>[{{'Position': {box}, 'Confidence': 1}}]</answer>"
            rows.append(Row(window, PROBLEM, answer))
    return rows


def write_set(name: str, folder: Path, seed: int, rows: int) -> None:
    rng, held_out = random.Random(seed), rows // 5
    if name == "coins":
        train, test = coin_rows(rng, rows, 0, CUT), coin_rows(rng, held_out, CUT, 303)
    else:
        train, test = boxed_rows(rng, rows), boxed_rows(rng, held_out)
    halves = {"train": train, "test": test}
    task = {"task": "detection", "frame": "norm1000"}
    write_folder(folder, {half: [stored(row) | task for row in halves[half]] for half in halves})


def held_out(data: Path, trial: Path, said: dict[str, Any]) -> Comparison:
    """Compare start model and trained one on the split test."""
    models = {"before": trial / "start", "after": trial / "grpo" / f"checkpoint-{said['steps']}"}
    asked = "--task detection --split test --engine transformers --batch-size 64 --max-tokens 64"
    os.environ["MAX_PIXELS"] = str(said["side"] ** 2)
    for side, model in models.items():
        command = ["vlrft", "eval", str(model), f"{data}:native", *asked.split()]
        command += ["--out", str(trial / "held_out" / side)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return compare_runs(*(trial / "held_out" / side for side in models))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="two steps on the CPU, one seed")
    asked = parser.parse_args()
    print("| set | seed | device | held-out AP | 95 % of the difference | seconds |")
    print("|---|---|---|---|---|---|")
    for name in asked.sets:
        for seed in range(1 if asked.tiny else asked.seeds):
            data, out = (asked.out / kind / f"{name}-{seed}" for kind in ("data", "trial"))
            if not data.exists():
                write_set(name, data, seed, 60 if asked.tiny else 2000)
            if asked.tiny:
                run_trial(TrialConfig(str(data), FAMILY, steps=2, warm_steps=4), out)
            elif not (out / "summary.json").exists():
                command = ["vlrft", "try", str(data), "--family", FAMILY]
                subprocess.run([*command, "--out", str(out)], check=True)
            said = json.loads((out / "summary.json").read_text())
            of = held_out(data, out, said).metrics["AP"]
            cells = [name, seed, said["device"], f"{of.a or 0:.3f} -> {of.b or 0:.3f}"]
            cells += [f"{of.low:+.3f} to {of.high:+.3f}", said["seconds"]]
            print("|", " | ".join(map(str, cells)), "|", flush=True)


if __name__ == "__main__":
    main()
