"""COCO's instances become ViRFT rows: one category a prompt, boxes in norm1000.

    in    {"images": [{"id": 9, "file_name": "9.jpg", "width": 640, "height": 480}],
           "categories": [{"id": 18, "name": "dog"}],
           "annotations": [{"image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}]}
    out   problem   "Detect all objects belonging to the category 'dog' in the image, and ..."
          solution  "<answer>[{'Position': [100, 100, 600, 600], 'Confidence': 1}]</answer>"

Images whose gold would be incomplete are left out, and counted: those where a crowd region or a box
without area stands for the category, or where LVIS did not label every one. A negative, gold "No
Objects", is an image without the category; in LVIS, whose annotations cover only some categories of
each image, only one that ``neg_category_ids`` lists it for.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.box_format import in_box_format
from swift_vlrft.datasets.image import image_path, size_problem, stored_image
from swift_vlrft.datasets.instances import (
    Boxes,
    Instances,
    file_of,
    not_exhaustive,
    read_instances,
    refuse_shared_files,
)
from swift_vlrft.datasets.row import BadRow, Drawn, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.writer import Item, Written, write_folder

CATEGORY_LISTS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("category_lists.toml").read_text("utf-8")
)
"""Named lists of categories for ``--categories``."""

# The prompt of the ViRFT detection sets (Visual-RFT, arXiv 2503.01785, table of prompts, and
# coco_evaluation/Qwen2_VL_coco_infere.py), word by word, so that the sets can be mixed.
PROMPT = (
    "Detect all objects belonging to the category '{category}' in the image, and provide the "
    "bounding boxes (between 0 and 1000, integer) and confidence (between 0 and 1, with two "
    "decimal places).\n"
    "If no object belonging to the category '{category}' in the image, return 'No Objects'.\n"
    "Output the thinking process in <think> </think> and final answer in <answer> </answer> tags."
    "The output answer format should be as follows:\n"
    "<think> ... </think> <answer>[{{'Position': [x1, y1, x2, y2], 'Confidence': number}}, ...]"
    "</answer>\n"
    "Please strictly follow the format."
)
NO_OBJECTS = "<answer>No Objects</answer>"


@dataclass(frozen=True)
class PlannedRow:
    """A row before its image is read; no boxes: a negative."""

    image_id: Any
    category: str
    boxes: Boxes


def chosen_categories(asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """Category names for names and names of lists, given apart or with commas between."""
    import difflib

    names: list[str] = []
    for value in asked:
        for name in [value] if value in known else [part.strip() for part in value.split(",")]:
            names += CATEGORY_LISTS.get(name, (name,)) if name not in known else [name]
    names = list(dict.fromkeys(name for name in names if name))
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *CATEGORY_LISTS], n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            more = f" and {len(known) - 100} more" if len(known) > 100 else ""
            raise DataError(
                f"--categories: {name!r} is no category of this file and no named list.{hint}\n"
                f"  lists: {', '.join(CATEGORY_LISTS)}\n"
                f"  categories: {', '.join(known[:100])}{more}"
            )
    if not names:
        raise DataError(f"--categories names nothing; lists: {', '.join(CATEGORY_LISTS)}")
    return names


def plan_rows(
    found: Instances,
    categories: Sequence[str],
    *,
    shots: int | None = None,
    negatives: float = 0.1,
    seed: int = 0,
) -> list[PlannedRow]:
    """The rows to write, shuffled by ``seed``: per category ``shots`` images (all, if None), and
    one negative for every ``1 / negatives`` rows with boxes, spread evenly over the categories.
    """
    if not 0 <= negatives < math.inf:
        raise DataError(f"--negatives {negatives}: a share of the rows with boxes is needed")
    refuse_shared_files(found)
    ids = {name: i for i, name in found.categories.items()}
    rows: list[PlannedRow] = []
    for name in categories:
        category = ids[name]
        able = [i for i in found.boxes[category] if i not in found.unsure[category]]
        found.left_out["images with a crowd region or a box without area"] += len(
            [i for i in found.unsure[category] if not not_exhaustive(found.images[i], category)]
        )
        if shots is not None and len(able) < shots:
            found.left_out[f"shots that {name!r} lacks"] += shots - len(able)
        # One generator per category: another category's choice does not change this one's.
        rng = random.Random(f"{seed} {name}")
        picked = able if shots is None else rng.sample(sorted(able, key=str), min(shots, len(able)))
        rows += [PlannedRow(i, name, found.boxes[category][i]) for i in picked]
    rows += _negatives(found, categories, round(negatives * len(rows)), ids, seed)
    random.Random(f"{seed} order").shuffle(rows)
    return rows


def _negatives(
    found: Instances, categories: Sequence[str], count: int, ids: dict[str, Any], seed: int
) -> Iterator[PlannedRow]:
    order = list(categories)
    random.Random(f"{seed} negatives").shuffle(order)
    lacking: dict[str, list[Any]] = {}
    for name in cycle(order):
        if count <= 0:
            return
        if name not in lacking:
            category = ids[name]
            holds = found.unsure[category] | found.boxes[category].keys()
            sure = found.images if found.absent is None else found.absent[category]
            able = sorted((i for i in sure if i not in holds), key=str)
            rng = random.Random(f"{seed} negatives of {name}")
            lacking[name] = rng.sample(able, min(count, len(able)))
        if lacking[name]:
            yield PlannedRow(lacking[name].pop(), name, [])
            count -= 1
        elif len(lacking) == len(order) and not any(lacking.values()):
            found.left_out["negatives that could not be had"] += count
            return


def detection_row(image: Any, category: str, boxes: Boxes) -> dict[str, Any]:
    """A ViRFT row: the prompt for one category, and its boxes in norm1000; none: "No Objects".
    ValueError for a category without a name.
    """
    if not category.strip():
        raise ValueError(f"the category of {len(boxes)} boxes has the name {category!r}; name it")
    gold = [{"Position": list(box), "Confidence": 1} for box in boxes]
    return {
        "image": image,
        "problem": PROMPT.format(category=category),
        "solution": f"<answer>{gold}</answer>" if gold else NO_OBJECTS,
        "task": "detection",
        "frame": "norm1000",
        "category": category,
    }


def built_rows(
    found: Instances,
    rows: Sequence[PlannedRow],
    images: Path,
    box_format: str = "norm1000",
    key: str | None = None,
) -> Iterator[Item]:
    """The planned rows with their images, boxes in that format (pixels: of the image, as it is
    stored) and under ``key`` if it is given; a BadRow where a file is missing, broken or of another
    size than the annotations say.
    """
    folder = images.absolute()
    for row in rows:
        entry = found.images[row.image_id]
        size = Drawn(entry["width"], entry["height"])
        try:
            path = image_path(file_of(entry) or "", folder, folder)
            image, info = stored_image({"bytes": None, "path": str(path)}, folder)
            if problem := size_problem({"path": str(path)}, info, size):
                raise DataError(problem)
        except DataError as error:
            yield BadRow(RowLocation(found.path, row.image_id, "image"), str(error))
        else:
            made = detection_row(image, row.category, row.boxes)
            sides = info.width, info.height
            made["problem"], made["solution"] = in_box_format(
                made["problem"], made["solution"], made["frame"], box_format,
                size=sides, to_size=sides, key=key,
            )  # fmt: skip
            made["frame"] = box_format
            yield made | {"image_id": found.column_of(row.image_id)}


def build_folder(
    instances: Path,
    images: Path,
    folder: Path,
    *,
    categories: Sequence[str],
    shots: int | None = None,
    negatives: float = 0.1,
    seed: int = 0,
    split: str = "train",
    box_format: str = "norm1000",
    box_key: str | None = None,
    keep_going: bool = False,
) -> Written:
    """What ``vlrft data coco`` does; ``counts`` of what is returned are rows planned, and what the
    annotations held besides.
    """
    if not images.is_dir():
        raise DataError(f"{images} is no folder; give the one that holds the images")
    found = read_instances(instances)
    names = chosen_categories(categories, list(found.categories.values()))
    rows = plan_rows(found, names, shots=shots, negatives=negatives, seed=seed)
    if not rows:
        raise DataError(f"{instances} holds no usable box of {', '.join(names[:10])}")
    with_boxes = sum(bool(row.boxes) for row in rows)
    written = write_folder(
        folder,
        {split: built_rows(found, rows, images, box_format, box_key)},
        keep_going=keep_going,
        total=len(rows),
    )
    written.counts["rows with boxes planned"] = with_boxes
    written.counts['rows with gold "No Objects" planned'] = len(rows) - with_boxes
    written.counts += found.left_out
    return written
