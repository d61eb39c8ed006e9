"""Make queries for a model: rows of a data set, or categories of an annotation file's images.

    settings = Settings("org/model", Path("instances_val2017.json"), "detection")
    next(QuerySet(settings).read(Problems()))
    Query(id="397133/mouse", row=Row(problem="Detect all objects belonging to ... 'mouse' ..."))

Every process that needs the queries builds them from the settings, with the same result.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from swift_vlrft.datasets import BadRow
from swift_vlrft.datasets.box_format import row_in_box_format
from swift_vlrft.datasets.build import chosen_categories, detection_row
from swift_vlrft.datasets.coco import image_folder
from swift_vlrft.datasets.image import image_path
from swift_vlrft.datasets.instances import file_of
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.row import Row, RowLocation
from swift_vlrft.datasets.splits import WORDS
from swift_vlrft.evaluation.annotations import Annotations, open_annotations
from swift_vlrft.evaluation.predictions import Prediction, Problems, category_of
from swift_vlrft.evaluation.settings import Settings
from swift_vlrft.geometry.box_format import Size
from swift_vlrft.rewards import TASK_NAMES

SPLITS = ("test", "validation", "train")


@dataclass(frozen=True)
class Query:
    """Holds a row to ask a model, its image unopened.

    ``number`` is the row's index among all rows of its split, from 0, asked or not.
    """

    id: str
    row: Row
    number: int | None = None
    samples: int = 1

    @property
    def answer_ids(self) -> list[str]:
        """Return the id of each answer's line."""
        if self.samples == 1:
            return [self.id]
        return [f"{self.id}/{n}" for n in range(self.samples)]

    def column(self, name: str) -> str | None:
        value = self.row.columns.get(name)
        return None if value is None else str(value)

    @property
    def category(self) -> str | None:
        return self.column("category") or category_of(self.row.problem)

    def unanswered(self, sample: int = 0) -> Prediction:
        """Return the prediction of an empty answer; ``sample`` numbers several answers."""
        columns, image = self.row.columns, self.row.image
        box_format, width, height = map(columns.get, ("frame", "width", "height"))
        return Prediction(
            id=self.answer_ids[sample],
            completion="",
            solution=self.row.solution,
            image_id=self.column("image_id") or "",
            category=self.category,
            box_format=box_format,
            prompt=self.row.problem,
            task=columns.get("task"),
            aliases=columns.get("aliases"),
            tolerance=columns.get("tolerance"),
            row=self.number,
            image=image.get("path") if image.get("bytes") is None else None,
            seen=(width, height) if box_format == "pixels" and width and height else None,
            sample=None if self.samples == 1 else sample,
        )

    def rewritten(self, frame: str, size: Size, seen: Size, key: str | None = None) -> Query:
        """Return the query in another box format; ``seen`` is ``size`` as the model resizes it."""
        return replace(self, row=row_in_box_format(self.row, frame, size, seen, key))


def default_split(dataset: Path) -> str:
    """Return the first of SPLITS that the set has; the last if it has none of them."""
    names = {WORDS.get(name.lower(), name) for name in splits_of(dataset)}
    return next((split for split in SPLITS if split in names), SPLITS[-1])


class QuerySet:
    """Holds the queries of an evaluation; an annotation file is decoded once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def annotations(self) -> Annotations | None:
        return open_annotations(self.settings.dataset)

    @cached_property
    def count(self) -> int:
        """Count the answers to ask for, without reading images."""
        return self.settings.samples * sum(1 for _ in self.read(Problems(), without_images=True))

    def read(self, problems: Problems, *, without_images: bool = False) -> Iterator[Query]:
        """Read the queries in order; rows that cannot be read are counted in ``problems``."""
        if self.annotations is not None:
            yield from self._of_annotations(self.annotations, problems)
            return
        asked = self._asked
        for query in self._rows(problems, without_images):
            if asked is None or query.number in asked:
                yield query

    def problems(self) -> Iterator[str]:
        """Yield each contradiction in the settings, and each name of something missing."""
        settings = self.settings
        if settings.task not in TASK_NAMES:
            yield f"unknown task {settings.task!r}; known: {', '.join(TASK_NAMES)}"
        if not settings.dataset.exists():
            yield f"the data set {settings.dataset} does not exist (from {Path.cwd()})"
        if settings.categories and settings.task != "detection":
            yield f"--categories is for detection, not {settings.task}"
        if self.annotations is not None and settings.task != "detection":
            yield f"{settings.dataset} holds boxes: give --task detection"
        if settings.samples > 1 and settings.temperature <= 0:
            yield (
                f"--samples {settings.samples} at --temperature 0: every answer to a row would be "
                "the same; GRPO samples at --temperature 1"
            )
        if settings.max_turns > 1 and settings.samples > 1:
            yield "--max-turns takes one answer per row; leave --samples out"
        if not self.count:
            next(self.read(others := Problems(), without_images=True), None)
            yield f"{settings.dataset} holds no query of task {settings.task}: {others}"

    # ---- a set of rows -----------------------------------------------------------------------

    def _rows(self, problems: Problems, without_images: bool) -> Iterator[Query]:
        settings = self.settings
        opened = open_set(
            settings.dataset,
            split=settings.split or default_split(settings.dataset),
            root=settings.images,
            task=settings.task,
        )
        # Without a task column the form of the set implies one (LISA); the caller's task wins.
        has_task = "task" in getattr(opened, "columns", ())
        for number, row in enumerate(rows_of(opened, without_images=without_images)):
            if isinstance(row, BadRow):
                problems.add("rows of the data set that cannot be read, skipped", row.place)
            elif has_task and (task := row.columns.get("task")) not in (None, settings.task):
                problems.add(f"rows of the task {task}, skipped", row.place)
            else:
                row = replace(row, columns=row.columns | {"task": settings.task})
                yield Query(str(number), row, number, settings.samples)

    @cached_property
    def _asked(self) -> set[int | None] | None:
        """The numbers of the sampled rows, or of those of a category; None if all are asked."""
        settings, most = self.settings, self.settings.max_queries
        if most is None and not settings.categories:
            return None
        rows = {q.number: q.category for q in self._rows(Problems(), without_images=True)}
        asked = set(rows)
        if most is not None and most < len(rows):
            asked &= set(random.Random(settings.seed).sample(list(rows), most))
        if settings.categories:
            known = sorted({name for name in rows.values() if name is not None})
            chosen = chosen_categories(settings.categories, known)
            asked = {number for number in asked if rows[number] in chosen}
        return asked

    # ---- an annotation file ------------------------------------------------------------------

    def _of_annotations(self, annotations: Annotations, problems: Problems) -> Iterator[Query]:
        settings, instances = self.settings, annotations.instances
        chosen = annotations.chosen(settings.categories)
        every = product(instances.images, chosen)
        pairs = [pair for pair in every if annotations.is_told(*pair)]
        if settings.max_queries is not None and settings.max_queries < len(pairs):
            order = random.Random(settings.seed).sample(range(len(pairs)), settings.max_queries)
            pairs = [pairs[n] for n in sorted(order)]
        folder = image_folder(instances, settings.images)
        for image, category in pairs:
            name = chosen[category]
            try:
                path = image_path(file_of(instances.images[image]) or "", folder, folder)
            except ValueError as error:
                problems.add("rows of the data set that cannot be read, skipped", error)
                continue
            columns = detection_row(str(path), name, instances.boxes[category].get(image, []))
            row = Row(
                RowLocation(instances.path),
                {"bytes": None, "path": columns.pop("image")},
                columns.pop("problem"),
                columns.pop("solution"),
                columns | {"image_id": str(image)},
                annotations.annotated_size(image),
            )
            yield Query(f"{image}/{name}", row, samples=settings.samples)
