"""VLRFT_LOG_IMAGES=N: at every logging step, N samples of the batch as drawings in TensorBoard.

    samples/0 ... samples/N-1    image, gold boxes white, predicted boxes green, scores

The images are those that the rewards are called with, so only one batch is kept, by the main
process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple

from swift.callbacks import TrainerCallback

from swift_vlrft.datasets import open_image
from swift_vlrft.files.environment import number
from swift_vlrft.parsing.answers import text_of
from swift_vlrft.report.drawing import draw_sample
from swift_vlrft.rewards import RewardFunction, Scores

VARIABLE = "VLRFT_LOG_IMAGES"
COLUMNS = ("solution", "frame", "task", "width", "height")


class Scored(NamedTuple):
    """A batch as one reward was called with it, and its scores."""

    completions: Sequence[Any]
    scores: Scores
    columns: dict[str, Any]


LAST: dict[str, Scored] = {}
"""The last batch by reward: all rewards are called with every batch."""


def keep_samples(name: str, function: RewardFunction) -> RewardFunction:
    """``function`` with its batch kept for drawing: same scores, same ``__name__``."""

    @wraps(function)
    def keeping(completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        scores = function(completions, solution, **columns)
        if os.environ.get("RANK", "0") == "0" and columns.get("images") is not None:
            LAST[name] = Scored(completions, scores, {"solution": solution, **columns})
        return scores

    return keeping


def drawn_samples() -> Iterator[Any]:
    """The samples of the last batch, as images."""
    batch = next(iter(LAST.values()))
    prompts, count = batch.columns.get("prompt_id"), len(batch.completions)
    prompts = range(count) if prompts is None else prompts
    firsts = {prompt: n for n, prompt in reversed(list(enumerate(prompts)))}
    # One of every prompt first, then the others.
    order = sorted(range(count), key=lambda n: (firsts[prompts[n]] != n, n))
    for n in order[: number(VARIABLE)]:
        row = {name: v[n] for name, v in batch.columns.items() if name in COLUMNS and v is not None}
        scores = {name: of.scores[n] for name, of in LAST.items() if len(of.scores) == count}
        with suppress(ValueError):  # an image that cannot be opened is reported by the training
            yield draw_sample(
                _opened(batch.columns["images"][n]),
                text_of(batch.completions[n]),
                str(row.get("solution") or ""),
                {name: score for name, score in scores.items() if score is not None},
                frame=row.get("frame"),
                task=row.get("task"),
                seen=(row.get("width"), row.get("height")),
            )


class SampleImages(TrainerCallback):
    """Draws the kept batch whenever metrics are logged, at the training's step."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.writer: Any = None

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero or not LAST:
            return
        import numpy as np

        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(log_dir=args.logging_dir)
        for n, image in enumerate(drawn_samples()):
            pixels = np.asarray(image)
            self.writer.add_image(f"samples/{n}", pixels, state.global_step, dataformats="HWC")
        self.writer.flush()
        LAST.clear()


def _opened(image: Any) -> Any:
    """The first image of a row, which ms-swift holds as a path, bytes, or opened."""
    if isinstance(image, (list, tuple)):
        image = image[0] if image else None
    if isinstance(image, str):
        image = {"bytes": None, "path": image}
    if image is None:
        raise ValueError("the row has no image")
    return open_image(image) if isinstance(image, dict) else image
