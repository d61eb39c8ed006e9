"""Positions of text behind a video of Qwen2-VL and Qwen2.5-VL.

transformers 5.19 places it behind the first frame, over the others. These models learnt, and vLLM
takes, positions behind the last: the largest and one (``get_rope_index`` of transformers 4.57).
"""

from __future__ import annotations

from itertools import groupby

import torch


def place_behind_videos(
    positions: torch.Tensor, is_video: torch.Tensor, attended: torch.Tensor
) -> None:
    """Move positions [3, rows, tokens] on, in place, where they lie over a video before them.
    ``is_video`` and ``attended`` are [rows, tokens]; padding stays as it is.
    """
    for row, kept in enumerate(attended.bool()):
        moved = positions[:, row, kept]
        shift = end = 0
        for video, tokens in groupby(is_video[row, kept].tolist()):
            start, end = end, end + len([*tokens])
            moved[:, start:end] += shift
            if video and end < moved.shape[1]:
                behind = int(moved[:, start:end].max()) + 1
                shift = max(shift, behind - int(moved[0, end]))
        positions[:, row, kept] = moved
