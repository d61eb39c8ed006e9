"""Each part of a row of Qwen2.5-VL begins behind the largest position so far."""

from itertools import product

import pytest
import torch
from transformers import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel

from swift_vlrft.swift_plugin.video_positions import place_behind_videos

pytestmark = pytest.mark.slow  # torch is imported
CONFIG = Qwen2_5_VLConfig()
IMAGE, VIDEO, PAD = CONFIG.image_token_id, CONFIG.video_token_id, 0
SECOND = CONFIG.vision_config.tokens_per_second
"""Positions between two frames of a grid, which are a second apart."""


def placed(parts):
    """The positions [3, tokens], by the definition."""
    columns, start = [], 0
    for kind, (frames, height, width) in parts:
        step = SECOND if kind == VIDEO else 1
        cells = product(range(frames), range(height), range(width))
        seen = kind in (IMAGE, VIDEO)
        of_part = [(t * step, y, x) if seen else (x, x, x) for t, y, x in cells]
        of_part = [tuple(start + at for at in cell) for cell in of_part]
        columns += of_part
        start = max(map(max, of_part)) + 1
    return torch.tensor(columns).T


def test_text_begins_behind_the_last_frame_of_every_video():
    rows = [
        [(7, (1, 1, 3)), (VIDEO, (16, 2, 2)), (7, (1, 1, 5)), (VIDEO, (2, 2, 9)), (7, (1, 1, 2))],
        [(7, (1, 1, 2)), (IMAGE, (1, 3, 4)), (7, (1, 1, 1)), (VIDEO, (4, 2, 2)), (7, (1, 1, 6))],
        [(7, (1, 1, 1)), (VIDEO, (9, 2, 3))],
    ]
    lengths = [sum(t * h * w for _, (t, h, w) in row) for row in rows]
    ids = torch.full((len(rows), max(lengths)), PAD)
    for row, parts, length in zip(ids, rows, lengths, strict=True):
        row[-length:] = torch.tensor([kind for kind, (t, h, w) in parts for _ in range(t * h * w)])
    grids = {
        kind: torch.tensor([[t, 2 * h, 2 * w] for row in rows for k, (t, h, w) in row if k == kind])
        for kind in (IMAGE, VIDEO)
    }
    model = object.__new__(Qwen2_5_VLModel)
    torch.nn.Module.__init__(model)
    model.config = CONFIG
    positions, _ = model.get_rope_index(
        ids,
        mm_token_type_ids=(ids == IMAGE) + 2 * (ids == VIDEO),
        image_grid_thw=grids[IMAGE],
        video_grid_thw=grids[VIDEO],
        second_per_grid_ts=torch.ones(len(grids[VIDEO])),
        attention_mask=ids != PAD,
    )
    place_behind_videos(positions, ids == VIDEO, ids != PAD)
    for row, (parts, length) in enumerate(zip(rows, lengths, strict=True)):
        assert torch.equal(positions[:, row, -length:], placed(parts))
        assert not positions[:, row, :-length].any()
