"""Train a tiny start model: it writes the format, and guesses more often than it looks.

    write_warm_start("internvl", Path("data/mine"), Path("start"))

Its vocabulary is made from the set: what stands in many prompts or answers is one token, so that an
answer with one box takes nine. Supervised, with ms-swift's template, in two parts: on the golds,
boxes rounded to a twentieth of the image, behind the thought that it looks; then mostly on answers
of other rows, behind the thought that it guesses. What is left for GRPO to find is that looking
pays.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.box_format import on_grid
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.row import POINT_TASKS
from swift_vlrft.datasets.training import LoadOptions, training_set
from swift_vlrft.families import known_family
from swift_vlrft.families.family import TinySize
from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.swift_plugin.command_line import CommandLine
from swift_vlrft.swift_plugin.loader import CACHE
from swift_vlrft.swift_plugin.model import register_model_of, wanted_box_format
from swift_vlrft.swift_plugin.zoom import opened
from swift_vlrft.tiny import checkpoint
from swift_vlrft.tiny.start import Start
from swift_vlrft.zoom.calls import Call, call_of, read_call
from swift_vlrft.zoom.cover import cover, one_box
from swift_vlrft.zoom.crops import PICTURE, cut, shown, thousandths

SIZE = TinySize(hidden=128)
SIDE = 112
"""Of the images as the model sees them, about, in pixels."""
BATCH = 32
GUESSES = 0.25, 0.8
"""The share of guesses at first, and in the last quarter of the steps."""
LOOK, GUESS = "<think>I look at the image.</think>", "<think>I guess.</think>"
SEEN = 0.5
"""What ``vlrft_zoom_cover`` gives a crop in which the answer can be read."""
CELLS = 20
"""Of the grid, in each direction, on which boxes are learnt."""
LONGEST = 128
"""Tokens of an answer; a tiny model learns no longer one in minutes."""
_NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])"

Progress = Callable[[int, str], None]
"""Takes the steps done, and a note."""


def write_warm_start(
    name: str,
    data: Path,
    directory: Path,
    *,
    steps: int = 400,
    rate: float = 2e-3,
    side: int = SIDE,
    seed: int = 0,
    progress: Progress = lambda step, note: None,
) -> Start:
    """Write the checkpoint of that family to ``directory``, which must not exist yet and appears
    when it is trained. DataError or ValueError says what is wrong with the set or the family.
    """
    import torch

    checkpoint.refuse_existing(directory)
    family = known_family(name)
    os.environ["MAX_PIXELS"] = str(side**2)
    tiny = checkpoint.compact(family, side)
    rows, box_format = _rows(data, name)
    golds = [_answer(row, box_format) for row in rows.remove_columns("images")]
    if len(set(golds)) == 1:
        raise DataError(f"{data}: all {len(golds)} rows have the same answer: {golds[0]!r}")
    prompts = [turns[-1]["content"].replace("<image>", "") for turns in rows["messages"]]
    calls = _calls(rows, box_format, data)
    ends = [*golds, *filter(None, calls)]
    texts = [thought + end for end in ends for thought in (LOOK, GUESS)]
    whole = whole_texts(prompts, texts)
    corpus = [*checkpoint.DEFAULT_CORPUS, "user assistant system", *prompts, *texts]
    tokenizer = checkpoint.build_tokenizer(tiny, corpus, whole)
    tiny = replace(tiny, vocabulary=-(-(max(tokenizer.get_vocab().values()) + 1) // 64) * 64)
    model = checkpoint.build_model(tiny, SIZE, seed=seed)
    # ms-swift would look for the image of an image token that the model wrote.
    marks = tiny.special_ids.keys() - {tiny.eos, *checkpoint.TAGS}
    model.generation_config.update(suppress_tokens=sorted(tiny.special_ids[mark] for mark in marks))
    chat = next(iter(family.templates))
    making = directory.with_name(f"{directory.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    checkpoint.save_checkpoint(model, tokenizer, tiny, chat, making, family)
    model, template = _opened(making, name)
    examples, lengths = _examples(template, rows, golds, calls, box_format, random.Random(seed))
    if not examples:
        raise DataError(
            f"{data}: every answer takes more than {LONGEST} tokens, which no tiny model learns"
        )
    # Optimizer states of tokens that no row has fall below what a float holds, where a CPU is slow.
    torch.set_flush_denormal(True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small operations: a second thread waits more than it works
    template.register_post_encode_hook([model])
    try:
        _train(model, template, examples, steps, rate, seed, progress)
    finally:
        template.remove_post_encode_hook()
        torch.set_num_threads(threads)
    checkpoint.save_weights(model, making)
    making.rename(directory)
    return Start(max(lengths), len(golds) - len(examples), model.num_parameters())


def _rows(data: Path, name: str) -> tuple[Any, str]:
    """The set's training rows as GRPO gets them, and the box format: the family's own."""
    box_format, key, resize = wanted_box_format(CommandLine(model_type=name), "native", str(data))
    options = LoadOptions(cache=CACHE, box_format=box_format, box_key=key, resize=resize)
    splits = splits_of(data)
    stored = open_set(data, split="train" if "train" in splits else splits[0], keep_going=True)
    return training_set(stored, options)[0], box_format


def whole_texts(prompts: Sequence[str], golds: Sequence[str]) -> list[str]:
    """Return the texts that become one token: sentences of a fiftieth of the prompts, and what
    stands between the numbers of three answers or more.
    """
    sentences = Counter(
        text for prompt in prompts for text in set(re.findall(r"[^.?!\n]+[.?!\n]*", prompt))
    )
    between = Counter(text for gold in golds for text in set(re.split(_NUMBER, gold)))
    often = [text for text, n in sentences.most_common(200) if n >= max(3, 0.02 * len(prompts))]
    parts = [text for text, n in between.most_common(200) if n >= 3 and len(text) > 1]
    return [*parts, *often]


def _answer(row: dict[str, Any], box_format: str) -> str:
    """The row's gold as the model is to write it: boxes on a grid, where there are fewer numbers to
    learn; the middles of the boxes where the row asks for points.
    """
    size = (row.get("width") or 0, row.get("height") or 0)
    gold = on_grid(row["solution"], box_format, size, CELLS) if row["frame"] else row["solution"]
    text, boxes = gold_text(gold), read_boxes(gold_text(gold))
    if row["task"] in POINT_TASKS and boxes is not None and boxes.boxes:
        middles = [((x1 + x2) / 2, (y1 + y2) / 2) for x1, y1, x2, y2 in filter(None, boxes.boxes)]
        decimals = FORMATS[box_format].decimals
        points = (f"[{x:.{decimals}f}, {y:.{decimals}f}]" for x, y in middles)
        text = f"[{', '.join(points)}]"
    return f"<answer>{text}</answer>"


def _opened(directory: Path, name: str) -> tuple[Any, Any]:
    """Model and template as ms-swift makes them."""
    import torch
    from swift.model import get_model_processor
    from swift.template import get_template

    register_model_of(CommandLine(model=str(directory), model_type=name))
    model, processor = get_model_processor(str(directory), torch_dtype=torch.float32)
    template = get_template(processor)
    template.set_mode("train")
    template.model = model
    return model, template


def _calls(rows: Any, box_format: str, data: Path) -> list[str]:
    """The call by which each row's box is looked at, on the grid, in the model's box format; empty
    for rows with nothing to look at.
    """
    if "zoom_box" not in rows.column_names:
        return [""] * len(rows)
    form = FORMATS[box_format]
    if form.scale is None or form.key:
        raise DataError(
            f"{data}: rows with zoom_box need a family that writes bbox_2d in thousandths"
        )
    calls, grid = [], 1000 / CELLS
    for value in rows["zoom_box"]:
        calls.append("")
        if (box := one_box(value)) is not None:
            x1, y1, x2, y2 = (min(CELLS, round(side / grid)) for side in box)
            cells = min(x1, CELLS - 1), min(y1, CELLS - 1), max(x2, x1 + 1), max(y2, y1 + 1)
            numbers = ", ".join(f"{cell * form.scale / CELLS:g}" for cell in cells)
            calls[-1] = call_of(numbers)
    return calls


def _looked(row: Any, call: str, box_format: str, gold: str, guess: str) -> dict[str, Any]:
    """The row with the turns of ``call``: the right answer where its crop shows what is to be seen,
    else a guess.
    """
    called, target = read_call(call), one_box(row["zoom_box"])
    assert isinstance(called, Call) and target is not None
    picture = opened(row["images"][0])
    part = cut(called.box, picture.size, box_format)
    assert part is not None
    seen = cover(thousandths(part, picture.size), target) >= SEEN
    turns = ["assistant", call], ["user", PICTURE], ["assistant", LOOK + gold if seen else guess]
    messages = [{"role": role, "content": text} for role, text in turns]
    crop = {"bytes": shown(picture, part), "path": None}
    return {"messages": [*row["messages"], *messages], "images": [*row["images"], crop]}


def _examples(
    template: Any,
    rows: Any,
    golds: Sequence[str],
    calls: Sequence[str],
    box_format: str,
    rng: random.Random,
) -> tuple[list[tuple[Any, Any]], list[int]]:
    """Each row with its own answer and with another row's, encoded once, and the lengths of the
    answers; rows with a long answer are left out. Where there is something to look at, the call of
    the tool is the row's own or another row's.
    """
    examples, lengths = [], []
    every = [call for call in calls if call]
    for row, gold, call in zip(rows, golds, calls, strict=True):
        guess, pair = GUESS + rng.choice(golds), []
        another = rng.choice(every) if every else ""
        for answer, said in ((LOOK + gold, LOOK + call), (guess, GUESS + another)):
            if call:
                example = _looked(row, said, box_format, gold, guess)
            else:
                messages = [*row["messages"], {"role": "assistant", "content": answer}]
                example = {"messages": messages, "images": row["images"]}
            pair.append(template.encode(example))
        length = sum(label != -100 for label in pair[0]["labels"])
        if length <= LONGEST:
            examples.append((pair[0], pair[1]))
            lengths.append(length)
    return examples, lengths


def _train(
    model: Any,
    template: Any,
    examples: Sequence[tuple[Any, Any]],
    steps: int,
    rate: float,
    seed: int,
    progress: Progress,
) -> None:
    import torch
    from torch.nn import functional as F

    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, betas=(0.9, 0.98))
    # Up for a tenth of the steps, then down to a quarter: what comes last is to be learnt, too.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 10 * (step + 1) / steps) * (1 - 0.75 * step / steps)
    )
    model.train()
    for step in range(steps):
        guesses = GUESSES[step >= 0.75 * steps]
        picked = rng.sample(examples, min(BATCH, len(examples)))
        batch = template.data_collator([dict(pair[rng.random() < guesses]) for pair in picked])
        labels = batch.pop("labels")[:, 1:]
        wanted = labels != -100
        logits = model(**batch, use_cache=False).logits[:, :-1]
        loss = F.cross_entropy(logits[wanted], labels[wanted])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        progress(step + 1, f"loss {loss.item():.2f}")
