"""The rows of a set as queries that a model answers several times, for `vlrft data difficulty`.

    settings = Settings("org/model", Path("data/my_set"), "", samples=8, temperature=1.0)
    next(queries_of(settings).read(Problems())).answer_ids      ["0/0", "0/1", ..., "0/7"]

Each row keeps the task that it states; a query's number is that of its row among all that the
split holds, bad ones included.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import BadRow, Row
from swift_vlrft.datasets.storage import StoredSet
from swift_vlrft.datasets.validate import row_problem
from swift_vlrft.evaluation.predictions import Problems
from swift_vlrft.evaluation.queries import Query, QuerySet, Settings


class SampledSet(QuerySet):
    """The queries of a run with several answers per row."""

    annotations = None  # COCO's are rows, too

    @cached_property
    def count(self) -> int:
        """The number of answers."""
        return self.settings.samples * sum(1 for _ in self.read(Problems(), without_images=True))

    def read(self, problems: Problems, *, without_images: bool = False) -> Iterator[Query]:
        for number, row in enumerate(rows_of(self.stored(), without_images=without_images)):
            if isinstance(row, BadRow) or (problem := row_problem(row)) is not None:
                bad = row if isinstance(row, BadRow) else problem
                problems.add("rows of the data set that cannot be trained on, skipped", bad)
            else:
                yield Query(str(number), row, number, self.settings.samples)

    def rows(self) -> Iterator[Row | BadRow]:
        """Every row, and what cannot be read."""
        return rows_of(self.stored())

    def stored(self) -> StoredSet:
        """DataError if there is no such set, split or column."""
        settings = self.settings
        return open_set(
            settings.dataset,
            split=settings.split or "train",
            keep_going=True,
            root=settings.images,
            task=settings.task or None,
            rename=settings.rename,
        )

    def problems(self) -> Iterator[str]:
        if not self.settings.dataset.exists():
            yield f"the data set {self.settings.dataset} does not exist (from {Path.cwd()})"
        elif not self.count:
            found = Problems()
            list(self.read(found, without_images=True))
            first = next((named[0] for named in found.examples.values()), "it is empty")
            yield f"{self.settings.dataset} holds no row that can be trained on: {first}"


def queries_of(settings: Settings) -> QuerySet:
    """What a run with these settings asks."""
    return SampledSet(settings) if settings.samples else QuerySet(settings)
