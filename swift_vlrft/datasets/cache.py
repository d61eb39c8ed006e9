"""Between starts, Parquet is kept as memory-mapped Arrow, and so is the sizes of images.

    train-00000-of-00007.parquet   ->   CACHE/3f9c.arrow        the same rows
                                        CACHE/3f9c.infos.json   of every image [640, 480, true]
    image files                    ->   CACHE/77ab.infos.json   the same
    an image of a data: URL        ->   CACHE/images/51c0...
    an image to be changed         ->   CACHE/upright/9d04...png

A name is made of path, size and times of change; files appear only when they are whole, so a killed
start is no danger, and several runs may share the folder. What is damaged there is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.column_files import ColumnFiles, batches, damage_named
from swift_vlrft.datasets.image import ImageSize, try_image_size, upright_bytes
from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.storage import ImageSizes, StoredSet, Table, image_of
from swift_vlrft.files.writing import beside, space_named, write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "8"
MAX_THREADS = 4
"""Images looked at at once, unless ``--dataset_num_proc`` asks for more."""


def threads(num_proc: int = 1) -> ThreadPoolExecutor:
    """Open a pool for decoding, which leaves the interpreter free."""
    return ThreadPoolExecutor(max(num_proc, min(os.cpu_count() or 1, MAX_THREADS)))


def mapped(stored: ColumnFiles | Table, image: str, cache: Path, num_proc: int = 1) -> Table:
    """Return the rows of all files, memory-mapped, with the sizes in their column ``image``.

    DataError for a file that breaks off; DiskFull, or another OSError, where the cache cannot be
    written.
    """
    import pyarrow as pa

    with threads(num_proc) as pool:
        if isinstance(stored, Table):  # which ms-swift has mapped
            table = replace(stored, image=image)
            return replace(table, image_sizes=_sizes_of_column(table.images, pool))
        name = stored.stored_name(image)
        parts = [_mapped(stored, file, name, cache, pool) for file in stored.files]
    assert stored.features is not None
    empty = stored.features.arrow_schema.empty_table()
    return Table(
        **{field.name: getattr(stored, field.name) for field in fields(StoredSet)},
        image=image,
        table=pa.concat_tables([empty, *(table for table, _ in parts)]),
        origin=[(file, len(table)) for file, (table, _) in zip(stored.files, parts, strict=True)],
        image_sizes=[size for _, sizes in parts for size in sizes],
    )


def _mapped(
    stored: ColumnFiles, file: Path, image: str, cache: Path, pool: ThreadPoolExecutor
) -> tuple[pa.Table, ImageSizes]:
    import pyarrow as pa
    from datasets.table import table_cast

    assert stored.features is not None
    schema = stored.features.arrow_schema
    with space_named(cache), damage_named(file):
        key = f"{VERSION} {file.resolve()} {_stamp(file)} {image} {stored.features}"
        arrow = cache / f"{sha256(key.encode()).hexdigest()[:32]}.arrow"
        if (table := _table(arrow, stored.counts[file])) is None:
            with (
                beside(arrow) as unfinished,
                unfinished.open("wb") as out,
                pa.ipc.new_stream(out, schema) as writer,
            ):
                for batch in batches(file):
                    part = pa.Table.from_batches([batch]).select(schema.names)
                    writer.write_table(table_cast(part, schema))
            table = _table(arrow, stored.counts[file])
        if table is None:
            raise ValueError(f"{arrow} is damaged")
        sizes = _sizes_of_column(table.column(image), pool, arrow.with_suffix(".infos.json"))
        return table, sizes


def _table(arrow: Path, rows: int) -> pa.Table | None:
    """The rows of a file, memory-mapped; None if it is not there, or damaged."""
    import pyarrow as pa

    with suppress(OSError, pa.ArrowInvalid):
        table = pa.ipc.open_stream(pa.memory_map(str(arrow))).read_all()
        return table if len(table) == rows else None
    return None


def _stamp(path: str | Path) -> str:
    """What changes with a file's content: size, time of change, and the inode's own time, which
    copying tools do not set.
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


# ---- images ----------------------------------------------------------------------------------


def _sizes_of_column(
    images: pa.ChunkedArray, pool: ThreadPoolExecutor, file: Path | None = None
) -> ImageSizes:
    """The size of every image in an Arrow column; None for a path."""

    def look(number: int) -> ImageSize | str | None:
        try:
            image = image_of(images[number].as_py(), Path(), None)
        except ValueError as error:
            return str(error)
        return None if image["bytes"] is None else try_image_size(image)

    return _kept_in(file, look, len(images), pool)


def image_sizes_of_files(
    paths: Iterable[str], cache: Path, num_proc: int = 1
) -> dict[str, ImageSize | str | None]:
    """Return the size of every image file, through the cache while no file changes."""
    paths = list(dict.fromkeys(paths))
    key = sha256(VERSION.encode())
    for path in paths:
        stamp = ""
        with suppress(OSError, ValueError):  # looking at the image says what is wrong
            stamp = _stamp(path)
        key.update(f"{path}\0{stamp}\0".encode("utf-8", "replace"))
    file = cache / f"{key.hexdigest()[:32]}.infos.json" if paths else None
    with threads(num_proc) as pool:
        sizes = _kept_in(file, lambda n: try_image_size({"path": paths[n]}), len(paths), pool)
    return dict(zip(paths, sizes, strict=True))


def _kept_in(
    file: Path | None,
    look: Callable[[int], ImageSize | str | None],
    count: int,
    pool: ThreadPoolExecutor,
) -> ImageSizes:
    """The sizes that ``look`` gives of all images; ``file`` keeps them. An image that could not be
    read is looked at again: the disk may have been at fault.
    """
    known: ImageSizes = []
    if file is not None:
        with suppress(OSError, ValueError, TypeError):  # not there yet, or somebody damaged it
            lines = json.loads(file.read_bytes())
            known = [ImageSize(*size) if isinstance(size, list) else size for size in lines]
    known = known if len(known) == count else [None] * count
    sizes = list(known)
    left = [number for number, size in enumerate(known) if not isinstance(size, ImageSize)]
    for number, size in zip(left, pool.map(look, left), strict=True):
        sizes[number] = size
    if file is not None and sizes != known:
        lines = [astuple(size) if isinstance(size, ImageSize) else size for size in sizes]
        write_atomically(file, json.dumps(lines))
    return sizes


def stored_file(content: bytes, cache: Path) -> str:
    """Return the path of a file with these bytes of a ``data:`` URL, which are written once."""
    file = cache / "images" / sha256(content).hexdigest()[:32]
    if not (file.is_file() and file.stat().st_size == len(content)):
        write_atomically(file, content)
    return str(file)


def upright_file(image: Mapping[str, Any], place: RowLocation, cache: Path) -> str:
    """Return the path of a file with the image as the model should see it."""
    content = image.get("bytes")
    if content is None:
        content = Path(str(image["path"])).read_bytes()
    file = cache / "upright" / f"{sha256(content).hexdigest()[:32]}.png"
    if not file.is_file():
        write_atomically(file, upright_bytes({**image, "bytes": content}, place)["bytes"])
    return str(file)
