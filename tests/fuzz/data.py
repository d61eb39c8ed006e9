"""Data sets of every schema: JSON, JSON Lines, Parquet, COCO; checked, converted, read again."""

# ruff: noqa: E501 - rows of a table stay on one line

from __future__ import annotations

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
from fuzz.target import Target, clean, refused
from support.stored_sets import picture

from swift_vlrft.commands.output import printable
from swift_vlrft.datasets import BadRow, Row, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.row import RowLocation

ROWS = 40
NAMES = [f"{n}.png" for n in range(3)]


@cache
def url() -> str:
    return "data:image/png;base64," + base64.b64encode(picture()).decode()


def virft(rng: random.Random, n: int) -> dict[str, Any]:
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


def rec(rng: random.Random, n: int) -> dict[str, Any]:
    said = ["<image>Where is the lady?", "[10, 3, 30, 18]"]
    turns = [{"from": who, "value": text} for who, text in zip(("human", "gpt"), said, strict=True)]
    return {"id": n, "image": rng.choice(NAMES), "conversations": turns}


def lisa(rng: random.Random, n: int) -> dict[str, Any]:
    return {
        "image_path": NAMES[n % 3],
        "instruction": ["the thing", "it"],
        "boxes": [[1.0, 2.0, 30.0, 18.0]],
    }


def lisa_turns(rng: random.Random, n: int) -> dict[str, Any]:
    said = [
        f"<img>{NAMES[0]}</img>\n Output the bounding box in the image corresponding to the instruction: x",
        "(184,83),(628,772)",
    ]
    turns = [
        {"from": who, "value": text} for who, text in zip(("user", "assistant"), said, strict=True)
    ]
    return {"id": f"lisa_{n}", "conversations": turns}


def screenspot(rng: random.Random, n: int) -> dict[str, Any]:
    more = {"img_size": [40, 20], "id": str(n)} if n % 2 else {"data_type": "icon"}
    return {"img_filename": NAMES[0], "bbox": [10, 5, 20, 10], "instruction": "close it"} | more


def text_vqa(rng: random.Random, n: int) -> dict[str, Any]:
    return {
        "questionId": n,
        "question": "Which one?",
        "image": NAMES[0],
        "answers": ["ITC  Limited", "ITC"],
        "data_split": "train",
    }


def counts(rng: random.Random, n: int) -> dict[str, Any]:
    return {"image": NAMES[0], "text": "Set of Six owls, and six eggs", "number": 6}


SINGLE = {"virft": virft, "rec": rec, "screenspot": screenspot, "countbench": counts}
"""Every record is one row."""
SEVERAL = {"lisa": lisa, "lisa turns": lisa_turns, "text-vqa": text_vqa}
FORMS: dict[str, Callable[[random.Random, int], dict[str, Any]]] = SINGLE | SEVERAL


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
            kept = rng.choice([picture(), b"", mutate.raw(rng, picture())])
            values = [{"bytes": rng.choice([picture(), kept]), "path": str(v)[:50]} for v in values]
        for made in (
            values,
            [None if v is None else str(v) for v in values],
            [ascii(v) for v in values],
        ):
            try:
                columns[name] = pa.array(made)
                break
            except (pa.ArrowException, OverflowError, ValueError, TypeError):
                continue
    buffer = io.BytesIO()
    try:
        pq.write_table(pa.table({ascii(name)[1:-1]: of for name, of in columns.items()}), buffer)
    except pa.ArrowException:
        return b""
    content = buffer.getvalue()
    return mutate.raw(rng, content, 2) if rng.random() < 0.3 else content


class Data(Target):
    name = "data"
    one_input = (
        "one record of a set of up to 40, read twice and checked; of one set in ten, converted"
    )
    seconds = 60.0

    def make(self, rng: random.Random, folder: Path) -> tuple[str, bytes]:
        if rng.random() < 0.12:
            return "instances_train.json", json_line(rng, coco(rng))
        form = rng.choice(["virft", "virft", *FORMS])
        rows: list[Any] = [FORMS[form](rng, n) for n in range(rng.randint(1, ROWS))]
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

    def check(self, case: tuple[str, bytes], folder: Path) -> int:
        """No record is lost: each is a row, or named as a bad one; what is read is read again."""
        name, content = case
        if not (folder / NAMES[0]).exists():
            for image in NAMES:
                (folder / image).write_bytes(picture())
        file = folder / name
        file.write_bytes(content)
        lines = max(1, content.count(b"\n") + 1 if name.endswith("l") else 1)
        try:
            found = list(read_rows(file, keep_going=True))
        except ValueError as error:
            refused(error, file)
            clean(printable(error))
            return lines
        assert repr(list(read_rows(file, keep_going=True))) == repr(found)  # NaN is not NaN
        of_file = [one for one in found if isinstance(one, BadRow) and one.place.row is None]
        if file.stem in SINGLE and name.endswith(".jsonl") and not of_file:
            count = sum(
                bool(line.strip().removeprefix(b"\xef\xbb\xbf")) for line in content.split(b"\n")
            )
            assert len(found) == count, (len(found), count)
        for one in found:
            if isinstance(one, BadRow):
                assert len(one.problem) > 5 and isinstance(one.place, RowLocation), one
                clean(printable(one))
        report = check_set(file)
        rows = [one for one in found if isinstance(one, Row)]
        assert report.rows + len(of_file) >= len(found), (report.rows, len(found))
        assert report.good <= len(rows)
        if len(content) % 10 == 0 and report.good:
            self._converted(file, report.good, folder)
        return max(lines, len(found))

    def _converted(self, file: Path, good: int, folder: Path) -> None:
        """Once and again: the same rows."""
        target, again = folder / "converted", folder / "again"
        try:
            written = convert_folder(file, target, keep_going=True)
        except ValueError as error:
            refused(error)
            return
        try:
            rows = [_told(one) for one in read_rows(target)]
            assert len(rows) == written.rows
            convert_folder(target, again)
            assert [_told(one) for one in read_rows(again)] == rows
        finally:
            shutil.rmtree(target, ignore_errors=True)
            shutil.rmtree(again, ignore_errors=True)


def _told(row: Any) -> tuple[str, ...]:
    return row.problem, row.solution, repr(row.columns), repr(row.image["bytes"])


TARGET = Data()
