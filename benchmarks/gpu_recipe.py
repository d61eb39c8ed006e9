"""Run a recipe as it stands, a model of full size and random weights: planned and measured memory.

    python benchmarks/gpu_recipe.py recipes/qwen2_5_vl_3b/detection_lora_1x24g.sh
    python benchmarks/gpu_recipe.py RECIPE.sh --steps 2 --sleep_level 2 --beta 0
    python benchmarks/gpu_recipe.py RECIPE.sh --stock     the same by ms-swift's own trainer
    python benchmarks/gpu_recipe.py RECIPE.sh --tiny      the same on a CPU, with a tiny model

Needs ms-swift and what the recipe uses, neither network nor data: pictures are noise of 1024 x 768.
Answers are random text, so rewards mean nothing. Prints a JSON line: seconds of each step, of its
parts in the mean, and peaks of each phase beside the plan. It needs a recipe of Qwen2.5-VL-3B.
With --stock only rewards and loader are ours; flags of an example of ms-swift's go behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[1]
SHORT = ("--add_version", "false", "--save_strategy", "no", "--report_to", "none")
PROBLEM = "Give bounding box and Confidence of each dog in the image in <answer> </answer>."


def write_rows(folder: Path, rows: int = 48) -> None:
    """Write noise as large as photographs, so that an image takes all of MAX_PIXELS."""
    from swift_vlrft.datasets.writer import write_folder
    from swift_vlrft.demo.rows import Row, stored

    def made() -> list[dict[str, object]]:
        rng = random.Random(0)
        found = []
        for _ in range(rows):
            image = Image.effect_noise((1024, 768), 80).convert("RGB")
            box = [rng.randint(0, 400), rng.randint(0, 400), rng.randint(500, 999), 700]
            answer = f"<answer>[{{'Position': {box}, 'Confidence': 1}}]</answer>"
            found.append(stored(Row(image, PROBLEM, answer, {"frame": "norm1000"})))
        return found

    write_folder(folder, {"train": made()})


def run(
    recipe: Path, out: Path, steps: int, tiny: bool, stock: bool, flags: list[str]
) -> dict[str, object]:
    from measured_memory import compared, read_run

    from swift_vlrft.memory.recipe_plan import plan_recipe
    from swift_vlrft.report import run_log

    model, data, train = out / "model", out / "data", out / "train"
    if not model.exists():
        make = [sys.executable, str(REPOSITORY / "benchmarks" / "full_size.py"), str(model)]
        subprocess.run(["vlrft", "tiny", "qwen2_5_vl", str(model)] if tiny else make, check=True)
    if not data.exists():
        write_rows(data)
    given = [*SHORT, "--logging_steps", "1", "--max_steps", str(steps)]
    paths = {"MODEL": model, "DATASET": data, "OUTPUT_DIR": train}
    variables = {name: str(path.resolve()) for name, path in paths.items()}
    variables["VLRFT_TRACK_MEMORY"] = "1"
    if tiny:  # what a CPU cannot do is overridden as the tests of the recipes do it
        sys.path.append(str(REPOSITORY / "tests"))
        from end_to_end.recipe_run import cpu_flags, environment, read

        given += cpu_flags(read(recipe), 1)
        variables = environment(read(recipe), **variables, NPROC_PER_NODE="1")
    if stock:
        plugins = [REPOSITORY / "benchmarks" / "stock_plugin.py"]
        plugins += [REPOSITORY / "tests" / "support" / "cpu_engines.py"] * tiny
        given += ["--external_plugins", *map(str, plugins)]
        variables["VLRFT_SHARED_PREFIX"] = "0"
    given += flags
    os.environ.update(variables)
    with (out / "log.txt").open("w") as log:
        command = ["bash", str(recipe), *given]
        done = subprocess.run(command, stdout=log, stderr=log)
    if done.returncode:
        print(log.name, *Path(log.name).read_text().splitlines()[-20:], sep="\n", file=sys.stderr)
        raise SystemExit(done.returncode)
    measured, series = read_run(train), run_log.read_run(train).series
    lines = [json.loads(line) for line in (train / "logging.jsonl").read_text().splitlines()]
    planned = plan_recipe(recipe, "1x80" if tiny else None, arguments=flags, dataset=data)
    return {
        "recipe": str(recipe),
        "flags": flags,
        "stock": stock,
        "step_seconds": [line["step_time"] for line in lines if "step_time" in line],
        "parts": {part.name: part.seconds for part in run_log.parts_of(series)},
        "measured": measured,
        "compared": compared(planned.plan, measured),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_recipe"))
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    parser.add_argument("--stock", action="store_true", help="ms-swift's own trainer")
    asked, flags = parser.parse_known_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    print(json.dumps(run(asked.recipe, asked.out, asked.steps, asked.tiny, asked.stock, flags)))


if __name__ == "__main__":
    main()
