"""A ViRFT-style Parquet folder, ready for a hub; it appears under its name only when it is whole.

    write_folder(Path("shapes"), {"train": rows}, identity="any text")

    in    {"image": {"bytes": b"\\x89PNG...", "path": "1.png"}, "problem": "Detect all dogs.",
           "solution": "<answer>No Objects</answer>", "task": "detection", "frame": "norm1000"}
    out   shapes/data/train-00000-of-00001.parquet
          shapes/README.md

What is under way lies in ``.shapes.unfinished`` beside it: shards that are finished, one that is
half written, and ``progress.json``, which says how far the finished ones reach. After a kill the
same call goes on behind the last finished shard, and what comes out is the same, byte by byte, as
without the kill: a shard depends on its own rows and on the columns of those before, on no clock
and no chance.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.card import write_card
from swift_vlrft.datasets.shard import ShardWriter, recast, schema_of, widest
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.splits import walked

SHARD_BYTES = 256 * 2**20
GROUP_BYTES = 16 * 2**20
GROUP_ROWS = 100
"""A row group ends at either: small ones let a viewer fetch a few rows, and bound the memory."""


_SPLIT = re.compile(r"\w+(?:\.\w+)*")
"""What the hubs and ``datasets`` take as the name of a split."""


@dataclass(frozen=True)
class LeftOut:
    """A row that is not written: where it stands in its source, and what is wrong with it."""

    place: str
    reason: str


Item = Mapping[str, Any] | LeftOut
Rows = Callable[[int], Iterator[Item]]
"""``rows(n)`` gives the items of a split from the n-th on; they must be the same at every call."""


@dataclass
class Shard:
    """What is known of a finished shard; ``read`` counts the items of its split up to its end."""

    split: str
    number: int
    rows: int = 0
    read: int = 0
    image_bytes: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    left_out: list[dict[str, str]] = field(default_factory=list)

    @property
    def half_name(self) -> str:
        return f"{self.split}-{self.number:05d}.parquet"

    def add(self, item: Item) -> None:
        self.read += 1
        if isinstance(item, LeftOut):
            self.left_out.append(asdict(item))
            return
        self.rows += 1
        self.image_bytes += len(item["image"]["bytes"])
        for counts, value in ((self.tasks, item.get("task")), (self.frames, item.get("frame"))):
            if value is not None:
                counts[value] = counts.get(value, 0) + 1

    def take(self, group: Shard) -> None:
        """Add a group's counts."""
        self.rows += group.rows
        self.read += group.read
        self.image_bytes += group.image_bytes
        for mine, theirs in ((self.tasks, group.tasks), (self.frames, group.frames)):
            mine.update({name: mine.get(name, 0) + count for name, count in theirs.items()})
        self.left_out += group.left_out


@dataclass(frozen=True)
class Written:
    """The finished folder; ``resumed`` rows of it were there from an earlier, killed call."""

    folder: Path
    shards: list[Shard]
    resumed: int

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def left_out(self) -> list[LeftOut]:
        return [LeftOut(**one) for shard in self.shards for one in shard.left_out]


def write_folder(
    folder: Path,
    splits: Mapping[str, Rows],
    *,
    identity: str,
    title: str | None = None,
    notes: str = "",
    on_item: Callable[[int], None] = lambda n: None,
    shard_bytes: int = SHARD_BYTES,
    group_bytes: int = GROUP_BYTES,
) -> Written:
    """Write every split's rows to ``folder``; return what was written.

    ``identity`` says what is being written (source, options); an unfinished folder of another
    identity is begun anew. ``on_item(n)`` hears of every n items done. ``notes`` go into the card.
    Raises DataError where ``folder`` is there already, where another process is at it, where a
    column holds values of several types, and where no row is left.
    """
    for split in splits:
        if not _SPLIT.fullmatch(split):
            raise DataError(f"the split {split!r} is no name: letters, digits, _ and . make one")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is there already; name another folder, or remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = folder.parent / f".{folder.name}.unfinished"
    with _only_process(staging, folder):
        made = staging / "folder"
        data = made / "data"
        shards = _finished_shards(staging, data, identity)
        data.mkdir(parents=True, exist_ok=True)
        resumed = sum(shard.rows for shard in shards)
        for split, rows in splits.items():
            mine = [shard for shard in shards if shard.split == split]
            on_item(sum(len(shard.left_out) + shard.rows for shard in mine))
            for shard in _write_split(split, rows, mine, data, shard_bytes, group_bytes, on_item):
                shards.append(shard)
                _write_text(
                    staging / "progress.json",
                    json.dumps({"identity": identity, "shards": [asdict(s) for s in shards]}),
                )
        shards = [s for split in splits for s in shards if s.split == split]
        written = Written(folder, shards, resumed)
        if not written.rows:
            first = next(
                (f"{one.place}: {one.reason}" for one in written.left_out), "the set is empty"
            )
            raise DataError(f"{folder}: no row to write; {first}")
        _finish(made, written, title or folder.name, notes)
        made.rename(folder)
        shutil.rmtree(staging)
    return written


def state_of(source: Path) -> str:
    """A digest of the names, sizes and times of the files at ``source``: for ``identity``."""
    files = walked(source) if source.is_dir() else [source]
    digest = sha256(str(source.resolve()).encode())
    for file in files:
        if file.is_file():
            stat = file.stat()
            digest.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@contextmanager
def _only_process(staging: Path, folder: Path) -> Iterator[None]:
    staging.mkdir(exist_ok=True)
    with open(staging / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"{folder} is being written by another process; wait for it, or end it"
            ) from None
        yield


def _finished_shards(staging: Path, data: Path, identity: str) -> list[Shard]:
    """The shards of an earlier call with this identity; all else that lies there is removed."""
    try:
        found = json.loads((staging / "progress.json").read_text())
        shards = [Shard(**one) for one in found["shards"]] if found["identity"] == identity else []
        names = {shard.half_name for shard in shards if shard.rows}
    except (OSError, ValueError, KeyError, TypeError):
        shards, names = [], set()
    if data.is_dir():
        for file in data.iterdir():
            # A kill while the shards were given their last names: back to the first ones.
            split, number, *_ = [*file.stem.split("-"), ""]
            first = file.with_name(f"{split}-{number}.parquet")
            if file.name != first.name and first.name in names and not first.exists():
                file.rename(first)
            elif file.name not in names:
                file.unlink()
    if not all((data / name).is_file() for name in names):
        raise DataError(f"{staging} lacks a shard that it had; remove this folder and start again")
    if not shards:
        shutil.rmtree(staging / "folder", ignore_errors=True)
        (staging / "progress.json").unlink(missing_ok=True)
    return shards


def _write_split(
    split: str,
    rows: Rows,
    finished: list[Shard],
    data: Path,
    shard_bytes: int,
    group_bytes: int,
    on_item: Callable[[int], None],
) -> Iterator[Shard]:
    """Write what is left of a split; yield every shard when it is whole."""
    shard = Shard(split, len(finished), read=finished[-1].read if finished else 0)
    start = shard.read
    schemas = [schema_of(data / one.half_name) for one in finished if one.rows]
    writer = None
    for counts, group in _groups(split, rows(start), group_bytes, on_item):
        if group:
            wanted = widest([*schemas, schema_of(group)])
            # The shard is full, or the columns grew, which a Parquet file cannot.
            if writer is not None and (shard.image_bytes >= shard_bytes or [wanted] != schemas):
                writer.close()
                yield shard
                shard, writer = Shard(split, shard.number + 1, read=shard.read), None
            schemas = [wanted]
            if writer is None:
                writer = ShardWriter(data / shard.half_name, wanted)
            writer.write(group)
        shard.take(counts)
    if writer is not None:
        writer.close()
    if shard.read > start:
        yield shard


def _groups(
    split: str, items: Iterator[Item], group_bytes: int, on_item: Callable[[int], None]
) -> Iterator[tuple[Shard, list[Mapping[str, Any]]]]:
    """The items in row groups, each with its counts."""
    counts, group = Shard(split, 0), []
    for item in items:
        counts.add(item)
        on_item(1)
        if not isinstance(item, LeftOut):
            group.append(item)
        if len(group) >= GROUP_ROWS or counts.image_bytes >= group_bytes:
            yield counts, group
            counts, group = Shard(split, 0), []
    if counts.read:
        yield counts, group


def _finish(made: Path, written: Written, title: str, notes: str) -> None:
    """One schema for all shards, their last names, what was left out, and the card at the end."""
    data = made / "data"
    with_rows = [shard for shard in written.shards if shard.rows]
    schema = widest([schema_of(data / shard.half_name) for shard in with_rows])
    for shard in with_rows:
        recast(data / shard.half_name, schema)
    names = {}
    for split in dict.fromkeys(shard.split for shard in with_rows):
        mine = [shard for shard in with_rows if shard.split == split]
        for number, shard in enumerate(mine):
            names[shard.half_name] = f"{split}-{number:05d}-of-{len(mine):05d}.parquet"
    if written.left_out:
        _write_text(
            made / "left_out.jsonl",
            "".join(json.dumps(asdict(one)) + "\n" for one in written.left_out),
        )
    write_card(made / "README.md", title, with_rows, schema, notes)
    for half, name in names.items():
        (data / half).rename(data / name)


def _write_text(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".writing")
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
