"""VLRFT_LOG_IMAGES=N: at every logging step, N samples of the batch as drawings in TensorBoard.

    samples/0 ... samples/N-1    image, gold boxes white, predicted boxes green, scores

The images are those that the rewards are called with, so only one batch is kept, by the main
process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import wraps
from importlib import import_module
from typing import Any

from swift.callbacks import TrainerCallback, callbacks_map
from swift.trainers.trainer_factory import TrainerFactory

from swift_vlrft.datasets import open_image
from swift_vlrft.files.environment import number
from swift_vlrft.parsing.answers import text_of
from swift_vlrft.report.drawing import draw_sample
from swift_vlrft.rewards import RewardFunction, Scores

VARIABLE = "VLRFT_LOG_IMAGES"
NAME = "vlrft_sample_images"


class Batch:
    """The first samples of the last batch, with their scores under every reward."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.samples: list[dict[str, Any]] = []

    def add(
        self, name: str, completions: Sequence[Any], scores: Scores, columns: dict[str, Any]
    ) -> None:
        images = columns.get("images")
        if images is None:
            return
        key = (len(completions), *(text_of(completion) for completion in completions))
        if key != self.key:  # a new batch; all rewards of a batch are called in sequence
            self.key = key
            self.samples = [
                {"completion": text_of(completions[n]), "image": _first(images[n]), "scores": {}}
                | {
                    column: columns[column][n]
                    for column in ("solution", "frame", "task", "width", "height")
                    if columns.get(column) is not None
                }
                for n in _chosen(columns.get("prompt_id"), len(completions), number(VARIABLE))
            ]
            self.indices = _chosen(columns.get("prompt_id"), len(completions), number(VARIABLE))
        for index, sample in zip(self.indices, self.samples, strict=True):
            if (score := scores[index]) is not None:
                sample["scores"][name] = score


def _first(images: Any) -> Any:
    return images[0] if isinstance(images, (list, tuple)) and images else None


def _chosen(prompts: Any, total: int, count: int) -> list[int]:
    """The first ``count`` completions: one of every prompt first, then the others."""
    seen: set[Any] = set()
    first: list[int] = []
    others: list[int] = []
    for n in range(total):
        prompt = prompts[n] if prompts is not None else n
        (others if prompt in seen else first).append(n)
        seen.add(prompt)
    return [*first, *others][:count]


BATCH = Batch()


def keep_samples(name: str, function: RewardFunction) -> RewardFunction:
    """``function`` with its batch kept for drawing: same scores, same ``__name__``."""

    @wraps(function)
    def keeping(completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        scores = function(completions, solution, **columns)
        if os.environ.get("RANK", "0") == "0":
            BATCH.add(name, completions, scores, {"solution": solution, **columns})
        return scores

    return keeping


class SampleImages(TrainerCallback):
    """Draws the kept batch whenever metrics are logged, at the training's step."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.writer: Any = None

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero or not BATCH.samples:
            return
        import numpy as np

        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(log_dir=args.logging_dir)
        for n, sample in enumerate(BATCH.samples):
            try:
                drawn = draw_sample(
                    _opened(sample["image"]),
                    sample["completion"],
                    str(sample.get("solution") or ""),
                    sample["scores"],
                    frame=sample.get("frame"),
                    task=sample.get("task"),
                    seen=(sample.get("width"), sample.get("height")),
                )
            except ValueError:
                continue  # an image that cannot be opened is reported by the training
            self.writer.add_image(
                f"samples/{n}", np.asarray(drawn), state.global_step, dataformats="HWC"
            )
        self.writer.flush()
        BATCH.key, BATCH.samples = (), []


def _opened(image: Any) -> Any:
    if isinstance(image, str):
        image = {"bytes": None, "path": image}
    if image is None:
        raise ValueError("the row has no image")
    return open_image(image) if isinstance(image, dict) else image


def log_images() -> None:
    """Register the callback, and a training arguments class that enables it on top of others."""
    callbacks_map[NAME] = SampleImages
    module, _, name = TrainerFactory.TRAINING_ARGS_MAPPING["grpo"].rpartition(".")
    base = getattr(import_module(module), name)
    if getattr(base, "draws_samples", False):
        return

    def init_callbacks(self: Any) -> None:
        base._init_callbacks(self)
        if NAME not in self.callbacks:
            self.callbacks.append(NAME)

    config = type(
        "DrawingGRPOConfig",
        (base,),
        {"_init_callbacks": init_callbacks, "draws_samples": True, "__module__": __name__},
    )
    globals()["DrawingGRPOConfig"] = config
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = f"{__name__}.DrawingGRPOConfig"
