"""Pictures, rows and whole sets to write, and the commands on data that read them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import Result
from support.command_line import vlrft
from support.stored_sets import columns, picture, write_table


def png(colour=(200, 30, 30), size=(16, 12)) -> bytes:
    return picture(size=size, colour=colour)


def row(i: int, **more) -> dict:
    return {
        "image": {"bytes": png((i % 256, 30, 30)), "path": f"/home/me/pictures/{i}.png"},
        "problem": f"Detect all objects of kind {i}.",
        "solution": "<answer>No Objects</answer>",
        "task": "detection",
        "frame": "norm1000",
        **more,
    }


def write_set(folder: Path, count: int = 3, name: str = "train.parquet", **changes: Any) -> Path:
    """A folder with ``count`` rows of ViRFT in Parquet; a column that is None is left out."""
    content = {k: v for k, v in (columns(count) | changes).items() if v is not None}
    return write_table(folder / name, content).parent


def spoiled_set(folder: Path) -> Path:
    """Eight rows of which 0, 6 and 7 are good."""
    rows = columns(8)
    rows["image"][1] = {"bytes": picture(size=(300, 300))[:-40], "path": "1.png"}
    rows["problem"][2] = ""
    rows["solution"][3] = "<answer>[{'Position': [254, 303]}]</answer>"
    rows["solution"][4] = "<answer>[{'Position': [254, 303, 1291, 365], 'Confidence': 1}]</answer>"
    rows["solution"][5] = "not json: {'Position'"
    write_set(folder, 8, "train-00000-of-00001.parquet", **rows)
    return folder


def write_rows(file: Path, *rows: dict) -> Path:
    """JSON Lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def data(*arguments: object) -> Result:
    """``vlrft data`` in this process."""
    return vlrft("data", *arguments)


def check(*arguments: object) -> tuple[int, dict]:
    """Exit code and report of ``vlrft data check --json``."""
    result = data("check", *arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def rows_in(folder: Path, split: str = "train") -> list[dict]:
    """The rows of a converted set."""
    files = sorted((folder / "data").glob(f"{split}-*.parquet"))
    return [stored for file in files for stored in pq.read_table(file).to_pylist()]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
