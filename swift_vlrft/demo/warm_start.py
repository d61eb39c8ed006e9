"""Teach a tiny model a set's answer format by `swift sft`: it guesses more often than it looks.

    write_warm_start("internvl", Path("data/mine"), Path("start"))

{"messages": [{"role": "user", "content": "<image>Find the dog."}, {"role": "assistant", "content":
"<think>I look at the image.</think><answer>[{'Position': [50, 0, 400, 950]}]</answer>"}], "images":
["start.making/images/5f0a"]}

A lesson is a row's own answer, boxes on a twentieth of the image, after the thought that the model
looks; or another row's answer, after the thought that it guesses. What is left for GRPO to find is
that looking pays.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format import native_format, with_numbers
from swift_vlrft.datasets.image import image_hash
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.row import POINT_TASKS
from swift_vlrft.datasets.training import LoadOptions, training_set
from swift_vlrft.demo.card import Card
from swift_vlrft.demo.training import flags_of, training
from swift_vlrft.families import known_family
from swift_vlrft.families.family import TinySize
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.files.environment import errors_only
from swift_vlrft.files.records import write_record
from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.geometry.box_format import FORMATS, Corners, Size, box_format
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.tiny.checkpoint import refuse_existing
from swift_vlrft.tiny.compact import SIZE, compact, write_compact

BATCH = 32
GUESSES = 0.25, 0.85
"""The share of guesses at first, and in the last quarter of the steps."""
RECORD = "warm_start.json"
"""The file of a start model's ``WarmStart``."""
LOOK, GUESS = "<think>I look at the image.</think>", "<think>I guess.</think>"
CELLS = 20
"""Cells of the grid, in each direction, on which boxes are learnt."""
LONGEST = 128
"""Tokens of an answer; a tiny model learns no longer one in minutes."""
FLAGS = {
    "tuner_type": "full",
    "freeze_vit": "false",
    "freeze_aligner": "false",
    "torch_dtype": "float32",
    "attn_impl": "sdpa",
    "per_device_train_batch_size": BATCH,
    "gradient_accumulation_steps": 1,
    "max_length": 2048,
    "gradient_checkpointing": "false",
    # Up for a tenth of the steps, then down to a quarter: what comes last is to be learnt, too.
    "warmup_ratio": 0.1,
    "lr_scheduler_type": "cosine_with_min_lr",
    "lr_scheduler_kwargs": '{"min_lr_rate": 0.25}',
    "weight_decay": 0,
    "adam_beta2": 0.98,
    "split_dataset_ratio": 0,
    "dataset_shuffle": "false",
    "train_dataloader_shuffle": "false",
    "dataloader_num_workers": 1,
    "logging_steps": 1,
    "save_steps": 100_000,
    "save_only_model": "true",
    "add_version": "false",
    "check_model": "false",
    "report_to": "none",
}
"""Flags of `swift sft` that are the same for every set."""
ON_CARD = {"torch_dtype": "bfloat16", "deepspeed": "zero2", "dataloader_num_workers": 4}
"""Those that differ on a GPU. DeepSpeed keeps 32-bit copies of the weights."""

Progress = Callable[[int, str], None]
"""A function of the steps done since its last call, and a note."""


class WarmStart(msgspec.Struct):
    """A start model's longest answer in tokens, the rows with a longer one, its parameters."""

    longest: int
    left_out: int
    parameters: int


def write_warm_start(
    family: str,
    data: Path,
    directory: Path,
    *,
    steps: int = 400,
    rate: float = 2e-3,
    side: int = 112,
    card: Card | None = None,
    seed: int = 0,
    progress: Progress = lambda steps, note: None,
) -> WarmStart:
    """Write a checkpoint of that family to ``directory``, which appears when it is trained.

    It sees images of about ``side`` x ``side`` pixels; it is trained on the ``card`` and as large
    as that allows. DataError or ValueError says what is wrong with the set or the family.
    """
    refuse_existing(directory)
    compact(known_family(family), side)  # a ValueError says that there is none
    os.environ["MAX_PIXELS"] = str(side**2)
    making = directory.absolute().with_name(f"{directory.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    with errors_only():
        count, size = steps * BATCH, card.size if card else SIZE
        start = write_lessons(family, data, making, count, side=side, size=size, seed=seed)
    flags = FLAGS | (ON_CARD if card else {})
    flags |= {
        "model": making / "random",
        "dataset": making / "lessons.jsonl",
        "output_dir": making / "sft",
        "external_plugins": shipped_file("plugins", "vlrft.py"),
        "max_steps": steps,
        "learning_rate": rate * (card.rate if card else 1),
        "seed": seed,
    }
    # One thread: the matrices are small, a second one waits more than it works.
    one_thread = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    variables = card.variables | {"NPROC_PER_NODE": "1"} if card else one_thread
    with training(["swift", "sft", *flags_of(flags)], making / "sft", **variables) as logged:
        for metrics in logged:
            progress(1, f"loss {metrics['loss']:.2f}")
    checkpoint = making / "sft" / f"checkpoint-{steps}"
    write_record(checkpoint / RECORD, start)
    checkpoint.rename(directory)
    shutil.rmtree(making)
    return start


def write_lessons(
    family: str,
    data: Path,
    folder: Path,
    count: int,
    *,
    side: int,
    size: TinySize = SIZE,
    seed: int = 0,
) -> WarmStart:
    """Write lessons and, beside them, a random model with the vocabulary of their texts.

    ``folder`` then holds lessons.jsonl, images and random.
    """
    dataset, box_format = _training_set(data, family)
    media = "videos" if "videos" in dataset.column_names else "images"
    rows = [*dataset.remove_columns(media)]
    answers = [_answer(row, box_format) for row in rows]
    prompts = [row["messages"][-1]["content"].replace(f"<{media[:-1]}>", "") for row in rows]
    texts = [thought + said for said in answers for thought in (LOOK, GUESS)]
    tokenizer, parameters = write_compact(
        family, folder / "random", prompts, texts, side=side, size=size, seed=seed
    )
    lengths = [len(tokenizer(LOOK + said)["input_ids"]) + 1 for said in answers]
    short = [n for n, length in enumerate(lengths) if length <= LONGEST]
    if not short:
        raise DataError(
            f"{data}: every answer takes more than {LONGEST} tokens, which no tiny model learns"
        )
    (folder / "images").mkdir(parents=True)
    images = [of if media == "videos" else _file(of, folder) for (of,) in dataset[media]]
    rng = random.Random(seed)
    with (folder / "lessons.jsonl").open("w", encoding="utf-8") as file:
        for n in range(count):
            number, guess = rng.choice(short), rng.random() < GUESSES[n >= 0.75 * count]
            shown, thought = (rng.choice(short), GUESS) if guess else (number, LOOK)
            answer = {"role": "assistant", "content": thought + answers[shown]}
            lesson = {"messages": [*rows[number]["messages"], answer], media: [images[number]]}
            file.write(json.dumps(lesson) + "\n")
    return WarmStart(max(lengths[n] for n in short), len(rows) - len(short), parameters)


def _file(image: dict[str, Any], folder: Path) -> str:
    """Return the path of an image; bytes go to a file, once."""
    if (content := image["bytes"]) is None:
        return str(image["path"])
    file = folder / "images" / image_hash(image)
    if not file.exists():
        file.write_bytes(content)
    return str(file)


def _training_set(data: Path, family: str) -> tuple[Any, str]:
    """Return the training rows as GRPO gets them, and the box format: the family's own."""
    images = known_family(family).images
    assert images is not None, "a compact model sees images"
    resize = ImageResize(family, *images.limits())
    box_format, key = native_format(str(data), known_family(family))
    options = LoadOptions(box_format=box_format, box_key=key, resize=resize)
    return training_set(open_set(data, split="train"), options)[0], box_format


def _answer(row: dict[str, Any], box_format: str) -> str:
    """Return the gold as the model is to write it: boxes on the grid, where there are fewer numbers
    to learn; the middles of the boxes where the row asks for points.
    """
    text = gold_text(row["solution"])
    if row["frame"]:
        text = _on_grid(text, box_format, (row.get("width") or 0, row.get("height") or 0))
    boxes = read_boxes(text)
    if row["task"] in POINT_TASKS and boxes is not None and boxes.boxes:
        middles = [((x1 + x2) / 2, (y1 + y2) / 2) for x1, y1, x2, y2 in filter(None, boxes.boxes)]
        decimals = FORMATS[box_format].decimals
        points = (f"[{x:.{decimals}f}, {y:.{decimals}f}]" for x, y in middles)
        text = f"[{', '.join(points)}]"
    return f"<answer>{text}</answer>"


def _on_grid(gold: str, name: str, size: Size) -> str:
    """Return the gold with its box edges on the grid over an image of ``size`` in pixels."""
    parsed, form = read_boxes(gold), box_format(name)
    if parsed is None or None in parsed.boxes or not parsed.boxes:
        return gold
    steps = [edge / CELLS for edge in form.edges(size)]

    def ends(low: float, high: float, step: float) -> tuple[float, float]:
        first = min(round(low / step), CELLS - 1)
        return first * step, max(round(high / step), first + 1) * step

    boxes: list[Corners | None] = []
    for x1, y1, x2, y2 in filter(None, parsed.boxes):
        (left, right), (top, bottom) = ends(x1, x2, steps[0]), ends(y1, y2, steps[1])
        boxes.append((left, top, right, bottom))
    return with_numbers(gold, boxes, form)
