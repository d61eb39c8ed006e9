"""Data sets of every schema: JSON, JSON Lines, Parquet, COCO; checked, converted, read again."""

# ruff: noqa: E501 - rows of a table stay on one line

import base64
import io
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz import mutate, rewards
from fuzz.completions import json_line
from fuzz.target import clean, refused
from support.stored_sets import picture

from swift_vlrft.commands.output import printable
from swift_vlrft.datasets import BadRow, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.row import RowLocation

SECONDS, SHARE = 60.0, 1
ROWS = 40
NAMES = [f"{n}.png" for n in range(3)]


@cache
def url() -> str:
    return "data:image/png;base64," + base64.b64encode(picture()).decode()


def virft(rng: random.Random) -> dict[str, Any]:
    task = rng.choice(list(rewards.GOLDS))
    row = {
        "image": rng.choice([*NAMES, NAMES[0], url()]),
        "problem": "Detect all dogs (between 0 and 1000, integer).",
        "solution": f"<answer>{rng.choice(rewards.GOLDS[task])}</answer>",
    }
    if rng.random() < 0.7:
        row |= {"task": task, "frame": rng.choice(["norm1000", "pixels", "unit", "yx1000", None])}
    if rng.random() < 0.2:
        row |= {"width": 40, "height": 20, "note": "a", "aliases": ["b"], "tolerance": 0.1}
    return row


def turns(who: tuple[str, str], question: str, answer: str) -> list[dict[str, str]]:
    return [{"from": who[0], "value": question}, {"from": who[1], "value": answer}]


LISA = f"<img>{NAMES[0]}</img>\n Output the bounding box in the image corresponding to the instruction: x"
SINGLE: dict[str, Callable[[int], dict[str, Any]]] = {
    "rec": lambda n: {
        "id": n,
        "image": NAMES[n % 3],
        "conversations": turns(("human", "gpt"), "<image>Where is the lady?", "[10, 3, 30, 18]"),
    },
}
"""Every record is one row, as those of ``virft`` are."""
FORMS = SINGLE | {
    "lisa": lambda n: {
        "image_path": NAMES[n % 3],
        "instruction": ["the thing", "it"],
        "boxes": [[1.0, 2.0, 30.0, 18.0]],
    },
    "lisa turns": lambda n: {
        "id": f"lisa_{n}",
        "conversations": turns(("user", "assistant"), LISA, "(184,83),(628,772)"),
    },
}


def coco(rng: random.Random) -> dict[str, Any]:
    images = [
        {"id": n, "file_name": NAMES[n % 3], "width": 40, "height": 20}
        for n in range(rng.randint(1, 12))
    ]
    objects = [
        {"id": n, "image_id": rng.choice(images)["id"], "category_id": rng.randint(1, 3), "bbox": [1, 2, 10.5, 9], "iscrowd": 0}
        for n in range(rng.randint(1, ROWS))
    ]  # fmt: skip
    names = [{"id": n, "name": name} for n, name in enumerate(("dog", "cat", "wild cat"), 1)]
    made = {"images": images, "annotations": objects, "categories": names}
    for key in rng.choices(list(made), k=rng.randint(0, 3)):
        made[key] = mutate.value(rng, made[key])
    return made if rng.random() < 0.9 else mutate.value(rng, made)


def parquet(rng: random.Random, rows: list[dict[str, Any]]) -> bytes:
    """With the images in the rows, and columns of the types that the values allow."""
    names = dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row)
    columns: dict[str, pa.Array] = {}
    for name in names:
        values = [row.get(name) if isinstance(row, dict) else None for row in rows]
        if name == "image":
            other = rng.choice([picture(), b"", mutate.raw(rng, picture())])
            values = [
                {"bytes": rng.choice([picture(), other]), "path": str(v)[:50]} for v in values
            ]
        try:
            columns[ascii(name)[1:-1]] = pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            columns[ascii(name)[1:-1]] = pa.array(map(ascii, values))
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    content = buffer.getvalue()
    return mutate.raw(rng, content, 2) if rng.random() < 0.3 else content


def make(rng: random.Random) -> tuple[str, bytes]:
    if rng.random() < 0.12:
        return "instances_train.json", json_line(rng, coco(rng))
    form = rng.choice(["virft", "virft", "virft", *FORMS])
    numbers = range(rng.randint(1, ROWS))
    rows: list[Any] = [FORMS[form](n) if form in FORMS else virft(rng) for n in numbers]
    rows = [mutate.value(rng, row) if rng.random() < 0.5 else row for row in rows]
    chance = rng.random()
    if chance < 0.2:
        return f"{form}.parquet", parquet(rng, rows)
    if chance < 0.5:
        content = json_line(rng, rng.choice([rows, rows, {"data": rows}]))
        return f"{form}.json", mutate.raw(rng, content, 1) if rng.random() < 0.2 else content
    written = [json_line(rng, row) for row in rows]
    if rng.random() < 0.25:
        at = rng.randrange(len(written))
        written[at] = mutate.raw(rng, written[at], 2)
    return f"{form}.jsonl", b"\n".join(written) + rng.choice([b"", b"\n"])


def check(name: str, content: bytes, folder: Path) -> int:
    """No record is lost: each is a row, or named as a bad one; what is read is read again."""
    for image in NAMES:
        (folder / image).write_bytes(picture())
    file = folder / name
    file.write_bytes(content)
    lines = max(1, content.count(b"\n") + 1 if name.endswith("l") else 1)
    try:
        rows = list(read_rows(file, keep_going=True))
    except ValueError as error:
        refused(error, file)
        clean(printable(error))
        return lines
    assert repr(list(read_rows(file, keep_going=True))) == repr(rows)  # NaN is not NaN
    bad = [row for row in rows if isinstance(row, BadRow)]
    for row in bad:
        assert len(row.problem) > 5 and isinstance(row.place, RowLocation), row
        clean(printable(row))
    of_file = sum(row.place.row is None for row in bad)
    if file.stem in {"virft", *SINGLE} and name.endswith(".jsonl") and not of_file:
        texts = (line.strip().removeprefix(b"\xef\xbb\xbf") for line in content.split(b"\n"))
        assert len(rows) == sum(map(bool, texts))
    report = check_set(file)
    assert report.rows + of_file >= len(rows), (report.rows, len(rows))
    assert report.good <= len(rows) - len(bad)
    if len(content) % 10 == 0 and report.good:
        _converted(file, folder)
    return max(lines, len(rows))


def _converted(file: Path, folder: Path) -> None:
    """Once and again: the same rows."""
    target, again = folder / "converted", folder / "again"
    try:
        written = convert_folder(file, target, keep_going=True)
        rows = [_told(row) for row in read_rows(target)]
        assert len(rows) == written.rows
        convert_folder(target, again)
        assert [_told(row) for row in read_rows(again)] == rows
    except ValueError as error:
        refused(error)
        assert not target.exists(), f"written, but not read again: {error}"
    finally:
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(again, ignore_errors=True)


def _told(row: Any) -> tuple[str, ...]:
    return row.problem, row.solution, repr(row.columns), repr(row.image["bytes"])
