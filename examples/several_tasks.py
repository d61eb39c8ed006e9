"""Several tasks in one run: a set whose rows name their task, and how many rows of each train.

    python examples/several_tasks.py runs/several_tasks

makes this folder and trains a tiny random Qwen3-VL there for two steps on a CPU, in about a minute.
It learns nothing, but shows the set, the command and what is logged of each task. Flags behind the
folder win over those here:

    python examples/several_tasks.py runs/several_tasks --model Qwen/Qwen3-VL-4B-Instruct \\
        --use_cpu false --torch_dtype bfloat16 --max_steps 100 --max_completion_length 512
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image, ImageDraw

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.tiny.checkpoint import write_tiny

ASKED = {
    "counting": "How many squares are there?",
    "detection": "Find the squares, as [[x1, y1, x2, y2], ...] from 0 to 1000.",
    "pointing": "Point at each square, as [[x, y], ...] from 0 to 1000.",
}
FORM = "Think in <think> </think>, then answer in <answer> </answer>."


def write_set(folder):
    """Each picture with a row for each task, as JSON Lines; images by their path from there."""
    with open(folder / "set.jsonl", "w") as out:
        for n in (1, 2, 3):
            image, boxes = Image.new("RGB", (112, 112), "gray"), []
            for x in range(8, 8 + 36 * n, 36):
                ImageDraw.Draw(image).rectangle((x, 42, x + 27, 69), fill="red")
                boxes.append([round(v / 0.112) for v in (x, 42, x + 28, 70)])
            image.save(folder / f"{n}.png")
            for task, solution in zip(ASKED, (n, boxes, boxes), strict=True):
                row = {"image": f"{n}.png", "problem": f"{ASKED[task]} {FORM}", "task": task}
                out.write(json.dumps(row | {"solution": f"<answer>{solution}</answer>"}) + "\n")


def main(folder, *flags):
    if folder.exists():
        raise ValueError(f"{folder} is there already; name a new folder")
    folder.mkdir(parents=True)
    write_set(folder)
    if "--model" not in flags:
        write_tiny("qwen3_vl", folder / "tiny")
        flags = ("--model", folder / "tiny", *flags)
    shares = {"counting": 4, "detection": 8, "pointing": 4}  # rows; a task with fewer repeats them
    rows = [f"{folder}/set.jsonl:{task}#{share}" for task, share in shares.items()]
    command = shlex.split("""--rlhf_type grpo --use_cpu true --torch_dtype float32 --beta 0
        --reward_funcs vlrft_counting vlrft_detection_f1 vlrft_pointing vlrft_format
        --tuner_type full --num_generations 4 --per_device_train_batch_size 4 --max_steps 2
        --gradient_accumulation_steps 4 --max_completion_length 8 --max_length 1024
        --logging_steps 1 --log_completions true --save_strategy no --add_version false""")
    command += ["--dataset", *rows, "--output_dir", folder / "run"]
    command += ["--external_plugins", shipped_file("plugins", "vlrft.py")]
    swift = Path(sys.executable).with_name("swift")
    if failed := subprocess.run([swift, "rlhf", *command, *flags]).returncode:
        sys.exit(failed)  # swift has said why
    for line in (folder / "run" / "logging.jsonl").read_text().splitlines():
        logged = {name: value for name, value in json.loads(line).items() if name.endswith("/mean")}
        if logged:
            print(logged)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        main(Path(sys.argv[1]), *sys.argv[2:])
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
