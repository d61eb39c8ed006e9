"""Parquet as Arrow that is read where it lies: one copy of the images, made once, memory flat.

    train-00000-of-00007.parquet   ->   CACHE/3f9c...arrow         its columns, row by row
                                        CACHE/3f9c...infos.arrow   width, height, plain, problem

A file's name is made of its path, size and time of change; it appears only when it is whole, so a
killed start is no danger and the next start reads what is there. Of pictures that are files, only
the infos are kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.image import ImageError, ImageInfo, try_image_info
from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "4"
BATCH_ROWS = 16
"""Rows held in memory at once while copying."""
MAX_THREADS = 4
"""Shards copied at once unless ``--dataset_num_proc`` asks for more: the disk takes no more."""

ImageInfos = list[ImageInfo | ImageError | None]
"""Of every row its image's; None for one that is a path, to be looked at when it is known where
that starts from.
"""


@dataclass
class Cached:
    """The rows of several files, memory-mapped; ``origin`` says how many are of which file."""

    table: pa.Table
    infos: ImageInfos
    origin: list[tuple[Path, int]]
    broken: list[BadRow]


def cached_parquet(files: list[Path], image: str, cache: Path, num_proc: int = 1) -> Cached:
    """The table of ``files``, through the cache; files that break off are in ``broken``.

    ``image`` is the column of pictures. Shards are copied ``num_proc`` at a time, and never fewer
    than the cores can carry: copying is work of pyarrow's, which leaves the interpreter free.
    """
    import pyarrow as pa

    cache.mkdir(parents=True, exist_ok=True)

    def one(file: Path) -> tuple[Path, Path] | DataError:
        try:
            return _cached_file(file, image, cache, lookers)
        except DataError as error:
            return error

    with threads(num_proc) as pool, threads(num_proc) as lookers:
        found = list(pool.map(one, files))
    tables, infos, origin, broken = [], ImageInfos(), [], []
    for file, made in zip(files, found, strict=True):
        if isinstance(made, DataError):
            broken.append(BadRow(RowLocation(file), str(made)))
            continue
        tables.append(pa.ipc.open_stream(pa.memory_map(str(made[0]))).read_all())
        infos += _read_heads(made[1])
        origin.append((file, len(tables[-1])))
    if not tables:
        raise DataError(
            "no file of the set can be read:\n  " + "\n  ".join(b.problem for b in broken)
        )
    return Cached(joined(tables, origin), infos, origin, broken)


def joined(tables: list[pa.Table], origin: list[tuple[Path, int]]) -> pa.Table:
    """The tables of one set as one: columns in the order of the first, and where a shard holds
    nulls only, of the type that another one says. DataError where types cannot be brought together.
    """
    import pyarrow as pa

    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        for table, (file, _) in zip(tables, origin, strict=True):
            for one in table.schema:
                first = tables[0].schema.field(one.name)
                try:
                    pa.unify_schemas(
                        [pa.schema([first]), pa.schema([one])], promote_options="permissive"
                    )
                except pa.ArrowException as error:
                    raise DataError(
                        f"{file}: the column {one.name!r} holds {one.type}, but {first.type} in "
                        f"{origin[0][0].name}; all files of a set need the same type"
                    ) from error
        raise


def _cached_file(
    file: Path, image: str, cache: Path, pool: ThreadPoolExecutor
) -> tuple[Path, Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stat = file.stat()
    key = f"{VERSION} {file.resolve()} {stat.st_size} {stat.st_mtime_ns} {image}"
    name = sha256(key.encode()).hexdigest()[:32]
    target, heads_file = cache / f"{name}.arrow", cache / f"{name}.infos.arrow"
    if target.is_file() and heads_file.is_file():
        return target, heads_file
    half = cache / f"{name}.{os.getpid()}.writing"
    infos: ImageInfos = []
    try:
        # Not memory-mapped: every page of the file that was read would count as memory in use.
        with pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as source:
            schema = source.schema_arrow
            with pa.OSFile(str(half), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
                for batch in source.iter_batches(BATCH_ROWS, use_threads=False):
                    writer.write_batch(batch)
                    infos += image_infos(batch.column(image), pool)
        _write_heads(infos, heads_file)
        os.replace(half, target)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file} breaks off or is damaged ({error}); copy or download it again"
        ) from error
    finally:
        with suppress(OSError):
            half.unlink()
    return target, heads_file


def image_infos(images: Any, pool: ThreadPoolExecutor) -> ImageInfos:
    """Of every image in an Arrow column of images."""
    import pyarrow as pa

    if pa.types.is_struct(images.type):
        contents = images.field("bytes") if images.type.get_field_index("bytes") >= 0 else None
        paths = images.field("path") if images.type.get_field_index("path") >= 0 else None
    elif pa.types.is_binary(images.type) or pa.types.is_large_binary(images.type):
        contents, paths = images, None
    elif pa.types.is_string(images.type) or pa.types.is_large_string(images.type):
        contents, paths = None, images
    else:
        raise DataError(f"the column image holds {images.type}; expected {{bytes, path}} or a path")

    def info(i: int) -> ImageInfo | ImageError | None:
        if contents is None or not contents[i].is_valid:
            return None
        path = paths[i].as_py() if paths is not None else None
        return try_image_info({"bytes": contents[i].as_py(), "path": path})

    return list(pool.map(info, range(len(images))))


def image_infos_of_files(
    paths: Sequence[str], cache: Path, num_proc: int = 1
) -> dict[str, ImageInfo | ImageError]:
    """The info of every picture file, through the cache while none of them changes."""
    paths = list(dict.fromkeys(paths))
    if not paths:
        return {}
    key = sha256(VERSION.encode())
    for path in paths:
        try:
            stat = os.stat(path)
            key.update(f"{path}\0{stat.st_size} {stat.st_mtime_ns}\0".encode("utf-8", "replace"))
        except (OSError, ValueError):
            key.update(f"{path}\0\0".encode("utf-8", "replace"))
    file = cache / f"{key.hexdigest()[:32]}.infos.arrow"
    if file.is_file():
        infos = _read_heads(file)
    else:
        with threads(num_proc) as pool:
            infos = list(pool.map(lambda path: try_image_info({"path": path}), paths))
        cache.mkdir(parents=True, exist_ok=True)
        _write_heads(infos, file)
    return {p: info for p, info in zip(paths, infos, strict=True) if info is not None}


def threads(num_proc: int = 1) -> ThreadPoolExecutor:
    """For copying and decoding, which leave the interpreter free."""
    return ThreadPoolExecutor(max(num_proc, min(os.cpu_count() or 1, MAX_THREADS)))


def _write_heads(infos: ImageInfos, file: Path) -> None:
    import pyarrow as pa

    known = [info if isinstance(info, ImageInfo) else ImageInfo(0, 0, False) for info in infos]
    table = pa.table(
        {
            "width": [info.width for info in known],
            "height": [info.height for info in known],
            "plain": [info.plain for info in known],
            "problem": [info.problem if isinstance(info, ImageError) else None for info in infos],
        },
        schema=pa.schema(
            [
                ("width", pa.int32()),
                ("height", pa.int32()),
                ("plain", pa.bool_()),
                ("problem", pa.string()),
            ]
        ),
    )
    half = file.with_suffix(f".{os.getpid()}.writing")
    with pa.OSFile(str(half), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    os.replace(half, file)


def _read_heads(file: Path) -> ImageInfos:
    import pyarrow as pa

    rows = pa.ipc.open_stream(pa.memory_map(str(file))).read_all().to_pylist()
    return [
        ImageError(row["problem"])
        if row["problem"] is not None
        else ImageInfo(row["width"], row["height"], row["plain"])
        if row["width"]
        else None
        for row in rows
    ]
