"""What a model is asked: the rows of a data set, or categories of the images of an annotation file.

    Settings(dataset=Path("instances_val2017.json"), task="detection", protocol="all",
             categories=("coco-novel15",), max_queries=2000)
    Question(id="397133/mouse", problem="Detect all objects belonging to the category 'mouse' ...")

Questions are made anew, the same, by every process that needs them: nothing but settings is handed
over.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.row import Drawn
from swift_vlrft.evaluation.predictions import (
    EVALUATED,
    EvaluationError,
    Problems,
    category_of,
)
from swift_vlrft.files.jsonl import read_json

ASKED = ("all", "visual-rft")
SPLITS = ("test", "validation", "train")


@dataclass(frozen=True)
class Settings:
    """Everything that decides which questions are asked, and how."""

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
    engine_options: dict[str, Any] = field(default_factory=dict)
    frame: str = "norm1000"
    """What boxes are asked in: norm1000, or pixels as the model sees the picture."""
    resolution: dict[str, str] = field(default_factory=dict)
    """The variables that bound a picture's size, as they were set: ``MAX_PIXELS`` and the like."""

    def as_dict(self) -> dict[str, Any]:
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        made = dict(values)
        for key in ("dataset", "images", "existence_map"):
            made[key] = None if made.get(key) is None else Path(made[key])
        return cls(**{**made, "categories": tuple(made["categories"])})

    def identity(self) -> str:
        """The same for settings that give the same predictions, however they are computed."""
        free = ("engine", "batch_size")
        decided = {k: v for k, v in self.as_dict().items() if k not in free}
        return sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Question:
    """One question to the model. ``image`` is {"bytes", "path"}, unopened."""

    id: str
    problem: str
    solution: str
    image: dict[str, Any]
    place: Any
    image_id: str | None = None
    category: str | None = None
    frame: str | None = None
    aliases: Any = None
    row: int | None = None
    drawn: Drawn | None = None
    key: str | None = None
    """The set's own column ``id``."""


def is_annotation_file(path: Path) -> bool:
    from swift_vlrft.datasets.coco_json import CocoFile
    from swift_vlrft.datasets.opening import find_set

    return path.is_file() and path.suffix == ".json" and isinstance(find_set(path), CocoFile)


def check_settings(settings: Settings) -> None:
    """EvaluationError where the settings do not fit together or name files that are not there."""
    if settings.task not in EVALUATED:
        raise EvaluationError(f"unknown task {settings.task!r}; known: {', '.join(EVALUATED)}")
    if not settings.dataset.exists():
        raise EvaluationError(f"the data set {settings.dataset} does not exist (from {Path.cwd()})")
    asked = settings.protocol or settings.existence_map or settings.categories
    if asked and settings.task != "detection":
        raise EvaluationError(
            f"--protocol, --categories and --exist-map are of detection, not of {settings.task}"
        )
    annotated = is_annotation_file(settings.dataset)
    if settings.protocol not in (None, *ASKED):
        raise EvaluationError(
            f"unknown protocol {settings.protocol!r}; a model is asked by {' or '.join(ASKED)}"
        )
    if settings.protocol == "visual-rft" and settings.existence_map is None:
        raise EvaluationError(
            "--protocol visual-rft asks only categories of an existence map: give it with "
            "--exist-map FILE, a JSON object of image id: [category, ...]"
        )
    if settings.existence_map is not None and settings.protocol != "visual-rft":
        raise EvaluationError("--exist-map is of --protocol visual-rft")
    if settings.protocol is not None and not annotated:
        raise EvaluationError(
            f"--protocol {settings.protocol} makes its questions from an annotation file such as "
            f"instances_val2017.json; {settings.dataset} asks its own"
        )
    if annotated and settings.task != "detection":
        raise EvaluationError(f"{settings.dataset} holds boxes: --task detection")


def questions(settings: Settings, problems: Problems) -> Iterator[Question]:
    """The questions in order; rows that cannot be read are counted in ``problems``."""
    if is_annotation_file(settings.dataset):
        yield from _of_annotations(settings, problems)
        return
    picked = _sample(settings, problems)
    chosen = _chosen(settings) if settings.categories else None
    for number, row in enumerate(_rows(settings, problems)):
        if picked is not None and number not in picked:
            continue
        columns = row.columns
        category = _category(row)
        if chosen is not None and category not in chosen:
            continue
        key = columns.get("image_id")
        yield Question(
            id=str(number),
            problem=row.problem,
            solution=row.solution,
            image=row.image,
            place=row.place,
            image_id=None if key is None else str(key),
            category=None if category is None else str(category),
            frame=columns.get("frame"),
            aliases=columns.get("aliases"),
            row=number,
            drawn=row.drawn,
            key=None if columns.get("id") is None else str(columns["id"]),
        )


def _category(row: Any) -> Any:
    return row.columns.get("category") or category_of(row.problem)


def _chosen(settings: Settings) -> set[str]:
    """The categories that are asked about: names that the set has, and of a named list those
    that it has. DataError where a name is unknown.
    """
    from swift_vlrft.datasets.build import chosen_categories
    from swift_vlrft.datasets.category_lists import CATEGORY_LISTS

    rows = _rows(settings, Problems(), light=True)
    known = sorted({str(name) for row in rows if (name := _category(row)) is not None})
    chosen: set[str] = set()
    for value in settings.categories:
        for name in [value] if value in known else [part.strip() for part in value.split(",")]:
            if name in CATEGORY_LISTS and name not in known:
                chosen |= set(CATEGORY_LISTS[name]) & set(known)
            else:
                chosen |= set(chosen_categories([name], known))
    if not chosen:
        raise EvaluationError(
            f"--categories {' '.join(settings.categories)}: {settings.dataset} asks for none of "
            f"them, but for {', '.join(known[:100]) or 'no category'}"
        )
    return chosen


def _rows(settings: Settings, problems: Problems, *, light: bool = False) -> Iterator[Any]:
    from swift_vlrft.datasets import BadRow, DataError
    from swift_vlrft.datasets.opening import open_set
    from swift_vlrft.datasets.read import rows_of

    wanted = (settings.split,) if settings.split else SPLITS
    for split in wanted:
        try:
            opened = open_set(settings.dataset, split=split, keep_going=True, root=settings.images)
            break
        except DataError as error:
            if "split" not in str(error) or split == wanted[-1]:
                raise
    for found in rows_of(opened, without_images=light):
        if isinstance(found, BadRow):
            problems.add("rows of the data set that cannot be read, not asked", found.place)
        elif found.columns.get("task") not in (None, settings.task):
            # Where no column says it, the form of the set does (LISA); what the caller says goes.
            if "task" in getattr(opened, "columns", ()):
                problems.add("rows of another task, not asked", found.place)
            else:
                yield found
        else:
            yield found


def _sample(settings: Settings, problems: Problems) -> set[int] | None:
    if settings.max_queries is None:
        return None
    total = sum(1 for _ in _rows(settings, Problems(), light=True))
    if settings.max_queries >= total:
        return None
    return set(random.Random(settings.seed).sample(range(total), settings.max_queries))


def count_questions(settings: Settings) -> int:
    """How many there are, images left unread."""
    unused = Problems()
    if is_annotation_file(settings.dataset) or settings.categories:
        return sum(1 for _ in questions(settings, unused))
    total = sum(1 for _ in _rows(settings, unused, light=True))
    return total if settings.max_queries is None else min(total, settings.max_queries)


def _of_annotations(settings: Settings, problems: Problems) -> Iterator[Question]:
    from swift_vlrft.datasets.build import NO_OBJECTS, PROMPT, chosen_categories
    from swift_vlrft.datasets.coco_json import image_folder
    from swift_vlrft.datasets.image import image_path
    from swift_vlrft.datasets.instances import file_of, read_instances, refuse_shared_files

    found = read_instances(settings.dataset)
    refuse_shared_files(found)
    known = list(found.categories.values())
    names = chosen_categories(settings.categories, known) if settings.categories else known
    ids = {name: c for c, name in found.categories.items()}
    folder = image_folder(found, settings.images)
    if settings.protocol == "visual-rft":
        pairs = _of_map(settings, found.images, ids, set(names), problems)
    else:
        # LVIS says of some categories only whether an image holds them.
        sure = found.absent
        pairs = [
            (image, name)
            for image in found.images
            for name in names
            if sure is None or image in found.boxes[ids[name]] or image in sure[ids[name]]
        ]
    if settings.max_queries is not None and settings.max_queries < len(pairs):
        order = random.Random(settings.seed).sample(range(len(pairs)), settings.max_queries)
        pairs = [pairs[n] for n in sorted(order)]
    for image, name in pairs:
        boxes = found.boxes[ids[name]].get(image, [])
        gold = [{"Position": list(box), "Confidence": 1} for box in boxes]
        known_as = found.images[image]
        try:
            path = image_path(file_of(known_as) or "", folder, folder)
        except ValueError as error:
            problems.add("rows of the data set that cannot be read, not asked", error)
            continue
        yield Question(
            id=f"{image}/{name}",
            problem=PROMPT.format(category=name),
            solution=f"<answer>{gold}</answer>" if gold else NO_OBJECTS,
            image={"bytes": None, "path": str(path)},
            place=None,
            image_id=str(image),
            category=name,
            frame="norm1000",
            drawn=Drawn(known_as["width"], known_as["height"], f"image {image}"),
        )


def _of_map(
    settings: Settings,
    images: Mapping[Any, Any],
    ids: Mapping[str, Any],
    wanted: set[str],
    problems: Problems,
) -> list[tuple[Any, str]]:
    path = settings.existence_map
    assert path is not None
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise EvaluationError(f"--exist-map {path} cannot be read ({error})") from error
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise EvaluationError(
            f"--exist-map {path}: a JSON object of image id: [category, ...] is needed"
        )
    by_text = {str(image): image for image in images}
    for key in content:
        if key not in by_text:
            problems.add("images of the existence map that the annotations lack", key)
    pairs = []
    for key, image in by_text.items():
        for name in dict.fromkeys(map(str, content.get(key, ()))):
            if name not in ids:
                problems.add("categories of the existence map that the annotations lack", name)
            elif name in wanted:
                pairs.append((image, name))
    return pairs
