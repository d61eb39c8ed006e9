"""Do rows that ask the same have the same answer? What a set holds twice is counted and said.

row 0  0.png "Which flower is it?"  rose        1 questions have golds that differ
row 7  0.png "Which flower is it?"  tulip
row 9  3.png "A. dog B. cat"        E           1 golds are none of their prompts' options
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from string import ascii_uppercase

from swift_vlrft.datasets.image import image_hash
from swift_vlrft.datasets.row import Row
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.rewards import TASK_NAMES

_OPTION = re.compile(r"(?:^|[\s(（\[])([A-Z])[.):：、．）\]]", re.MULTILINE)


@dataclass
class Questions:
    """The questions of a set's rows so far; ``by_content``: pictures are compared by their bytes,
    which were read anyway, else by their paths.
    """

    by_content: bool = False
    pictures: dict[str, str] = field(default_factory=dict)
    asked: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Gold and place of each question's first row."""
    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The places of rows, by what is said of them."""
    paths: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row, task: str) -> None:
        """Add a row that is fit to train on, as a row of ``task``."""
        gold, place, held = gold_text(row.solution), str(row.place), row.gold
        if len(held) > 1 and len({*zip(held.boxes, held.labels, strict=True)}) < len(held):
            self.found["solutions hold a box twice: for one object, keep one"].append(place)
        if task == "choice":
            listed = "".join(dict.fromkeys(_OPTION.findall(row.problem)))
            letter = TASK_NAMES[task].read_gold(gold)
            if listed[:2] == "AB" and listed in ascii_uppercase and letter not in listed:
                self.found["golds are none of their prompts' options"].append(f"{place}: {letter}")
        if (picture := self._picture(row)) is not None:
            self.pictures.setdefault(picture, place)
            question = hash((picture, row.problem, row.columns.get("system"), task))
            known, first = self.asked.setdefault(question, (gold, place))
            if first != place:
                what = "rows repeat another one"
                if known != gold:
                    what = "rows ask what another one asks, and have another gold"
                self.found[what].append(f"{first} and {place}")

    def _picture(self, row: Row) -> str | None:
        path, content = row.image.get("path"), row.image.get("bytes")
        if content is not None:
            return image_hash(row.image)
        if path is None or not os.path.isabs(path):  # the name of an image that was not read
            return None
        if path not in self.paths:
            self.paths[path] = image_hash(row.image) if self.by_content else path
        return self.paths[path]

    def notes(self, path: Path) -> list[str]:
        """Return what was found, each with its count and the first rows that show it."""
        return [f"{path}: {len(at)} {what}, such as {at[0]}" for what, at in self.found.items()]


def shared_pictures(of: Mapping[str, dict[str, str]]) -> Iterator[str]:
    """Say how many pictures stand in two of the splits or sets, which are called by their names."""
    for (name, pictures), (other, others) in combinations(of.items(), 2):
        if both := pictures.keys() & others.keys():
            yield (
                f"{len(both)} of {len(pictures)} pictures of {name} are in {other}, too, such as "
                f"that of {pictures[min(both)]}: what is measured on them was trained on"
            )
