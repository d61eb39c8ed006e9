"""What a model is asked: the rows of a data set, or categories of the images of an annotation file.

    settings = Settings("org/model", Path("instances_val2017.json"), "detection", protocol="all",
                        categories=("coco-novel15",), max_queries=2000)
    next(QuerySet(settings).read(Problems()))
    Query(id="397133/mouse", problem="Detect all objects belonging to the category 'mouse' ...")

Every process that needs the queries makes them again, the same: nothing but settings is handed
over.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from swift_vlrft.datasets import BadRow, DataError
from swift_vlrft.datasets.build import NO_OBJECTS, PROMPT, chosen_categories
from swift_vlrft.datasets.category_lists import CATEGORY_LISTS
from swift_vlrft.datasets.coco_json import image_folder
from swift_vlrft.datasets.image import image_path
from swift_vlrft.datasets.instances import file_of, refuse_shared_files
from swift_vlrft.datasets.read import open_set, rows_of
from swift_vlrft.datasets.row import Drawn
from swift_vlrft.evaluation.annotations import Annotations, open_annotations
from swift_vlrft.evaluation.predictions import EVALUATED, EvaluationError, Problems, category_of
from swift_vlrft.files.jsonl import read_json
from swift_vlrft.files.records import as_json

QUERY_PROTOCOLS = ("all", "visual-rft")
SPLITS = ("test", "validation", "train")


class Settings(msgspec.Struct, frozen=True):
    """Everything that decides which queries a model gets, and how. Part of ``run.json``."""

    model: str
    dataset: Path
    task: str
    split: str | None = None
    images: Path | None = None
    protocol: str | None = None
    categories: tuple[str, ...] = ()
    existence_map: Path | None = None
    max_queries: int | None = None
    seed: int = 0
    max_tokens: int = 1024
    temperature: float = 0.0
    engine: str = "auto"
    base_model: str | None = None
    batch_size: int = 8
    dtype: str | None = None
    engine_options: dict[str, Any] = {}
    box_format: str = msgspec.field(default="norm1000", name="frame")
    resolution: dict[str, str] = {}
    """The variables that bound an image's size, as they were set: ``MAX_PIXELS`` and the like."""

    def identity(self) -> str:
        """The same for settings that give the same predictions, however they are computed."""
        decisive = {k: v for k, v in as_json(self).items() if k not in ("engine", "batch_size")}
        return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Query:
    """One query to the model. ``image`` is {"bytes", "path"}, unopened."""

    id: str
    problem: str
    solution: str
    image: dict[str, Any]
    place: Any
    image_id: str | None = None
    category: str | None = None
    box_format: str | None = None
    aliases: Any = None
    row: int | None = None
    drawn: Drawn | None = None
    key: str | None = None
    """The set's own column ``id``."""


class QuerySet:
    """The queries of an evaluation; an annotation file is decoded once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def annotations(self) -> Annotations | None:
        return open_annotations(self.settings.dataset)

    @cached_property
    def count(self) -> int:
        """How many there are, images left unread."""
        return sum(1 for _ in self.read(Problems(), without_images=True))

    def read(self, problems: Problems, *, without_images: bool = False) -> Iterator[Query]:
        """The queries in order; rows that cannot be read are counted in ``problems``."""
        if self.annotations is not None:
            yield from self._of_annotations(self.annotations, problems)
            return
        sample, chosen = self._sample, self._chosen
        for number, row in enumerate(self._rows(problems, without_images)):
            category = _category(row)
            if (sample is not None and number not in sample) or (
                chosen is not None and category not in chosen
            ):
                continue
            columns = row.columns
            yield Query(
                id=str(number),
                problem=row.problem,
                solution=row.solution,
                image=row.image,
                place=row.place,
                image_id=_text(columns.get("image_id")),
                category=category,
                box_format=columns.get("frame"),
                aliases=columns.get("aliases"),
                row=number,
                drawn=row.drawn,
                key=_text(columns.get("id")),
            )

    def check(self) -> None:
        """EvaluationError where the settings do not fit together or name files that are not
        there.
        """
        given = self.settings
        if given.task not in EVALUATED:
            raise EvaluationError(f"unknown task {given.task!r}; known: {', '.join(EVALUATED)}")
        if not given.dataset.exists():
            raise EvaluationError(
                f"the data set {given.dataset} does not exist (from {Path.cwd()})"
            )
        chosen = given.protocol or given.existence_map or given.categories
        if chosen and given.task != "detection":
            raise EvaluationError(
                "--protocol, --categories and --exist-map are of detection, not of " + given.task
            )
        if given.protocol not in (None, *QUERY_PROTOCOLS):
            raise EvaluationError(
                f"unknown protocol {given.protocol!r}; a model is asked by "
                + " or ".join(QUERY_PROTOCOLS)
            )
        if given.protocol == "visual-rft" and given.existence_map is None:
            raise EvaluationError(
                "--protocol visual-rft asks only categories of an existence map: give it with "
                "--exist-map FILE, a JSON object of image id: [category, ...]"
            )
        if given.existence_map is not None and given.protocol != "visual-rft":
            raise EvaluationError("--exist-map is of --protocol visual-rft")
        if given.protocol is not None and self.annotations is None:
            raise EvaluationError(
                f"--protocol {given.protocol} makes its queries from an annotation file such as "
                f"instances_val2017.json; {given.dataset} holds its own"
            )
        if self.annotations is not None and given.task != "detection":
            raise EvaluationError(f"{given.dataset} holds boxes: --task detection")
        if not self.count:
            raise EvaluationError(f"{given.dataset} holds no query of task {given.task}")

    # ---- a set of rows -----------------------------------------------------------------------

    def _rows(self, problems: Problems, without_images: bool) -> Iterator[Any]:
        given = self.settings
        splits = (given.split,) if given.split else SPLITS
        for split in splits:
            try:
                opened = open_set(given.dataset, split=split, keep_going=True)
                break
            except DataError as error:
                if "split" not in str(error) or split == splits[-1]:
                    raise
        # Where no column says the task, the form of the set does (LISA); what the caller says goes.
        has_task = "task" in getattr(opened, "columns", ())
        for row in rows_of(opened, root=given.images, without_images=without_images):
            if isinstance(row, BadRow):
                problems.add("rows of the data set that cannot be read, not asked", row.place)
            elif has_task and row.columns.get("task") not in (None, given.task):
                problems.add("rows of another task, not asked", row.place)
            else:
                yield row

    @cached_property
    def _sample(self) -> set[int] | None:
        """The numbers of the rows that are asked; None: all."""
        most = self.settings.max_queries
        if most is None:
            return None
        total = sum(1 for _ in self._rows(Problems(), without_images=True))
        if most >= total:
            return None
        return set(random.Random(self.settings.seed).sample(range(total), most))

    @cached_property
    def _chosen(self) -> set[str] | None:
        """The categories that are asked: names that the set has, and of a named list those that it
        has. DataError where a name is unknown.
        """
        given = self.settings
        if not given.categories:
            return None
        rows = self._rows(Problems(), without_images=True)
        known = sorted({name for row in rows if (name := _category(row)) is not None})
        chosen: set[str] = set()
        for value in given.categories:
            for name in [value] if value in known else [part.strip() for part in value.split(",")]:
                if name in CATEGORY_LISTS and name not in known:
                    chosen |= set(CATEGORY_LISTS[name]) & set(known)
                else:
                    chosen |= set(chosen_categories([name], known))
        if not chosen:
            raise EvaluationError(
                f"--categories {' '.join(given.categories)}: {given.dataset} asks for none of "
                f"them, but for {', '.join(known[:100]) or 'no category'}"
            )
        return chosen

    # ---- an annotation file ------------------------------------------------------------------

    def _of_annotations(self, annotations: Annotations, problems: Problems) -> Iterator[Query]:
        given, found = self.settings, annotations.instances
        refuse_shared_files(found)
        chosen = annotations.chosen(given.categories)
        if given.protocol == "visual-rft":
            pairs = self._of_existence_map(annotations, problems)
        else:
            # LVIS says of some categories only whether an image holds them.
            pairs = [
                (image, category)
                for image in found.images
                for category in chosen
                if found.absent is None
                or image in found.boxes[category]
                or image in found.absent[category]
            ]
        pairs = [pair for pair in pairs if pair[1] in chosen]
        if given.max_queries is not None and given.max_queries < len(pairs):
            order = random.Random(given.seed).sample(range(len(pairs)), given.max_queries)
            pairs = [pairs[n] for n in sorted(order)]
        folder = image_folder(found, given.images)
        for image, category in pairs:
            entry, name = found.images[image], chosen[category]
            gold = [
                {"Position": list(box), "Confidence": 1}
                for box in found.boxes[category].get(image, [])
            ]
            try:
                path = image_path(file_of(entry) or "", folder, folder)
            except ValueError as error:
                problems.add("rows of the data set that cannot be read, not asked", error)
                continue
            yield Query(
                id=f"{image}/{name}",
                problem=PROMPT.format(category=name),
                solution=f"<answer>{gold}</answer>" if gold else NO_OBJECTS,
                image={"bytes": None, "path": str(path)},
                place=None,
                image_id=str(image),
                category=name,
                box_format="norm1000",
                drawn=annotations.drawn(image),
            )

    def _of_existence_map(
        self, annotations: Annotations, problems: Problems
    ) -> list[tuple[Any, Any]]:
        """Pairs of image and category that Visual-RFT's map names."""
        path = self.settings.existence_map
        assert path is not None
        try:
            content = read_json(path)
        except (OSError, ValueError) as error:
            raise EvaluationError(f"--exist-map {path} cannot be read ({error})") from error
        if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
            raise EvaluationError(
                f"--exist-map {path}: a JSON object of image id: [category, ...] is needed"
            )
        ids = {name: c for c, name in annotations.instances.categories.items()}
        images = {str(image): image for image in annotations.instances.images}
        for key in content:
            if key not in images:
                problems.add("images of the existence map that the annotations lack", key)
        pairs = []
        for key, image in images.items():
            for name in dict.fromkeys(map(str, content.get(key, ()))):
                if name in ids:
                    pairs.append((image, ids[name]))
                else:
                    problems.add("categories of the existence map that the annotations lack", name)
        return pairs


def _category(row: Any) -> str | None:
    return _text(row.columns.get("category") or category_of(row.problem))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
