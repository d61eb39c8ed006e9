"""One set of three rows, in every form that a set can lie on disk in."""

import io
import json
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from support.command_line import vlrft

from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.training import LoadOptions, training_set

GOLD = "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"
PROBLEM = "Detect dogs as [x1, y1, x2, y2] (between 0 and 1000, integer), in <answer> </answer>."
SIZE = (40, 20)


@cache
def picture(mode="RGB", size=SIZE, colour=(255, 0, 0), form="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(buffer, form, **options)
    return buffer.getvalue()


def columns(n=3):
    return {
        "image": [{"bytes": picture(), "path": f"{i}.png"} for i in range(n)],
        "problem": [PROBLEM] * n,
        "solution": [GOLD] * (n - 1) + ["<answer>No Objects</answer>"],
    }


def write_table(file, content, **options):
    """Columns or rows in Parquet; the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(content) if isinstance(content, list) else pa.table(content)
    pq.write_table(table, file, **options)
    return file


def parquet_file(folder):
    return write_table(folder / "train-00000-of-00001.parquet", columns())


def parquet_folder(folder):
    rows = pa.table(columns())
    for name, part in {
        "train-00000-of-00002": rows.slice(0, 2),
        "train-00001-of-00002": rows.slice(2),
        "test-00000-of-00002": rows.slice(2),
    }.items():
        write_table(folder / "data" / f"{name}.parquet", part.to_pylist())
    return folder


def saved_dataset(folder):
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageFeature

    features = Features(
        {"image": ImageFeature(), "problem": Value("string"), "solution": Value("string")}
    )
    Dataset.from_dict(columns(), features=features).save_to_disk(folder / "saved")
    return folder / "saved"


def saved_dict(folder):
    from datasets import Dataset, DatasetDict

    DatasetDict({"train": Dataset.from_dict(columns())}).save_to_disk(folder / "dict")
    return folder / "dict"


def image_files(folder):
    (folder / "images").mkdir(exist_ok=True)
    for i in range(3):
        (folder / "images" / f"{i}.png").write_bytes(picture())
    return [f"images/{i}.png" for i in range(3)]


def rows_of_files(folder):
    table = columns() | {"image": image_files(folder)}
    return pa.table(table).to_pylist()


def jsonl(folder):
    lines = map(json.dumps, rows_of_files(folder))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n\n")
    return folder / "rows.jsonl"


def json_list_in_a_folder(folder):
    (folder / "rows.json").write_text(json.dumps(rows_of_files(folder)))
    return folder


def parquet_of_paths(folder):
    return write_table(folder / "rows.parquet", rows_of_files(folder)).parent


def parquet_of_plain_bytes(folder):
    return write_table(folder / "rows.parquet", columns() | {"image": [picture()] * 3})


def train_on(path, _cache=None, **options):
    """The Dataset that ms-swift would train on, and the report."""
    return training_set(open_set(path), LoadOptions(**options))


def shown(row):
    """The picture of a training row."""
    (image,) = row["images"]
    return Image.open(image["path"] if image["bytes"] is None else io.BytesIO(image["bytes"]))


def command(*arguments):
    """The exit code of ``vlrft ARGUMENTS``; what it printed, as words between single blanks."""
    result = vlrft(*arguments)
    return result.exit_code, " ".join(result.output.split())


FORMS = [
    parquet_file, parquet_folder, saved_dataset, saved_dict, jsonl, json_list_in_a_folder,
    parquet_of_paths, parquet_of_plain_bytes,
]  # fmt: skip
