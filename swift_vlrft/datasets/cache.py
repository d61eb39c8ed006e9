"""Parquet as Arrow that is read where it lies, and what is known of images, kept between starts.

    train-00000-of-00007.parquet   ->   CACHE/3f9c...arrow         its columns, row by row
                                        CACHE/3f9c...infos.json    of every image [640, 480, true]
    image files                    ->   CACHE/77ab...infos.json    the same
    an image to be changed         ->   CACHE/upright/9d04...png

Each image is stored once, memory stays flat: ``Dataset.from_parquet`` was tried (600 rows of 820
KB: as fast, but 730 MiB of memory for 23, and it looks at no image). A name is made of path, size
and times of change; files appear only when they are whole, so a killed start is no danger, and
several runs may share the folder. A file that is damaged there all the same is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    that break off go to ``stored.broken``; DiskFull, or another OSError, where the cache cannot be
    written.
    """
    image = stored.stored_name("image")

    def copied(file: Path) -> tuple[pa.Table, Infos] | DataError:
        try:
            return _copied(file, image, cache, lookers)
        except DataError as error:
            return error

    with threads(num_proc) as pool, threads(num_proc) as lookers:
        copies = dict(zip(stored.files, pool.map(copied, stored.files), strict=True))
    infos = [
        info for made in copies.values() if not isinstance(made, DataError) for info in made[1]
    ]
    tables = {f: made if isinstance(made, DataError) else made[0] for f, made in copies.items()}
    return *_joined(stored, tables), infos


def mapped_files(stored: ColumnFiles) -> tuple[pa.Table, Origin]:
    """The same of Arrow files, which are read where they lie."""

    def mapped(file: Path) -> pa.Table | DataError:
        import pyarrow as pa

        try:
            return _mapped(file)
        except (pa.ArrowException, OSError) as error:
            return DataError(f"{file} breaks off ({error}); copy it again")

    return _joined(stored, {file: mapped(file) for file in stored.files})


def _mapped(file: Path) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(file))).read_all()


def _joined(
    stored: ColumnFiles, tables_of: Mapping[Path, pa.Table | DataError]
) -> tuple[pa.Table, Origin]:
    """The tables of one set as one: columns in the order of the first, and where a shard holds
    nulls only, of the type that another one says. DataError if types cannot be brought together.
    """
    import pyarrow as pa

    tables: list[pa.Table] = []
    origin: Origin = []
    for file, table in tables_of.items():
        if isinstance(table, DataError):
            stored.broken.append(BadRow(RowLocation(file), str(table)))
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


def _copied(
    file: Path, image: str, cache: Path, pool: ThreadPoolExecutor
) -> tuple[pa.Table, Infos]:
    """The rows and infos of a Parquet file, from the cache if it has them. DataError if the file
    breaks off.
    """
    import pyarrow as pa

    try:
        key = f"{VERSION} {file.resolve()} {_stamp(file)} {image}"
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error}); copy or download it again") from error
    name = sha256(key.encode()).hexdigest()[:32]
    target, infos_file = cache / f"{name}.arrow", cache / f"{name}.infos.json"
    with suppress(OSError, ValueError):  # not there yet, or somebody damaged it
        table, infos = _mapped(target), _read_infos(infos_file)
        if len(table) == len(infos):
            return table, infos
    infos = []
    schema, batches = _parquet(file)
    with beside(target) as half:
        with pa.OSFile(str(half), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                infos += image_infos(batch.column(image), pool)
        _write_infos(infos, infos_file)
    return _mapped(target), infos


def _stamp(path: str | Path) -> str:
    """What changes with a file's content: size, time of change, and the inode's own time, which
    copying tools do not set.
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def _parquet(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a Parquet file, and its rows; DataError where it breaks off."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def broken(error: Exception) -> DataError:
        return DataError(f"{file} breaks off or is damaged ({error}); copy or download it again")

    try:
        # Not memory-mapped: every page of the file that was read would count as memory in use.
        source = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise broken(error) from error

    def batches() -> Iterator[pa.RecordBatch]:
        with source:
            try:
                yield from source.iter_batches(BATCH_ROWS, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise broken(error) from error

    return source.schema_arrow, batches()


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
