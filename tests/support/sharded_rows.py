"""Parquet sets in several shards whose rows bear numbers, some of them broken."""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.written_sets import png

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write_shards(
    folder: Path, shards: int, rows: int, *, group: int = 5, broken: Collection[int] = ()
) -> Path:
    """``rows`` to a shard, in row groups of ``group``; of ``broken`` numbers the image is cut."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [png((20 * i % 256, 90, 40), (32, 24)) for i in range(12)]
    for shard in range(shards):
        numbers = range(shard * rows, (shard + 1) * rows)
        images = [
            {"bytes": pictures[n % 12][: 40 if n in broken else None], "path": None}
            for n in numbers
        ]
        columns = {
            "image": pa.array(images, STRUCT),
            "problem": [f"What is shown? {n}" for n in numbers],
            "solution": ["<answer>rose</answer>"] * rows,
            "task": ["classification"] * rows,
            "number": list(numbers),
        }
        file = folder / f"train-{shard:05d}-of-{shards:05d}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=group)
    return folder
