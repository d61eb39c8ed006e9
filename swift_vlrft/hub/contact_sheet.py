"""A few rows of a Parquet folder as one picture, their gold boxes drawn.

contact_sheet([(Path("data/train-00000-of-00001.parquet"), 0), ...])    b"\\xff\\xd8..."
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from swift_vlrft.datasets.image import open_image
from swift_vlrft.datasets.schema import task_of
from swift_vlrft.datasets.source import DataError
from swift_vlrft.report.drawing import SIDE, draw_row

Place = tuple[Path, int]
"""A row: its file, and its number in it, from 0."""

COLUMNS = 4
GAP = 8


def contact_sheet(places: Sequence[Place]) -> bytes | None:
    """A JPEG with the rows whose image can be read, ``COLUMNS`` side by side; None without any."""
    drawn = []
    for record in records(places):
        if not isinstance(stored := record.get("image"), Mapping):
            continue
        try:
            image = open_image(stored)
        except (DataError, TypeError):
            continue
        image.thumbnail((2 * SIDE, 2 * SIDE))
        solution = record.get("solution")
        task, problem = record.get("task") or task_of(solution), record.get("problem") or ""
        frame = record.get("frame")
        drawn.append(draw_row(image, str(problem), str(solution), frame=frame, task=str(task)))
    if not drawn:
        return None
    rows = [drawn[n : n + COLUMNS] for n in range(0, len(drawn), COLUMNS)]
    heights = [max(one.height for one in row) + GAP for row in rows]
    width = len(rows[0]) * (SIDE + GAP) - GAP
    page = Image.new("RGB", (width, sum(heights) - GAP), "white")
    for number, row in enumerate(rows):
        for column, one in enumerate(row):
            page.paste(one, (column * (SIDE + GAP), sum(heights[:number])))
    buffer = io.BytesIO()
    page.save(buffer, "JPEG", quality=85, optimize=True)
    return buffer.getvalue()


def records(places: Sequence[Place]) -> list[dict[str, Any]]:
    """The rows at those places, in their order; of each file only the row groups that hold one."""
    import pyarrow.parquet as pq

    wanted: dict[Path, list[int]] = defaultdict(list)
    for path, number in places:
        wanted[path].append(number)
    found: dict[Place, dict[str, Any]] = {}
    for path, numbers in wanted.items():
        with pq.ParquetFile(path) as file:
            first = 0
            for group in range(file.num_row_groups):
                last = first + file.metadata.row_group(group).num_rows
                if inside := [n for n in numbers if first <= n < last]:
                    table = file.read_row_group(group)
                    for n in inside:
                        found[path, n] = table.slice(n - first, 1).to_pylist()[0]
                first = last
    return [found[place] for place in places]
