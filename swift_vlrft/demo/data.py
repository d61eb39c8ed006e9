"""Write a demo task's rows as a ViRFT set on disk."""

from __future__ import annotations

import io
from pathlib import Path

from swift_vlrft.demo.tasks import Row


def write_parquet(rows: list[Row], folder: Path) -> None:
    """One Parquet shard with image (PNG bytes), problem and solution; it appears only when it is
    whole.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "image": [
                {"bytes": png_bytes(row), "path": f"{i:06d}.png"} for i, row in enumerate(rows)
            ],
            "problem": [row.problem for row in rows],
            "solution": [row.solution for row in rows],
        }
    )
    half = folder / "writing"
    pq.write_table(table, half)
    half.rename(folder / "train-00000-of-00001.parquet")


def png_bytes(row: Row) -> bytes:
    buffer = io.BytesIO()
    row.image.save(buffer, "PNG")
    return buffer.getvalue()
