"""Positions of text behind a video of Qwen2-VL and Qwen2.5-VL.

transformers 5.19 places it behind the first frame, over the others. These models learnt, and vLLM
takes, positions behind the last: the largest and one (``get_rope_index`` of transformers 4.57).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from itertools import groupby
from typing import Any

import torch


@cache
def register() -> None:
    """Have both models count so, in training and where transformers generates."""
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    for miscounting in (Qwen2VLModel, Qwen2_5_VLModel):
        miscounting.get_rope_index = _behind_videos(miscounting.get_rope_index)


def _behind_videos(get_rope_index: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(get_rope_index)

    @wraps(get_rope_index)
    def counted(self: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        positions, deltas = get_rope_index(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        if given.get("video_grid_thw") is not None:
            ids, mask = given["input_ids"], given.get("attention_mask")
            mask = torch.ones_like(ids) if mask is None else mask
            for row, (of_row, kept) in enumerate(zip(ids, mask.bool(), strict=True)):
                is_video = of_row[kept] == self.config.video_token_id
                moved = _moved(positions[:, row, kept], is_video.tolist())
                positions[:, row, kept] = moved
                deltas[row] = moved.max() + 1 - len(is_video)
        return positions, deltas

    return counted


def _moved(positions: torch.Tensor, is_video: list[bool]) -> torch.Tensor:
    """Return a row's positions [3, tokens], moved on where they lie over a video before them."""
    shift = end = 0
    for video, tokens in groupby(is_video):
        start, end = end, end + len([*tokens])
        positions[:, start:end] += shift
        if video and end < len(is_video):
            behind = int(positions[:, start:end].max()) + 1
            shift = max(shift, behind - int(positions[0, end]))
    return positions
