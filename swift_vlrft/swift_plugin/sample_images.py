"""VLRFT_LOG_IMAGES=N: every time that training logs, N samples of the batch, drawn, to TensorBoard.

    samples/0 ... samples/N-1    image, gold boxes white, predicted boxes green, scores

The images come from what the rewards are called with, so nothing is kept but one batch; of the
main process alone.
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
from swift_vlrft.parsing.answers import text_of
from swift_vlrft.report.drawing import draw_sample
from swift_vlrft.rewards import Reward
from swift_vlrft.rewards.contract import Scores

VARIABLE = "VLRFT_LOG_IMAGES"
NAME = "vlrft_sample_images"
SHOWN_COLUMNS = ("solution", "frame", "task", "width", "height")


def samples_to_draw() -> int:
    """How many samples; ValueError where the variable is no number."""
    text = os.environ.get(VARIABLE, "").strip() or "0"
    if not text.isdigit():
        raise ValueError(f"{VARIABLE}={text} is no whole number; how many samples are to be drawn?")
    return int(text)


class Batch:
    """The first samples of the batch that was scored last, under every reward."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.samples: dict[int, dict[str, Any]] = {}  # by their number in the batch

    def add(
        self, name: str, completions: Sequence[Any], scores: Scores, columns: dict[str, Any]
    ) -> None:
        images = columns.get("images")
        if images is None:
            return
        texts = [text_of(completion) for completion in completions]
        if texts != self.texts:  # a new batch; the rewards of one are called one after another
            self.texts = texts
            prompts = columns.get("prompt_id")
            prompts = range(len(texts)) if prompts is None else prompts
            chosen = _one_of_each(prompts, samples_to_draw())
            self.samples = {
                n: {"completion": texts[n], "image": images[n], "scores": {}}
                | {c: columns[c][n] for c in SHOWN_COLUMNS if columns.get(c) is not None}
                for n in chosen
            }
        for n, sample in self.samples.items():
            if (score := scores[n]) is not None:
                sample["scores"][name] = score


def _one_of_each(prompts: Sequence[Any], count: int) -> list[int]:
    """One completion of every prompt first, then the others."""
    firsts = {prompt: n for n, prompt in reversed(list(enumerate(prompts)))}
    return sorted(range(len(prompts)), key=lambda n: (firsts[prompts[n]] != n, n))[:count]


BATCH = Batch()


def keep_samples(name: str, function: Reward) -> Reward:
    """``function`` with its batch kept for drawing: same scores, same ``__name__``."""

    @wraps(function)
    def kept(completions: Sequence[Any], solution: Any = None, **columns: Any) -> Scores:
        scores = function(completions, solution, **columns)
        if os.environ.get("RANK", "0") == "0":
            BATCH.add(name, completions, scores, {"solution": solution, **columns})
        return scores

    return kept


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
        for n, sample in enumerate(BATCH.samples.values()):
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
                continue  # an image that cannot be opened is named where it is trained on
            self.writer.add_image(
                f"samples/{n}", np.asarray(drawn), state.global_step, dataformats="HWC"
            )
        self.writer.flush()
        BATCH.texts, BATCH.samples = [], {}


def _opened(image: Any) -> Any:
    """The first image of a row, which ms-swift holds as a path, bytes, or opened."""
    if isinstance(image, (list, tuple)):
        image = image[0] if image else None
    if isinstance(image, str):
        image = {"bytes": None, "path": image}
    if image is None:
        raise ValueError("the row has no image")
    return open_image(image) if isinstance(image, dict) else image


def log_images() -> None:
    """Register the callback, and arguments of training that switch it on, whatever others do."""
    callbacks_map[NAME] = SampleImages
    module, _, name = TrainerFactory.TRAINING_ARGS_MAPPING["grpo"].rpartition(".")
    base = getattr(import_module(module), name)
    if getattr(base, "draws_samples", False):
        return

    def init_callbacks(self: Any) -> None:
        base._init_callbacks(self)
        if NAME not in self.callbacks:
            self.callbacks.append(NAME)

    drawing = {"_init_callbacks": init_callbacks, "draws_samples": True, "__module__": __name__}
    globals()["DrawingGRPOConfig"] = type("DrawingGRPOConfig", (base,), drawing)
    TrainerFactory.TRAINING_ARGS_MAPPING["grpo"] = f"{__name__}.DrawingGRPOConfig"
