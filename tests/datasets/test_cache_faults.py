"""The cache of a set while disks fill up, and files change, vanish or are damaged."""

import io
import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.full_disk import no_room
from support.stored_sets import PROBLEM, picture, train_on
from support.written_sets import write_rows

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.read import read_rows
from swift_vlrft.files.writing import DiskFull

NO_OBJECTS = "<answer>No Objects</answer>"
ROWS = 40


def noisy(number: int) -> bytes:
    """A picture of 4 KB, another one for every number."""
    pixels, buffer = random.Random(number).randbytes(36 * 36 * 3), io.BytesIO()
    Image.frombytes("RGB", (36, 36), pixels).save(buffer, "PNG")
    return buffer.getvalue()


def noisy_rows(first: int, count: int) -> dict[str, list]:
    images = [{"bytes": noisy(n), "path": None} for n in range(first, first + count)]
    return {"image": images, "problem": [PROBLEM] * count, "solution": [NO_OBJECTS] * count}


def write_shards(folder: Path, shards: int = 2) -> Path:
    folder.mkdir()
    for shard in range(shards):
        table = pa.table(noisy_rows(shard * ROWS, ROWS))
        name = f"train-{shard:05d}-of-{shards:05d}.parquet"
        pq.write_table(table, folder / name, row_group_size=4, compression="none")
    return folder


def write_files(folder: Path) -> Path:
    folder.mkdir()
    for n in range(5):
        (folder / f"{n}.png").write_bytes(picture(size=(40 + n, 20)))
    row = {"problem": PROBLEM, "solution": NO_OBJECTS}
    return write_rows(folder / "rows.jsonl", *(row | {"image": f"{n}.png"} for n in range(5)))


def load(source: Path, cache: Path):
    """The bytes of every row's image, in order, and what was reported."""
    rows, report = train_on(source, cache)
    images = [row["images"][0] for row in rows]
    return [image["bytes"] or Path(image["path"]).read_bytes() for image in images], report


def expected(shards: int = 2) -> list[bytes]:
    return list(map(noisy, range(shards * ROWS)))


# ---- a full disk -----------------------------------------------------------------------------


def test_a_full_disk_takes_no_shard_for_damaged(tmp_path):
    source, cache = write_shards(tmp_path / "set"), tmp_path / "cache"
    with no_room(30_000), pytest.raises(DiskFull) as error:
        load(source, cache)
    assert str(error.value).startswith(f"{cache} could not be written")
    assert load(source, cache)[0] == expected()


# ---- shards that vanish ------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", [lambda file: os.truncate(file, 5000), Path.unlink])
def test_a_parquet_shard_that_goes_while_others_are_read(spoil, tmp_path):
    source = write_shards(tmp_path / "set")
    second = source / "train-00001-of-00002.parquet"
    with pytest.raises(DataError, match="train-00001-of-00002.parquet: cannot be read"):
        for n, _ in enumerate(read_rows(source)):
            if n == 1:
                spoil(second)


# ---- changes, and damage -----------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_shards, write_files])
def test_a_change_of_the_same_size_and_time_is_seen(write, tmp_path):
    """As a tool makes it that restores the time of change."""
    source, cache = write(tmp_path / "set"), tmp_path / "cache"
    before = load(source, cache)[0]
    assert load(source, cache)[0] == before
    file = sorted(tmp_path.glob("set/*.p*"))[0]
    stat, content = file.stat(), file.read_bytes()
    others = [picture(size=(9, 9)), *map(noisy, range(900, 930))]
    new = next(image for image in others[write is write_shards :] if len(image) <= len(before[0]))
    new += bytes(len(before[0]) - len(new))
    file.write_bytes(content.replace(before[0], new, 1))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_size == stat.st_size
    assert load(source, cache)[0] == [new, *before[1:]] != before


def end_between_two_batches(file: Path) -> None:
    batches = list(pa.ipc.open_stream(file.read_bytes()))
    with pa.ipc.new_stream(str(file), batches[0].schema) as writer:
        writer.write_batch(batches[0])


def cut(file: Path) -> None:
    os.truncate(file, int(file.stat().st_size * 0.9))


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("*.arrow", lambda file: os.truncate(file, 0)),
        ("*.arrow", cut),
        ("*.arrow", end_between_two_batches),
        ("*.infos.json", cut),
        ("*.infos.json", lambda file: os.truncate(file, 0)),
    ],
)
def test_a_damaged_cache_is_made_again(kind, damage, tmp_path):
    source, cache = write_shards(tmp_path / "set"), tmp_path / "cache"
    load(source, cache)
    assert (files := list(cache.glob(kind)))
    for file in files:
        damage(file)
    pictures, report = load(source, cache)
    assert pictures == expected() and not report.problems


def test_an_image_that_could_not_be_read_is_looked_at_again(tmp_path):
    source, cache = write_files(tmp_path / "set"), tmp_path / "cache"
    load(source, cache)
    (file,) = cache.glob("*.infos.json")
    infos = json.loads(file.read_text())
    file.write_text(json.dumps([*infos[:2], "the image cannot be read (EIO)", *infos[3:]]))
    pictures, report = load(source, cache)
    assert len(pictures) == 5 and not report.problems
