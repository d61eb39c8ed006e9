"""Draw N samples of the batch in TensorBoard at every logging step: VLRFT_LOG_IMAGES=N.

samples/0 ... samples/N-1    image, gold boxes white, predicted boxes blue, scores
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isnan
from typing import Any

import torch
from swift.callbacks import TrainerCallback

from swift_vlrft.datasets import open_image
from swift_vlrft.files.environment import number
from swift_vlrft.parsing.answers import text_of
from swift_vlrft.report.drawing import draw_sample

VARIABLE = "VLRFT_LOG_IMAGES"


def chosen_samples(
    samples: Sequence[Any], names: Sequence[str], rewards: torch.Tensor
) -> list[dict[str, Any]]:
    """Return the arguments of ``draw_sample`` for the first N samples.

    ``rewards`` is [samples, names]; the first sample of every prompt precedes the others.
    """
    firsts = {sample.prompt_id: n for n, sample in reversed(list(enumerate(samples)))}
    count = min(len(samples), len(rewards))
    order = sorted(range(count), key=lambda n: (firsts[samples[n].prompt_id] != n, n))
    chosen = []
    for n in order[: number(VARIABLE)]:
        sample, row, scores = samples[n], samples[n].extra, rewards[n].tolist()
        chosen.append(
            {
                "image": sample.images,
                "completion": text_of(sample.messages[-1]["content"]),
                "solution": str(row.get("solution") or ""),
                "scores": {k: v for k, v in zip(names, scores, strict=True) if not isnan(v)},
                "frame": row.get("frame"),
                "task": row.get("task"),
                "seen": (row.get("width"), row.get("height")),
            }
        )
    return chosen


class SampleImages(TrainerCallback):
    """Draws samples of the last batch whenever metrics are logged, at the training's step."""

    def __init__(self, args: Any, trainer: Any) -> None:
        super().__init__(args, trainer)
        self.writer: Any = None

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        import numpy as np
        from torch.utils.tensorboard import SummaryWriter

        self.writer = self.writer or SummaryWriter(log_dir=args.logging_dir)
        for n, sample in enumerate(self.trainer.drawn_samples):
            with suppress(ValueError):  # an image that cannot be opened is reported by the training
                pixels = np.asarray(draw_sample(**sample | {"image": _opened(sample["image"])}))
                self.writer.add_image(f"samples/{n}", pixels, state.global_step, dataformats="HWC")
        self.trainer.drawn_samples.clear()
        self.writer.flush()


def _opened(images: Sequence[Any]) -> Any:
    """Open the first image of a row, which ms-swift holds as a path, bytes, or opened."""
    if not images:
        raise ValueError("the row has no image")
    image = {"path": images[0]} if isinstance(images[0], str) else images[0]
    return open_image(image) if isinstance(image, dict) else image
