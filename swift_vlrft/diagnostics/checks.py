"""Boxes in another box format than the gold's: for ``vlrft score`` and while training.

gold (254, 303, 291, 365), predictions (0.25, 0.3, 0.29, 0.37)
"""

import math
from dataclasses import dataclass
from typing import Any

from swift_vlrft.geometry.box_format import FORMATS
from swift_vlrft.parsing.answers import Box, gold_text, read
from swift_vlrft.rewards import REWARDS

LEAST_BOXES = 8
"""Fewer predictions than this say nothing about a box format."""


def group_of(row: dict[str, Any]) -> tuple[str, ...] | None:
    """A key for completions of one prompt and gold (images share questions), if it has one."""
    prompt = str(row.get("prompt_id") or row.get("prompt") or "")
    return (prompt, str(row.get("step", "")), gold_text(row.get("solution"))) if prompt else None


def has_boxes(name: str, task: str | None = None) -> bool:
    """Whether the reward ``name`` compares with boxes, in a row of ``task`` (None: not stated)."""
    scored = REWARDS[name].task
    return scored is not None and scored.gold_has_boxes and task in (None, "", scored.name)


@dataclass(slots=True)
class BoxFormatCheck:
    """Counts over many rows: call ``add_row`` for each, then ``problem``."""

    boxes: int = 0
    under_one: int = 0
    outside: int = 0
    gold_boxes: int = 0
    gold_under_one: int = 0
    limit: str = "1000"

    def add_row(self, name: str, row: dict[str, Any]) -> None:
        """One row under the reward ``name``, for which ``has_boxes`` holds."""
        task = REWARDS[name].task
        gold = task.read_gold(row.get("solution")) if task is not None else None
        if gold is None:
            return
        golds: list[Box] = [gold] if isinstance(gold, tuple) else gold.boxes
        answer = read(row["completion"]).placed(points=task is not None and task.has_points)
        predicted = [box for box in answer.boxes if box is not None] if answer is not None else []
        size: Any = row.get("width"), row.get("height")
        known = FORMATS.get(str(row.get("frame")), FORMATS["norm1000"])
        if known.scale is None and all(isinstance(side, (int, float)) for side in size):
            self.limit = "the image"
        elif any(max(box) > 1000.0 for box in golds):  # pixels of an image whose size is not known
            known, size = FORMATS["pixels"], (math.inf, math.inf)
        elif known.scale is None:
            known = FORMATS["norm1000"]
        else:
            self.limit = str(known.scale)
        width, height = known.edges(size)
        self.gold_boxes += len(golds)
        self.gold_under_one += sum(max(box) <= 1.0 for box in golds)
        self.boxes += len(predicted)
        self.under_one += sum(max(box) <= 1.0 for box in predicted)
        self.outside += sum(box[2] > width or box[3] > height for box in predicted)

    def problem(self) -> str | None:
        """One sentence, or None if the box formats agree or too little was seen."""
        if self.boxes < LEAST_BOXES or not self.gold_boxes:
            return None
        if self.under_one > 0.9 * self.boxes and self.gold_under_one < 0.5 * self.gold_boxes:
            return (
                f"predictions are in another box format than the gold: {self.under_one} of "
                f"{self.boxes} boxes have all coordinates under 1, the gold has not. State the box "
                "format in the prompt."
            )
        if self.outside <= 0.2 * self.boxes:
            return None
        remedy = (
            "Models of the Qwen2.5-VL family write pixels of the resized image; use a data set in "
            "that box format (subset `pixels`)."
            if self.limit == "1000"
            else "A model that answers between 0 and 1000 (Qwen3-VL, GLM) needs the subset "
            "`norm1000`."
        )
        return (
            f"predictions are in another box format than the gold: {self.outside} of {self.boxes} "
            f"boxes reach beyond {self.limit}. {remedy} The subset `native` gives a model "
            "the box format that it was trained on."
        )
