"""Parquet as Arrow that is read where it lies, and what is known of images: kept between starts.

    train-00000-of-00007.parquet   ->   CACHE/3f9c.../             what ``datasets`` makes of it
                                        CACHE/3f9c.../infos.json   of every image [640, 480, true]
    image files                    ->   CACHE/77ab...infos.json    the same
    an image to be changed         ->   CACHE/upright/9d04...png

A name is made of path, size and times of change; files appear only when they are whole, so a killed
start is no danger, and several runs may share the folder. What is damaged there is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.column_files import (
    BATCH_ROWS,
    ColumnFiles,
    damage_named,
    parquet_options,
    source,
)
from swift_vlrft.datasets.image import ImageInfo, try_image_info, upright_bytes
from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.storage import Infos, Origin
from swift_vlrft.files.writing import space_named, write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "6"
MAX_THREADS = 4
"""Images looked at at once, unless ``--dataset_num_proc`` asks for more."""


def threads(num_proc: int = 1) -> ThreadPoolExecutor:
    """For decoding, which leaves the interpreter free."""
    return ThreadPoolExecutor(max(num_proc, min(os.cpu_count() or 1, MAX_THREADS)))


def mapped(stored: ColumnFiles, cache: Path, num_proc: int = 1) -> tuple[pa.Table, Origin, Infos]:
    """The rows of all files, memory-mapped, how many are of which, and their images' infos.
    DataError for a file that breaks off; DiskFull, or another OSError, where the cache cannot be
    written.
    """
    import pyarrow as pa

    image = stored.stored_name("image")
    with threads(num_proc) as pool:
        parts = [_mapped(stored, file, image, cache, pool) for file in stored.files]
    origin = [(file, len(table)) for file, (table, _) in zip(stored.files, parts, strict=True)]
    infos = [info for _, found in parts for info in found]
    return pa.concat_tables([table for table, _ in parts]), origin, infos


def _mapped(
    stored: ColumnFiles, file: Path, image: str, cache: Path, pool: ThreadPoolExecutor
) -> tuple[pa.Table, Infos]:
    cache.mkdir(parents=True, exist_ok=True)
    with space_named(cache), damage_named(file):
        key = f"{VERSION} {file.resolve()} {_stamp(file)} {image} {stored.features}"
        folder = cache / sha256(key.encode()).hexdigest()[:32]
        known = folder.exists()
        try:
            made = _table(stored, file, folder)
        except Exception:
            if not known:
                raise
            rmtree(folder)
            made = _table(stored, file, folder)
        infos: Infos = []
        with suppress(OSError, ValueError):  # not there yet, or somebody damaged it
            infos = _read_infos(folder / "infos.json")
        if len(infos) != len(made):
            chunks = made.column(image).chunks
            infos = [info for chunk in chunks for info in image_infos(chunk, pool)]
            _write_infos(infos, folder / "infos.json")
    return made, infos


def _table(stored: ColumnFiles, file: Path, folder: Path) -> pa.Table:
    """Arrow where it lies; Parquet as Arrow in ``folder``; ValueError if it is damaged there."""
    from datasets import Dataset, load_dataset

    if stored.kind == "Arrow":
        return Dataset.from_file(str(file)).cast(stored.features).data.table
    rows = load_dataset(
        **source("parquet", file),
        features=stored.features,
        cache_dir=str(folder),
        writer_batch_size=BATCH_ROWS,
        **parquet_options(),
    )
    if len(rows) != stored.counts[file]:
        raise ValueError(f"{folder} is damaged")
    return rows.data.table


def _stamp(path: str | Path) -> str:
    """What changes with a file's content: size, time of change, and the inode's own time, which
    copying tools do not set.
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


# ---- images ----------------------------------------------------------------------------------


def image_infos(images: Any, pool: ThreadPoolExecutor) -> Infos:
    """Of every image in an Arrow column of bytes, or of {bytes, path}."""
    import pyarrow as pa

    contents, paths = images, None
    if pa.types.is_struct(images.type):
        contents = images.field("bytes")
        paths = images.field("path") if images.type.get_field_index("path") >= 0 else None

    def info(i: int) -> ImageInfo | str | None:
        content, path = contents[i].as_py(), paths[i].as_py() if paths is not None else None
        return None if content is None else try_image_info({"bytes": content, "path": path})

    return list(pool.map(info, range(len(images))))


def image_infos_of_files(
    paths: Sequence[str], cache: Path, num_proc: int = 1
) -> dict[str, ImageInfo | str]:
    """Of every image file, through the cache while none of them changes."""
    paths = list(dict.fromkeys(paths))
    if not paths:
        return {}
    key = sha256(VERSION.encode())
    for path in paths:
        stamp = ""
        with suppress(OSError, ValueError):  # looking at the image says what is wrong
            stamp = _stamp(path)
        key.update(f"{path}\0{stamp}\0".encode("utf-8", "replace"))
    file = cache / f"{key.hexdigest()[:32]}.infos.json"
    found: Infos = []
    with suppress(OSError, ValueError):  # not there yet, or somebody damaged it
        found = _read_infos(file)
    known = found if len(found) == len(paths) else [None] * len(paths)

    def looked(path: str, info: ImageInfo | str | None) -> ImageInfo | str:
        # What could not be read is looked at again: the disk may have been at fault.
        return info if isinstance(info, ImageInfo) else try_image_info({"path": path})

    with threads(num_proc) as pool:
        infos = list(pool.map(looked, paths, known))
    if infos != known:
        _write_infos(infos, file)
    return dict(zip(paths, infos, strict=True))


def _write_infos(infos: Sequence[ImageInfo | str | None], file: Path) -> None:
    lines = [astuple(info) if isinstance(info, ImageInfo) else info for info in infos]
    write_atomically(file, json.dumps(lines))


def _read_infos(file: Path) -> Infos:
    """OSError or ValueError if there are none, or they are damaged."""
    try:
        return [
            ImageInfo(*found) if isinstance(found, list) else found
            for found in json.loads(file.read_bytes())
        ]
    except TypeError as error:
        raise ValueError(f"{file}: {error}") from error


def stored_file(content: bytes, cache: Path) -> str:
    """The path of a file with these bytes, which are written once."""
    file = cache / "images" / sha256(content).hexdigest()[:32]
    if not (file.is_file() and file.stat().st_size == len(content)):
        write_atomically(file, content)
    return str(file)


def upright_file(image: Mapping[str, Any], place: RowLocation, cache: Path) -> str:
    """The path of a file with the image as the model should see it."""
    content = image.get("bytes")
    if content is None:
        content = Path(str(image["path"])).read_bytes()
    file = cache / "upright" / f"{sha256(content).hexdigest()[:32]}.png"
    if not file.is_file():
        write_atomically(file, upright_bytes({**image, "bytes": content}, place)["bytes"])
    return str(file)
