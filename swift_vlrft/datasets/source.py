"""What is known of a published data set before it is read; the place of a row, and its faults."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from swift_vlrft.files.text import InputError, PlacedError

HUBS = {True: "Hugging Face", False: "ModelScope"}


@dataclass(frozen=True)
class RowLocation:
    """The place of a row, for messages: rows count from 0 within their file; in COCO's annotations
    it is an image, by its id. Without a row it is the file as a whole.
    """

    file: Path
    row: int | None = None
    what: str = "row"

    def __str__(self) -> str:
        return str(self.file) if self.row is None else f"{self.file}, {self.what} {self.row}"


@dataclass(frozen=True)
class AnnotatedSize:
    """The size of the image that boxes were drawn on, as its source states it. ``name`` is what the
    source calls it ("image 9"). Not ``exact``: boxes in thousandths fit a copy of any size.
    """

    width: float
    height: float
    name: str = ""
    exact: bool = True


class DataError(InputError):
    """Something is wrong with a data set: the message says what, where (file, row), and what to
    do.
    """


class FileError(PlacedError, DataError):
    """A file of a data set that cannot be read."""


@dataclass(frozen=True)
class Source:
    """A set on a hub: the task of its rows, and the box format that its boxes are in.

    ``hubs`` are those it is known to be on. The other one is tried all the same when asked for:
    somebody may have put it there since.
    """

    hub_id: str
    task: str
    box_format: str | None = None
    hubs: tuple[str, ...] = ("Hugging Face",)
    about: str = ""

    def other_hub(self, use_hf: bool) -> str | None:
        """Say what to type if the set is not known to be on the chosen hub."""
        if HUBS[use_hf] in self.hubs:
            return None
        prefix = "ms" if use_hf else "hf"
        return (
            f"It is known on {' and '.join(self.hubs)}, not on {HUBS[use_hf]}: type "
            f"--dataset {prefix}::{self.hub_id}, or --use_hf {str(not use_hf).lower()} for model "
            "and data."
        )


_FILE = Path(__file__).with_name("sources.toml")
SOURCES = tuple(Source(**entry) for entry in tomllib.loads(_FILE.read_text("utf-8"))["set"])
"""The sets known by their hub id."""
