"""A YOLO folder, as Ultralytics reads it, and as Roboflow, CVAT and Label Studio write it.

    data.yaml             train: images/train, val: images/val, names: [dog, cat]
    images/train/9.jpg
    labels/train/9.txt    1 0.5 0.5 0.25 0.5

A line of a label file is an object: class, centre x and y, width and height in shares. Records are
those of COCO in Parquet (coco.py). A picture without a label file, or an empty one, has no object.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.row import BadRow, RowLocation
from swift_vlrft.datasets.source import DataError, FileError
from swift_vlrft.datasets.splits import WORDS, walk
from swift_vlrft.datasets.storage import Records, StoredSet
from swift_vlrft.geometry.readings import Reading

CONFIG = "data.yaml"
PICTURES = (".bmp", ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
NO_PICTURE = "a label file without a picture makes no row"


@dataclass
class YoloFolder(StoredSet):
    """The pictures of a split, each with its label file; ``path`` is data.yaml."""

    classes: dict[Any, str] = field(default_factory=dict)
    pictures: list[Path] = field(default_factory=list)
    reading: Reading | None = Reading("cxcywh", "unit")
    kind: str = "YOLO"

    def image_root(self) -> None:
        """Return no root: data.yaml says where the pictures are."""

    def _read(self, names: list[str]) -> Records:
        labels = [_label_file(picture) for picture in self.pictures]
        for number, (picture, label) in enumerate(zip(self.pictures, labels, strict=True)):
            place = RowLocation(picture, number)
            try:
                objects = list(self._objects(label))
            except (OSError, ValueError) as error:
                yield BadRow(place, f"{label.name}: {error}")
            else:
                yield place, {"image": str(picture), "objects": objects}
        folders = {label.parent for label in labels}
        there = {file for folder in folders for file in folder.glob("*.txt")}
        if alone := sorted(map(str, there - {*labels})):
            self.left_out[NO_PICTURE] = alone

    def _objects(self, label: Path) -> Iterator[dict[str, Any]]:
        lines = label.read_text("utf-8").splitlines() if label.is_file() else ()
        for number, line in enumerate(lines, 1):
            try:
                values = [float(value) for value in line.split()]
            except ValueError:
                raise ValueError(f"line {number} is no numbers with blanks between") from None
            if len(values) not in (0, 5):
                other = "a prediction" if len(values) == 6 else "a polygon or key points"
                raise ValueError(f"line {number} has {len(values)} values, as {other}; a box has 5")
            if values:
                if values[0] not in self.classes:
                    raise ValueError(f"line {number}: {values[0]:g} is no class of data.yaml")
                yield {"bbox": values[1:], "category": self.classes[values[0]]}


def _label_file(picture: Path) -> Path:
    """As Ultralytics finds it: labels in the place of the last folder called images."""
    return Path("/labels/".join(str(picture).rsplit("/images/", 1))).with_suffix(".txt")


def folders_of_yolo(path: Path) -> dict[str, Path]:
    """Return the folder of pictures of each split that data.yaml names; of Roboflow's, the test
    split may be missing, and ../train/images is train/images, as Ultralytics takes it.
    """
    config = _config(path)
    base = Path(os.path.abspath(path.parent / str(config.get("path") or "")))
    found: dict[str, Path] = {}
    for key in ("train", "val", "test"):
        if not (name := config.get(key)):
            continue
        folders = [base / str(name), base / str(name).removeprefix("../")]
        if there := [Path(os.path.abspath(folder)) for folder in folders if folder.is_dir()]:
            found[WORDS[key]] = there[0]
        elif key != "test" or not found:
            raise DataError(
                f"{path}: {folders[-1]} is no folder of pictures (no list is read); correct it, or "
                "the line path"
            )
    if not found:
        raise FileError(path, "it needs names, and train, val or test")
    return found


def open_yolo(path: Path, folder: Path) -> YoloFolder:
    """Open one of ``folders_of_yolo``; DataError where nothing says what its pictures hold."""
    names = _config(path).get("names")
    classes = dict(enumerate(names)) if isinstance(names, list) else names
    if not isinstance(classes, dict) or not all(isinstance(n, str) for n in classes.values()):
        raise DataError(f"{path}: names is {str(names)[:60]}; the classes' names are needed")
    pictures = [file for file in walk(folder) if file.suffix.lower() in PICTURES]
    if not any(_label_file(picture).is_file() for picture in pictures):
        some = _label_file(pictures[0]) if pictures else "labels/1.txt"
        raise DataError(f"{path}: {folder} has no label file such as {some}")
    return YoloFolder(path, [path], ["image", "objects"], classes=classes, pictures=pictures)


def _config(path: Path) -> dict[str, Any]:
    import yaml

    try:
        config = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise FileError(path, f"cannot be read ({error})") from error
    return config if isinstance(config, dict) else {}
