"""Write a ViRFT-style Parquet folder, ready for a hub; its name appears when it is complete.

    write_folder(Path("shapes"), {"train": rows})

    in    {"image": {"bytes": b"\\x89PNG...", "path": "1.png"}, "problem": "Detect all dogs.",
           "solution": "<answer>No Objects</answer>", "task": "detection", "frame": "norm1000"}
    out   shapes/data/train-00000-of-00001.parquet

Rows go to Arrow files in small groups; when the columns of all are known, ``datasets`` sorts the
rows and writes the shards. Until then everything lies in ``.shapes.unfinished``, which the next run
after a kill removes. Images are stored as they came.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from swift_vlrft.datasets.row import BadRow
from swift_vlrft.datasets.source import DataError
from swift_vlrft.files.writing import on_disk, refuse_address, space_named

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_BYTES = 256 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 100
"""A group of rows ends at either: small ones let a viewer fetch a few, and bound the memory."""
TEXTS = ("problem", "solution", "task", "frame")

_SPLIT = re.compile(r"\w+(?:\.\w+)*")
"""Names that the hubs and ``datasets`` take for a split."""

Item = Mapping[str, Any] | BadRow
"""A row to write, or a row to leave out and list."""
_T = TypeVar("_T")


@dataclass
class Written:
    """The folder is finished; ``counts`` and ``notes`` are what the maker of the rows says."""

    folder: Path
    rows: int = 0
    shards: int = 0
    left_out: list[BadRow] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def left_out_records(self) -> list[dict[str, str]]:
        return [{"place": str(row.place), "reason": row.problem} for row in self.left_out]


def write_folder(
    folder: Path,
    splits: Mapping[str, Iterable[Item]],
    *,
    keep_going: bool = True,
    total: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    sort_key: Callable[[Mapping[str, Any]], Any] | None = None,
) -> Written:
    """Write every split's rows to ``folder``. ``total`` is the number of rows, where it is known,
    for the progress bar. With ``sort_key``, rows are written in its order, those with an equal key
    as they come.

    DataError if ``folder`` exists already, where another process is writing it, where a column
    holds values of several types, where no row is left, and, unless ``keep_going``, at the first
    row to leave out.
    """
    for split in splits:
        if not _SPLIT.fullmatch(split):
            raise DataError(f"the split {split!r} is no valid name: use letters, digits, _ and .")
    refuse_address(folder)
    if folder.is_symlink() or folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already; name another folder, or remove it first")
    written = Written(folder)
    rows: Counter[str] = Counter()
    keys: dict[str, list[Any]] = {split: [] for split in splits}

    def to_write(split: str) -> Iterator[Mapping[str, Any]]:
        for item in with_bar(splits[split], total):
            if not isinstance(item, BadRow):
                rows[split] += 1
                keys[split] += [sort_key(item)] if sort_key else []
                path = item["image"].get("path")
                if path and os.path.isabs(path):  # whose folders are nobody's business
                    item = {**item, "image": {**item["image"], "path": os.path.basename(path)}}
                yield item
            elif keep_going:
                written.left_out.append(item)
            else:
                raise DataError(f"{item} (--keep-going leaves such rows out)")

    with _only_process(folder) as work:
        files: dict[str, list[Path]] = {}
        schema = None
        for split in splits:
            files[split], schema = _write_arrow(to_write(split), work / split, schema)
        if schema is None:
            why = written.left_out[0] if written.left_out else "the set is empty"
            raise DataError(f"{folder}: no row to write; {why}")
        data = work / "folder" / "data"
        data.mkdir(parents=True)
        for split, number in rows.items():
            order = sorted(range(number), key=keys[split].__getitem__) if sort_key else None
            written.shards += _write_shards(data / split, files[split], schema, order, shard_bytes)
        if written.left_out:
            lines = [json.dumps(record) + "\n" for record in written.left_out_records()]
            (data.parent / "left_out.jsonl").write_text("".join(lines))
        data.parent.rename(folder)
    written.rows = rows.total()
    return written


def with_bar(items: Iterable[_T], total: int | None = None) -> Iterable[_T]:
    """Return the items, with a bar on the error stream if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, "rows", total, console=console, disable=not console.is_terminal)


@contextmanager
def _only_process(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder`` for what is under way, removed at the end."""
    work = folder.with_name(f".{folder.name}.unfinished")
    with space_named(folder):
        work.mkdir(parents=True, exist_ok=True)
        with open(work / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise DataError(
                    f"{folder} is being written by another process; wait for it, or end it"
                ) from None
            try:
                shutil.rmtree(work / "rows", ignore_errors=True)  # of a run that was killed
                (work / "rows").mkdir()
                yield work / "rows"
            finally:
                shutil.rmtree(work)


def _write_arrow(
    rows: Iterable[Mapping[str, Any]], path: Path, schema: pa.Schema | None
) -> tuple[list[Path], pa.Schema | None]:
    """The Arrow files that the rows are in, another one wherever ``schema`` had to become wider,
    and the schema that holds all.
    """
    import pyarrow as pa

    files: list[Path] = []
    writer: pa.RecordBatchStreamWriter | None = None
    try:
        for group in _groups(rows):
            table = table_of(group)
            wider = _widest(schema or table.schema, table.schema)
            if writer is None or wider != schema:
                if writer is not None:
                    writer.close()
                files.append(path.with_name(f"{path.name}-{len(files)}.arrow"))
                writer, schema = pa.ipc.new_stream(files[-1], wider), wider
            writer.write_table(_as(schema, table))
    finally:
        if writer is not None:
            writer.close()
    return files, schema


def _groups(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    group: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["image"]["bytes"])
        if size >= GROUP_BYTES or len(group) == GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return the rows as a table; DataError names a column that no file can hold."""
    import pyarrow as pa

    types = {"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}
    types |= dict.fromkeys(TEXTS, pa.string())
    columns = {}
    for name in types | dict.fromkeys(name for row in rows for name in row):
        try:
            name.encode()
            if "\0" in name:  # where some readers end the name
                raise UnicodeError("NUL in its name")
            columns[name] = pa.array([row.get(name) for row in rows], types.get(name))
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            raise _not_storable(name, str(error)[:300]) from None
    return pa.table(columns)


def _widest(first: pa.Schema, second: pa.Schema) -> pa.Schema:
    """The schema that holds both: null becomes any type, int becomes float. Image and texts come
    first, then others by name.
    """
    import pyarrow as pa

    fields = []
    for name in ["image", *TEXTS, *sorted({*first.names, *second.names} - {"image", *TEXTS})]:
        both = [pa.schema([side.field(name)]) for side in (first, second) if name in side.names]
        try:
            fields.append(pa.unify_schemas(both, promote_options="permissive").field(0))
        except pa.ArrowException as error:
            raise _not_storable(name, str(error)) from None
    return pa.schema(fields)


def _not_storable(name: str, why: str) -> DataError:
    return DataError(
        f"the column {name!r} cannot be stored ({why}); give all its values one type that Parquet "
        "has, for instance by storing them as JSON text"
    )


def _as(schema: pa.Schema, *tables: pa.Table) -> pa.Table:
    """One table with that schema: a column that a table lacks holds nulls."""
    import pyarrow as pa

    joined = pa.concat_tables([schema.empty_table(), *tables], promote_options="permissive")
    return joined.cast(schema)


def _write_shards(
    path: Path, files: Iterable[Path], schema: pa.Schema, order: list[int] | None, size: int
) -> int:
    """Write the rows of Arrow files, in that order, as PATH-00000-of-N.parquet with about ``size``
    bytes of images each; N. The files are memory-mapped.
    """
    import pyarrow as pa
    from datasets import Dataset, DatasetInfo
    from datasets.utils import are_progress_bars_disabled as are_bars_off
    from datasets.utils import disable_progress_bars, enable_progress_bars

    tables = [pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in files]
    info = DatasetInfo(features=features_of(schema))
    # With a fingerprint given: to make one, all images would be read.
    rows = Dataset(_as(schema, *tables), info=info, fingerprint="vlrft")
    image_bytes = rows.data["image"].nbytes
    number: int = min(-(-image_bytes // size), len(rows))
    group = max(1, min(GROUP_ROWS, GROUP_BYTES * len(rows) // image_bytes))
    rows = rows if order is None else rows.select(order)
    silent = are_bars_off()
    disable_progress_bars()
    try:
        for index in range(number):
            shard = path.with_name(f"{path.name}-{index:05d}-of-{number:05d}.parquet")
            rows.shard(number, index).to_parquet(shard, batch_size=group)
            on_disk(shard)
    except pa.ArrowException as error:  # an object without any key, for instance
        raise DataError(f"{path.name} cannot be stored as Parquet: {error}") from error
    finally:
        if not silent:
            enable_progress_bars()
    return number


def features_of(schema: pa.Schema) -> Any:
    """Return the schema as ``datasets`` and the hubs name it."""
    from datasets import Features, Image

    return Features(Features.from_arrow_schema(schema) | {"image": Image()})
