"""Writes docs/gallery.md and its pictures: what the commands print, and photographs of their pages.

    python dev/gallery.py

Runs every command that the page shows, in runs/gallery: the demo of detection (four minutes on
two cores), unless its results are there already. Needs chromium for the photographs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from swift_vlrft.files.writing import write_atomically

ROOT = Path(__file__).resolve().parents[1]
RUNS = Path("runs/gallery")
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
WIDTH, HEIGHT = 900, 1100
COLOURS = 64
RECIPE = "recipes/qwen2_5_vl_3b/detection_4x80g.sh"
BROKEN = RUNS / "train.sh"
SCRIPT = """swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct \\
    --dataset laolao77/ViRFT_COCO_base65:pixels --use_hf true \\
    --external_plugins "$(vlrft plugin)" --reward_funcs vlrft_detection_io vlrft_format \\
    --num_generations 8 --per_device_train_batch_size 3 --vllm_mode colocate
"""
DEMO = RUNS / "detection"


@dataclass(frozen=True)
class Part:
    title: str
    text: str
    command: str
    pictures: tuple[tuple[Path, str], ...] = ()
    """HTML pages or PNG files that the command wrote, and what they show."""
    before: str = ""
    """What the command reads, if that is short."""
    lines: int = 40
    """Of its output; the rest is cut, which the page says."""


PARTS = (
    Part(
        "A run that learns",
        "A tiny InternVL3 learns by GRPO to say where a shape is, on two CPU cores, here beside "
        "other work ([demo](demo.md)).",
        f"vlrft demo --task detection --out {RUNS}",
        (
            (DEMO / "reward.png", "Both rewards over the steps of the demo"),
            (DEMO / "answers.png", "Held-out images with the answers before and after"),
        ),
    ),
    Part(
        "The report of a run",
        "One HTML file without scripts: what ran, curves, evaluations, the answers that changed "
        "([evaluation](evaluation.md)).",
        f"vlrft report {DEMO}/grpo --eval {DEMO}/eval/before --eval {DEMO}/eval/after",
        ((DEMO / "grpo" / "report.html", "The top of the report of the demo"),),
    ),
    Part(
        "Is it better?",
        "Two evaluations of the same rows, with paired intervals.",
        f"vlrft compare {DEMO}/eval/before {DEMO}/eval/after",
    ),
    Part(
        "Will it fit?",
        "The memory of every phase before anything is downloaded ([plan](plan.md)).",
        f"vlrft plan {RECIPE} --gpus 4x24",
    ),
    Part(
        "What is wrong with my script?",
        "Read without running it ([recipes](recipes.md)).",
        f"vlrft check {BROKEN}",
        before=SCRIPT,
    ),
    Part(
        "Why did this answer get this score?",
        "The completions that ms-swift logs, and the reason of every lost point "
        "([rewards](rewards.md#why-is-my-reward-0)).",
        f"vlrft score {DEMO}/grpo/completions.jsonl --show 3",
    ),
)

HEAD = """# What it looks like

Every text and picture on this page was made by the command above it; `python dev/gallery.py`
runs them all and writes the page.
"""


def output_of(command: str) -> str:
    """What the command prints; exit code 1, a problem found, is a result as well."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        shlex.split(command), cwd=ROOT, capture_output=True, text=True, env=environment
    )
    if done.returncode > 1:
        raise SystemExit(f"{command}\n{done.stdout}{done.stderr}")
    # DeepSpeed writes its warning of a missing accelerator among the output.
    return "".join(line for line in done.stdout.splitlines(True) if "[WARNING]" not in line)


def photograph(page: Path, picture: Path) -> None:
    """A PNG of the top of a page, or a copy of a PNG, in few colours."""
    source = ROOT / page
    if page.suffix == ".html":
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            + [f"--screenshot={picture}", f"--window-size={WIDTH},{HEIGHT}", f"file://{source}"],
            check=True,
            capture_output=True,
        )
        source = picture
    with Image.open(source) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def section(part: Part) -> str:
    kept = ROOT / DEMO / "printed.txt"
    first = part is PARTS[0]
    printed = kept.read_text() if first and kept.exists() else output_of(part.command)
    if first:
        write_atomically(kept, printed)
    shown = [line.rstrip() for line in printed.replace(f"{ROOT}/", "").rstrip().splitlines()]
    left = len(shown) - part.lines
    shown = [*shown[: part.lines], f"... ({left} more lines)"] if left > 0 else shown
    blocks = [f"## {part.title}", part.text]
    if part.before:
        blocks += [f"```text\n{part.before}```"]
    blocks += [f"```bash\n{part.command}\n```", "```text\n" + "\n".join(shown) + "\n```"]
    for page, what in part.pictures:
        name = f"{page.parent.name}_{page.stem}.png"
        photograph(page, PICTURES / name)
        blocks.append(f"![{what}](gallery/{name})")
    return "\n\n".join(blocks) + "\n"


def main() -> None:
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir()
    (ROOT / RUNS).mkdir(parents=True, exist_ok=True)
    (ROOT / BROKEN).write_text(SCRIPT)
    write_atomically(PAGE, "\n".join([HEAD, *map(section, PARTS)]))


if __name__ == "__main__":
    main()
