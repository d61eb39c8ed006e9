"""Write a demo task's rows as a ViRFT set on disk."""

from pathlib import Path

from support.stored_sets import write_table

from swift_vlrft.demo.rows import Row, stored


def write_parquet(rows: list[Row], folder: Path) -> None:
    """One Parquet shard with image (PNG bytes), problem, solution and the rows' further columns."""
    made = [stored(row) for row in rows]
    columns = {
        name: [row.get(name) for row in made] for name in {n: 0 for row in made for n in row}
    }
    write_table(folder / "train-00000-of-00001.parquet", columns)
