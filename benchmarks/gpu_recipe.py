"""Run a recipe as it stands, a model of full size and random weights: planned and measured memory.

    python benchmarks/gpu_recipe.py recipes/qwen2_5_vl_3b/detection_lora_1x24g.sh
    python benchmarks/gpu_recipe.py RECIPE.sh --stock     then by ms-swift's own example, and ratios
    python benchmarks/gpu_recipe.py RECIPE.sh --tiny      the same on a CPU, with a tiny model

Needs ms-swift and what the recipe uses, neither network nor data: pictures are noise of 1024 x 768.
Answers are random text, so rewards mean nothing. Prints a JSON line a run: seconds of each step, of
its parts in the mean without the first step, and peaks of each phase beside the plan. It needs a
recipe of Qwen2.5-VL-3B. Flags behind it (`--sleep_level 2`) are for both runs.

With --stock the second run has the flags of ms-swift's example for Qwen2.5-VL (STOCK), and of ours
rewards, loader, and that no answer holds an image token; images, answers a step and their length
are the recipe's. A last line has the example's seconds by ours.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from swift_vlrft.recipe.reader import Recipe

REPOSITORY = Path(__file__).resolve().parents[1]
STOCK_PLUGIN = str(REPOSITORY / "benchmarks" / "stock_plugin.py")
SHORT = ("--add_version", "false", "--save_strategy", "no", "--report_to", "none")
STOCK_FILE = "modelscope/ms-swift examples/train/grpo/internal/vllm_vl7b.sh of d0c71e48"
STOCK = """
--rlhf_type grpo --tuner_type lora --load_from_cache_file true --use_vllm true
--vllm_mode colocate --vllm_gpu_memory_utilization 0.5 --vllm_tensor_parallel_size 1
--torch_dtype bfloat16 --num_train_epochs 1 --per_device_train_batch_size 1
--per_device_eval_batch_size 1 --learning_rate 1e-6 --save_total_limit 2 --warmup_ratio 0.05
--dataloader_num_workers 4 --sleep_level 1 --temperature 1.0 --top_p 0.85
"""
"""Its flags; of eight GPUs with one completion each, one GPU with eight micro-batches, so no tensor
parallelism, and no --system, whose text the rows have.
"""
PROBLEM = "Give bounding box and Confidence of each dog in the image in <answer> </answer>."


def write_rows(folder: Path, rows: int) -> None:
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


def stock(recipe: Recipe) -> list[str]:
    """Return ms-swift's command for the recipe's model and data, as its example has it."""
    a_step = ("per_device_train_batch_size", "gradient_accumulation_steps")
    count = math.prod(int(recipe.get(name) or 1) for name in a_step)
    same = {
        **{name: recipe.get(name) or "" for name in ("model", "dataset", "output_dir")},
        **{name: recipe.get(name) or "" for name in ("max_completion_length", "num_generations")},
        "gradient_accumulation_steps": str(count),
    }
    flags = ["--reward_funcs", *recipe.values("reward_funcs")]
    flags += [word for name, value in same.items() for word in (f"--{name}", value)]
    return ["swift", "rlhf", *STOCK.split(), *flags, "--external_plugins", STOCK_PLUGIN]


def run(
    path: Path, out: Path, steps: int, tiny: bool, by_stock: bool, flags: list[str]
) -> dict[str, Any]:
    from measured_memory import compared, read_run

    from swift_vlrft.memory.recipe_plan import plan_recipe
    from swift_vlrft.recipe.reader import only, read_recipes
    from swift_vlrft.report import run_log

    model, data, train = out / "model", out / "data", out / ("stock" if by_stock else "train")
    if not model.exists():
        full_size = [sys.executable, str(REPOSITORY / "benchmarks" / "full_size.py")]
        make = ["vlrft", "tiny", "qwen2_5_vl"] if tiny else full_size
        subprocess.run([*make, str(model)], check=True, stdout=sys.stderr)
    if not data.exists():
        write_rows(data, 8 if tiny else 48)
    paths = {"MODEL": model, "DATASET": data, "OUTPUT_DIR": train}
    variables = {name: str(path.resolve()) for name, path in paths.items()}
    variables["VLRFT_TRACK_MEMORY"] = "1"
    recipe = only(read_recipes(path, os.environ | variables))
    command = stock(recipe) if by_stock else ["bash", str(path)]
    command += [*SHORT, "--logging_steps", "1", "--max_steps", str(steps)]
    if tiny:  # what a CPU cannot do is overridden as the tests of the recipes do it
        sys.path.append(str(REPOSITORY / "tests"))
        from end_to_end.recipe_run import cpu_flags, environment
        from support.swift_run import ON_CPU

        ours = str(REPOSITORY / "plugins" / "vlrft.py")
        command += [STOCK_PLUGIN if by_stock and w == ours else w for w in cpu_flags(recipe, 1)]
        variables = ON_CPU | environment(recipe, **variables, NPROC_PER_NODE="1")
    if by_stock:
        variables |= {name: recipe.environment[name] for name in ("MAX_PIXELS", "NPROC_PER_NODE")}
    shutil.rmtree(train, ignore_errors=True)  # ms-swift would go on writing its log
    with (out / f"{train.name}.log").open("w") as log:
        done = subprocess.run(
            [*command, *flags], env=os.environ | variables, stdout=log, stderr=log
        )
    if done.returncode:
        print(log.name, *Path(log.name).read_text().splitlines()[-20:], sep="\n", file=sys.stderr)
        raise SystemExit(done.returncode)
    measured, series = read_run(train), run_log.read_run(train).series
    later = {name: points[1:] for name, points in series.items()}
    planned = plan_recipe(path, "1x80" if tiny else None, arguments=flags, dataset=data)
    return {
        "recipe": STOCK_FILE if by_stock else str(path),
        "flags": flags,
        "step_seconds": [value for _, value in series["step_time"]],
        "completion_tokens": [value for _, value in series["completions/mean_length"]],
        "parts": {part.name: round(part.seconds, 3) for part in run_log.parts_of(later)},
        "measured": measured,
        "compared": [] if by_stock else compared(planned.plan, measured),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_recipe"))
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    parser.add_argument("--stock", action="store_true", help="and ms-swift's example beside it")
    asked, flags = parser.parse_known_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    of_run = []
    for by_stock in (False, True)[: 1 + asked.stock]:
        of_run.append(run(asked.recipe, asked.out, asked.steps, asked.tiny, by_stock, flags))
        print(json.dumps(of_run[-1]), flush=True)
    if asked.stock:
        ours, stocks = ({**of["parts"], "step": sum(of["parts"].values())} for of in of_run)
        ratios = {name: round(stocks[name] / ours[name], 2) for name in ours if name in stocks}
        print(json.dumps({"stock / ours": ratios}))


if __name__ == "__main__":
    main()
