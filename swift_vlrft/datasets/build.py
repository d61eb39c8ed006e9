"""COCO's instances become detection rows with boxes in norm1000: a row a picture, whose prompt asks
for every category, or, in ViRFT's form, a row for each category of a picture. That of instances.py:

    problem   "Detect all objects of these categories in the image: dog. ..."
    solution  "<answer>[{'Position': [100, 100, 600, 600], 'Confidence': 1,
                         'label': 'dog'}]</answer>"

Images that are ``unsure`` for a category that is asked for are left out, and counted: their gold
would be incomplete. A negative, gold "No Objects", is an image without what is asked for; in LVIS,
whose annotations cover only some categories of each image, only one that ``neg_category_ids`` lists
it for.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.image import image_path, image_size, size_problem, stored_image
from swift_vlrft.datasets.instances import Boxes, Instances, file_of, read_instances
from swift_vlrft.datasets.row import AnnotatedSize, BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.writer import Item, Written, write_folder
from swift_vlrft.geometry.readings import Reading

_HERE = Path(__file__)
CATEGORY_LISTS: dict[str, list[str]] = tomllib.loads(
    _HERE.with_name("category_lists.toml").read_text("utf-8")
)
"""Named lists of categories for ``--categories``."""
_PROMPTS = tomllib.loads(_HERE.with_name("detection_prompts.toml").read_text("utf-8"))
PROMPT: str = _PROMPTS["of_one_category"]
"""ViRFT's, with ``{category}``."""
NO_OBJECTS = "<answer>No Objects</answer>"
UNSURE_IMAGES = "images with a crowd region, a box without area or labels that are not in full"
EMPTY = "images without such a box (--negatives takes some)"


@dataclass(frozen=True)
class PlannedRow:
    """A row before its image is read: its categories, and its boxes with the category of each.

    Without boxes it is a negative.
    """

    image_id: Any
    names: Sequence[str]
    boxes: Boxes = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def chosen_categories(asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the categories for names and names of lists, given apart or with commas between."""
    names: list[str] = []
    for value in asked:
        for name in [value] if value in known else [part.strip() for part in value.split(",")]:
            names += CATEGORY_LISTS.get(name, (name,)) if name not in known else [name]
    names = list(dict.fromkeys(name for name in names if name))
    for name in names:
        if name not in known:
            more = f" and {len(known) - 100} more" if len(known) > 100 else ""
            raise DataError(
                f"--categories: {name!r} is neither a category of this file nor a list. "
                f"Lists: {', '.join(CATEGORY_LISTS)}; categories: {', '.join(known[:100])}{more}"
            )
    if not names:
        raise DataError(f"--categories names nothing; lists: {', '.join(CATEGORY_LISTS)}")
    return names


def plan_rows(
    instances: Instances,
    questions: Sequence[Sequence[str]],
    *,
    shots: int | None = None,
    negatives: float = 0.0,
    seed: int = 0,
) -> list[PlannedRow]:
    """Plan the rows to write, shuffled by ``seed``: for each question, the categories that a row
    asks for, a row of each image that holds some (of ``shots`` such images, unless None), and
    ``negatives`` rows, a share of these, spread over the questions.
    """
    if not 0 <= negatives < math.inf:
        raise DataError(f"--negatives {negatives}: give a share of the rows with boxes, from 0 up")
    if instances.absent is not None and any(len(names) > 1 for names in questions):
        raise DataError(
            f"{instances.path}: each image was labelled for some categories only "
            "(neg_category_ids), so no row can ask for all; use --per-category"
        )
    ids = {name: i for i, name in instances.categories.items()}
    unsure = {c: instances.unsure[i] for c, i in ids.items()}
    boxes = {c: instances.boxes[i] for c, i in ids.items()}
    rows: list[PlannedRow] = []
    for names in questions:
        doubtful = set().union(*(unsure[name] for name in names))
        held = dict.fromkeys(i for name in names for i in boxes[name])
        able = [i for i in held if i not in doubtful]
        instances.left_out[UNSURE_IMAGES] += len(doubtful)
        if shots is not None and len(able) < shots:
            instances.left_out[f"shots that {names[0]!r} lacks"] += shots - len(able)
        # A generator for each question: another category's choice does not change this one's.
        rng = random.Random(f"{seed} {' '.join(names)}")
        picked = able if shots is None else rng.sample(sorted(able, key=str), min(shots, len(able)))
        for i in picked:
            gold = [(box, name) for name in names for box in boxes[name].get(i, ())]
            rows.append(PlannedRow(i, names, [box for box, _ in gold], [name for _, name in gold]))
    asked = round(negatives * len(rows))
    rng = random.Random(f"{seed} negatives")
    lacking: list[list[tuple[Any, Sequence[str]]]] = []
    for names in rng.sample(questions, len(questions)) if asked or len(questions) == 1 else ():
        sure = instances.images if instances.absent is None else instances.absent[ids[names[0]]]
        holds = set().union(*(unsure[name] | boxes[name].keys() for name in names))
        empty = sorted((i for i in sure if i not in holds), key=str)
        picked = rng.sample(empty, min(asked, len(empty)))
        lacking.append([(i, names) for i in picked])
        instances.left_out[EMPTY] = len(empty) - len(picked) if len(questions) == 1 else 0
    spread = [pair for turn in zip_longest(*lacking) for pair in turn if pair is not None][:asked]
    instances.left_out["negatives that no image was left for"] += asked - len(spread)
    rows += [PlannedRow(*pair) for pair in spread]
    random.Random(f"{seed} order").shuffle(rows)
    return rows


def held_out(rows: Sequence[PlannedRow], share: float, seed: int = 0) -> set[Any]:
    """Choose the images of the test split: that share of the images with rows, at least one image,
    at most all but one. Their ids hash lowest, so that a file that grows keeps most of its split.

    DataError for a share that is none, and for rows of a single image.
    """
    images = {row.image_id for row in rows}
    if not 0 < share < 1:
        raise DataError(f"--held-out {share}: a share above 0 and below 1 is needed, such as 0.1")
    if len(images) < 2:
        raise DataError(f"--held-out {share}: only one image has rows, and cannot be split")
    order = sorted(images, key=lambda i: sha256(f"{seed} held out {i}".encode()).digest())
    return set(order[: min(max(round(share * len(images)), 1), len(images) - 1)])


def detection_row(
    image: Any, category: str | None, boxes: Boxes, labels: Sequence[str] = (), prompt: str = PROMPT
) -> dict[str, Any]:
    """Make a row with boxes in norm1000, each with its label if it has one; no boxes: "No Objects".
    A ``category`` is put into the prompt and a column; ValueError if its name is blank.
    """
    if any(not name.strip() for name in (*labels, "-" if category is None else category)):
        raise ValueError(f"a category of its {len(boxes)} boxes has a blank name; name it")
    gold: list[dict[str, Any]] = [{"Position": list(box), "Confidence": 1} for box in boxes]
    for entry, label in zip(gold, labels, strict=False):
        entry["label"] = label
    row = {
        "image": image,
        "problem": prompt,
        "solution": f"<answer>{gold}</answer>" if gold else NO_OBJECTS,
        "task": "detection",
        "frame": "norm1000",
    }
    if category is None:
        return row
    return row | {"problem": prompt.replace("{category}", category), "category": category}


def _built(instances: Instances, row: PlannedRow, images: Path, prompt: str) -> Item:
    """The row with its image; a BadRow where that is missing, broken or of another size than the
    annotations say. Boxes have labels unless the prompt is of one ``{category}``.
    """
    entry = instances.images[row.image_id]
    size = AnnotatedSize(entry["width"], entry["height"])
    single = "{category}" in prompt
    category, labels = (row.names[0], ()) if single else (None, row.labels)
    try:
        file = {"bytes": None, "path": str(image_path(file_of(entry), images, images))}
        shown = image_size(file)
        if problem := size_problem(file, shown, size):
            raise DataError(problem)
        image = stored_image(file, images, shown)
    except DataError as error:
        return BadRow(RowLocation(instances.path, row.image_id, "image"), str(error))
    item = detection_row(image, category, row.boxes, labels, prompt)
    return item | {"image_id": instances.column_of(row.image_id)}


def build_folder(
    instances: Path,
    images: Path,
    folder: Path,
    *,
    categories: Sequence[str] = (),
    per_category: bool = False,
    reading: Reading | None = None,
    shots: int | None = None,
    negatives: float = 0.0,
    held_out_share: float | None = None,
    seed: int = 0,
    split: str | None = None,
    keep_going: bool = False,
) -> Written:
    """Do what ``vlrft data coco`` does. ``counts`` of the result are the rows and boxes that were
    written, by split, and what else the annotations held.
    """
    if not images.is_dir():
        raise DataError(f"{images} is no folder; give the one that holds the images")
    if held_out_share is not None and split is not None:
        raise DataError("--held-out writes the splits train and test; leave --split out")
    if shots is not None and not per_category:
        raise DataError("--shots counts the images of each category; it needs --per-category")
    annotated = read_instances(instances, reading)
    known = list(annotated.categories.values())
    names = chosen_categories(categories, known) if categories else known
    several = _PROMPTS["of_several_categories"].replace("{categories}", ", ".join(names))
    text = PROMPT if per_category else several
    questions = [(name,) for name in names] if per_category else [tuple(names)]
    rows = plan_rows(annotated, questions, shots=shots, negatives=negatives, seed=seed)
    if not rows:
        raise DataError(f"{instances} holds no usable box of {', '.join(names[:10])}")
    splits = {split or "train": rows}
    if held_out_share is not None:
        test = held_out(rows, held_out_share, seed)
        splits = {
            "train": [row for row in rows if row.image_id not in test],
            "test": [row for row in rows if row.image_id in test],
        }
    counts: Counter[str] = Counter()

    def items(split: str, planned: list[PlannedRow]) -> Iterator[Item]:
        if split == next(iter(splits)):
            bad = annotated.bad.items()
            yield from (BadRow(RowLocation(instances, i, "image"), text) for i, text in bad)
        for row in planned:
            item = _built(annotated, row, images.absolute(), text)
            if not isinstance(item, BadRow):
                counts[f"rows with boxes in {split}"] += bool(row.boxes)
                counts[f'rows with gold "No Objects" in {split}'] += not row.boxes
                counts[f"boxes in {split}"] += len(row.boxes)
            yield item

    written = write_folder(
        folder,
        {name: items(name, planned) for name, planned in splits.items()},
        keep_going=keep_going,
        total=len(rows) if len(splits) == 1 else None,
    )
    written.counts = counts + annotated.left_out
    return written
