"""What ruins a run, found in a few batches: for ``vlrft score`` and for the checks in training.

gold (254, 303, 291, 365), predictions (0.25, 0.3, 0.29, 0.37)      another frame
9 of 10 answers cannot be read                                      parse rate
every completion of every group scores the same                     zero spread
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from swift_vlrft.parsing.answers import Box, BoxList, gold_text, read
from swift_vlrft.rewards import REWARDS

LEAST_PARSE_RATE = 0.5

LEAST_BOXES = 8
"""Fewer predictions than this say nothing about a frame."""


def unreadable(name: str, readable: int, seen: int) -> str | None:
    """One sentence where fewer than half of ``seen`` answers could be read."""
    if readable >= LEAST_PARSE_RATE * seen:
        return None
    return f"{name}: only {readable / seen:.0%} of {seen} answers can be read."


def zero_spread(name: str, groups: int, without: int) -> str | None:
    """One sentence where all ``groups`` are ``without`` spread: every advantage is zero."""
    if not groups or without < groups:
        return None
    return (
        f"{name}: zero spread within every one of {groups} groups, so nothing is learned from it. "
        "Raise the temperature or num_generations, or use a softer reward."
    )


def without_spread(scores: Sequence[float]) -> bool:
    """Whether a group teaches nothing: GRPO's advantage is zero where all its scores are equal."""
    return math.isclose(min(scores), max(scores), abs_tol=1e-9)


def has_boxes(name: str, task: str | None = None) -> bool:
    """Whether the reward ``name`` reads boxes, in a row of ``task`` (None: not stated)."""
    own = REWARDS[name].task
    return own is not None and own.has_boxes and task in (None, "", own.name)


@dataclass(slots=True)
class FrameCheck:
    """Counts over many rows; ``add`` each row, then ask ``problem``."""

    boxes: int = 0
    under_one: int = 0
    outside: int = 0
    gold_boxes: int = 0
    gold_under_one: int = 0
    limit: str = "1000"

    def add_row(self, name: str, row: dict[str, Any]) -> None:
        """One row under the reward ``name``, for which ``has_boxes`` holds."""
        task = REWARDS[name].task
        gold = task.read_gold(gold_text(row.get("solution"))) if task is not None else None
        if task is not None and gold is not None:
            boxes = [gold] if task.name == "grounding" else gold.boxes
            self.add(read(row["completion"]).boxes, boxes, image_size(row))

    def add(
        self,
        predicted: BoxList | None,
        gold: Sequence[Box | None],
        size: tuple[float, float] | None = None,
    ) -> None:
        """One row; ``size`` is the image's (width, height) where boxes are in its pixels, else
        norm1000.
        """
        gold_limit = max((max(box) for box in gold if box is not None), default=0.0)
        width, height = size or (1000.0, 1000.0)
        if size is not None:
            self.limit = "the image"
        elif gold_limit > 1000.0:
            width = height = float("inf")  # gold in the pixels of an image whose size nobody told
        for box in _valid(gold):
            self.gold_boxes += 1
            self.gold_under_one += max(box) <= 1.0
        for box in _valid(predicted.boxes if predicted is not None else ()):
            self.boxes += 1
            self.under_one += max(box) <= 1.0
            self.outside += box[2] > width or box[3] > height

    def problem(self) -> str | None:
        """One sentence, or None where the frames agree or too little was seen."""
        if self.boxes < LEAST_BOXES or not self.gold_boxes:
            return None
        if self.under_one > 0.9 * self.boxes and self.gold_under_one < 0.5 * self.gold_boxes:
            return (
                f"predictions are in another frame than the gold: {self.under_one} of {self.boxes} "
                "boxes have all coordinates under 1, the gold has not. Say the frame in the prompt."
            )
        if self.outside > 0.2 * self.boxes:
            return (
                f"predictions are in another frame than the gold: {self.outside} of {self.boxes} "
                f"boxes reach beyond {self.limit}. "
                + (
                    "Models of the Qwen2.5-VL family write pixels of the resized image; use a data "
                    "set in that frame (subset `pixels`)."
                    if self.limit == "1000"
                    else "The set is in pixels; a model that answers between 0 and 1000 (Qwen2-VL, "
                    "GLM) needs the subset `norm1000`."
                )
            )
        return None


def _valid(boxes: Iterable[Box | None]) -> list[Box]:
    return [box for box in boxes if box is not None]


def image_size(row: dict[str, Any]) -> tuple[float, float] | None:
    """(width, height) where the row states them and its boxes are in pixels; None for norm1000."""
    width, height = row.get("width"), row.get("height")
    in_pixels = row.get("frame") == "pixels"
    if in_pixels and isinstance(width, (int, float)) and isinstance(height, (int, float)):
        return float(width), float(height)
    return None
