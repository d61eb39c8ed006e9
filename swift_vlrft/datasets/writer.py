"""A ViRFT-style Parquet folder, ready for a hub; it appears under its name when it is complete.

    write_folder(Path("shapes"), {"train": rows})

    in    {"image": {"bytes": b"\\x89PNG...", "path": "1.png"}, "problem": "Detect all dogs.",
           "solution": "<answer>No Objects</answer>", "task": "detection", "frame": "norm1000"}
    out   shapes/data/train-00000-of-00001.parquet
          shapes/README.md

Rows go to disk in small groups; when the columns of all are known, the groups become shards. Until
then everything lies in ``.shapes.unfinished``. What a killed run leaves there is removed by the
next one, which starts from the first row: the same rows give the same bytes.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.card import write_card
from swift_vlrft.datasets.shard import Item, LeftOut, SplitCounts, table_of, widest, write_shard
from swift_vlrft.datasets.source import DataError

if TYPE_CHECKING:
    import pyarrow as pa

SHARD_BYTES = 256 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 100
"""A row group ends at either: small ones let a viewer fetch a few rows, and bound the memory."""

_SPLIT = re.compile(r"\w+(?:\.\w+)*")
"""What the hubs and ``datasets`` take as the name of a split."""


@dataclass
class Written:
    """The finished folder. ``counts`` and ``notes`` are what the maker of the rows has to say."""

    folder: Path
    rows: int = 0
    shards: int = 0
    left_out: list[LeftOut] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def write_folder(
    folder: Path,
    splits: Mapping[str, Iterable[Item]],
    *,
    about: str = "",
    on_item: Callable[[int], None] = lambda n: None,
    shard_bytes: int = SHARD_BYTES,
) -> Written:
    """Write every split's rows to ``folder``. ``about`` goes into the card; ``on_item(1)`` is
    called for every row.

    DataError if ``folder`` exists already, where another process is writing it, where a column
    holds values of several types, and where no row is left.
    """
    for split in splits:
        if not _SPLIT.fullmatch(split):
            raise DataError(f"the split {split!r} is no name: letters, digits, _ and . make one")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already; name another folder, or remove it first")
    written = Written(folder)
    with _only_process(folder) as staging:
        counts = {split: SplitCounts() for split in splits}
        groups: dict[str, list[tuple[Path, int]]] = {split: [] for split in splits}
        schema = None
        for split, items in splits.items():
            rows = _kept(items, counts[split], written.left_out, on_item)
            for number, group in enumerate(_groups(rows)):
                path = staging / f"{split}-{number}.arrow"
                schema = _write_group(group, path, schema)
                size = sum(len(row["image"]["bytes"]) for row in group)
                groups[split].append((path, size))
        if schema is None:
            why = written.left_out[0] if written.left_out else "the set is empty"
            raise DataError(f"{folder}: no row to write; {why}")
        data = staging / "folder" / "data"
        data.mkdir(parents=True)
        for split, made in groups.items():
            shards = list(_shards(made, shard_bytes))
            for number, shard in enumerate(shards):
                name = f"{split}-{number:05d}-of-{len(shards):05d}.parquet"
                write_shard(data / name, shard, schema)
            written.shards += len(shards)
        if written.left_out:
            lines = [json.dumps(asdict(one)) + "\n" for one in written.left_out]
            (data.parent / "left_out.jsonl").write_text("".join(lines))
        filled = {split: one for split, one in counts.items() if one.rows}
        write_card(data.parent / "README.md", folder.name, filled, schema, about)
        data.parent.rename(folder)
    written.rows = sum(one.rows for one in counts.values())
    return written


@contextmanager
def _only_process(folder: Path) -> Iterator[Path]:
    """An empty folder beside ``folder`` for what is under way, removed at the end."""
    staging = folder.parent / f".{folder.name}.unfinished"
    staging.mkdir(parents=True, exist_ok=True)
    with open(staging / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"{folder} is being written by another process; wait for it, or end it"
            ) from None
        try:
            for left in staging.glob("*.arrow"):
                left.unlink()
            shutil.rmtree(staging / "folder", ignore_errors=True)
            yield staging
        finally:
            shutil.rmtree(staging)


def _kept(
    items: Iterable[Item],
    counts: SplitCounts,
    left_out: list[LeftOut],
    on_item: Callable[[int], None],
) -> Iterator[Mapping[str, Any]]:
    for item in items:
        on_item(1)
        if isinstance(item, LeftOut):
            left_out.append(item)
        else:
            counts.add(item)
            yield item


def _groups(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    group: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["image"]["bytes"])
        if len(group) == GROUP_ROWS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _write_group(group: list[Mapping[str, Any]], path: Path, schema: pa.Schema | None) -> pa.Schema:
    """Write it as it is; the schema that holds it, too."""
    from pyarrow import feather

    table = table_of(group)
    feather.write_feather(table, path, compression="uncompressed")
    return table.schema if schema is None else widest(schema, table.schema)


def _shards(groups: Iterable[tuple[Path, int]], shard_bytes: int) -> Iterator[list[Path]]:
    shard: list[Path] = []
    size = 0
    for path, image_bytes in groups:
        shard.append(path)
        size += image_bytes
        if size >= shard_bytes:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard
