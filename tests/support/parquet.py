"""Write a demo task's rows as a ViRFT set on disk."""

from __future__ import annotations

import io
from pathlib import Path

from swift_vlrft.demo.rows import Row
from swift_vlrft.files.writing import beside


def write_parquet(rows: list[Row], folder: Path) -> None:
    """One Parquet shard with image (PNG bytes), problem, solution and the rows' further columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = [{"bytes": png_bytes(row), "path": f"{i:06d}.png"} for i, row in enumerate(rows)]
    columns = {
        "image": images,
        "problem": [row.problem for row in rows],
        "solution": [row.solution for row in rows],
    }
    further = dict.fromkeys(name for row in rows for name in row.columns)
    columns |= {name: [row.columns.get(name) for row in rows] for name in further}
    with beside(folder / "train-00000-of-00001.parquet") as unfinished:
        pq.write_table(pa.table(columns), unfinished)


def png_bytes(row: Row) -> bytes:
    buffer = io.BytesIO()
    row.image.save(buffer, "PNG")
    return buffer.getvalue()
