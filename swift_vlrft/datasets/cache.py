"""Parquet as Arrow that is read where it lies, and what is known of images, kept between starts.

    train-00000-of-00007.parquet   ->   CACHE/3f9c...arrow         its columns, row by row
                                        CACHE/3f9c...infos.json    of every image [640, 480, true]
    image files                    ->   CACHE/77ab...infos.json    the same
    an image to be changed         ->   CACHE/upright/9d04...png

Each image is stored once, memory stays flat: ``Dataset.from_parquet`` was tried (600 rows of 820
KB: as fast, but 730 MiB of memory for 23, and it looks at no image). A name is made of path, size
and time of change; files appear only when they are whole, so a killed start is no danger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.image import ImageInfo, try_image_info, upright_bytes
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import Infos, Origin
from swift_vlrft.files.writing import beside, write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "5"
BATCH_ROWS = 16
"""Rows held in memory at once while copying."""
MAX_THREADS = 4
"""Shards copied at once unless ``--dataset_num_proc`` asks for more: the disk takes no more."""


def threads(num_proc: int = 1) -> ThreadPoolExecutor:
    """For copying and decoding, which leave the interpreter free."""
    return ThreadPoolExecutor(max(num_proc, min(os.cpu_count() or 1, MAX_THREADS)))


def cached_parquet(
    stored: ColumnFiles, cache: Path, num_proc: int = 1
) -> tuple[pa.Table, Origin, Infos]:
    """The rows of all files, memory-mapped, how many are of which, and their images' infos. Files
    that break off go to ``stored.broken``.
    """
    image = stored.stored_name("image")

    def copied(file: Path) -> tuple[Path, Path] | DataError:
        try:
            return _copied(file, image, cache, lookers)
        except DataError as error:
            return error

    with threads(num_proc) as pool, threads(num_proc) as lookers:
        copies = dict(zip(stored.files, pool.map(copied, stored.files), strict=True))
    infos = [
        info
        for made in copies.values()
        if not isinstance(made, DataError)
        for info in _read_infos(made[1])
    ]
    arrow = {f: made if isinstance(made, DataError) else made[0] for f, made in copies.items()}
    return *_joined(stored, arrow), infos


def mapped_files(stored: ColumnFiles) -> tuple[pa.Table, Origin]:
    """The same of Arrow files, which are read where they lie."""
    return _joined(stored, {file: file for file in stored.files})


def _joined(
    stored: ColumnFiles, copies: Mapping[Path, Path | DataError]
) -> tuple[pa.Table, Origin]:
    """The tables of one set as one: columns in the order of the first, and where a shard holds
    nulls only, of the type that another one says. DataError if types cannot be brought together.
    """
    import pyarrow as pa

    tables: list[pa.Table] = []
    origin: Origin = []
    for file, copy in copies.items():
        try:
            if isinstance(copy, DataError):
                raise copy
            table = pa.ipc.open_stream(pa.memory_map(str(copy))).read_all()
        except (pa.ArrowException, OSError, DataError) as error:
            known = isinstance(error, DataError)
            text = str(error) if known else f"{file} breaks off ({error}); copy it again"
            stored.broken.append(BadRow(RowLocation(file), text))
            stored.files.remove(file)
            continue
        tables.append(table)
        origin.append((file, len(table)))
        first = tables[0].schema
        for one in table.schema:
            before = first.field(one.name)
            try:
                both = [pa.schema([before]), pa.schema([one])]
                pa.unify_schemas(both, promote_options="permissive")
            except pa.ArrowException as error:
                raise DataError(
                    f"{file}: the column {one.name!r} holds {one.type}, but {before.type} in "
                    f"{origin[0][0].name}; all files of a set need the same type"
                ) from error
    if not tables:
        reasons = "\n  ".join(bad.problem for bad in stored.broken)
        raise DataError(f"no file of the set can be read:\n  {reasons}")
    return pa.concat_tables(tables, promote_options="permissive"), origin


def _copied(file: Path, image: str, cache: Path, pool: ThreadPoolExecutor) -> tuple[Path, Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stat = file.stat()
    key = f"{VERSION} {file.resolve()} {stat.st_size} {stat.st_mtime_ns} {image}"
    name = sha256(key.encode()).hexdigest()[:32]
    target, infos_file = cache / f"{name}.arrow", cache / f"{name}.infos.json"
    if target.is_file() and infos_file.is_file():
        return target, infos_file
    infos: Infos = []
    try:
        # Not memory-mapped: every page of the file that was read would count as memory in use.
        with (
            beside(target) as half,
            pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as source,
        ):
            schema = source.schema_arrow
            with pa.OSFile(str(half), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
                for batch in source.iter_batches(BATCH_ROWS, use_threads=False):
                    writer.write_batch(batch)
                    infos += image_infos(batch.column(image), pool)
            _write_infos(infos, infos_file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file} breaks off or is damaged ({error}); copy or download it again"
        ) from error
    return target, infos_file


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
        stamp = "\0"
        try:
            stat = os.stat(path)
            stamp = f"{stat.st_size} {stat.st_mtime_ns}\0"
        except (OSError, ValueError):
            pass  # looking at the image says what is wrong
        key.update(f"{path}\0{stamp}".encode("utf-8", "replace"))
    file = cache / f"{key.hexdigest()[:32]}.infos.json"
    if not file.is_file():
        with threads(num_proc) as pool:
            found = list(pool.map(lambda path: try_image_info({"path": path}), paths))
        _write_infos(found, file)
    return {p: info for p, info in zip(paths, _read_infos(file), strict=True) if info is not None}


def _write_infos(infos: Sequence[ImageInfo | str | None], file: Path) -> None:
    lines = [astuple(info) if isinstance(info, ImageInfo) else info for info in infos]
    write_atomically(file, json.dumps(lines))


def _read_infos(file: Path) -> Infos:
    return [
        ImageInfo(*found) if isinstance(found, list) else found
        for found in json.loads(file.read_bytes())
    ]


def stored_file(content: bytes, cache: Path) -> str:
    """The path of a file with these bytes, which are written once."""
    file = cache / "images" / sha256(content).hexdigest()[:32]
    if not file.is_file():
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
