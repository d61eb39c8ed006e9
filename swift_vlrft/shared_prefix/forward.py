"""The packed sequence through the model, and its values back into rows.

logits [1200, 151936]  ->  log-probabilities [1200]  ->  [8, 150], 0 where a row has no token
"""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import selective_log_softmax

from swift_vlrft.shared_prefix.features import ImageFeatures
from swift_vlrft.shared_prefix.layout import Packed
from swift_vlrft.shared_prefix_settings import LOGPS_PART


def forward(model: Any, packed: Packed, features: ImageFeatures | None = None) -> torch.Tensor:
    """Logits that predict the completion tokens, [completion tokens, vocabulary], in row order.

    The model encodes the distinct images itself unless ``features`` has them.
    """
    if features is None:
        images: dict[str, Any] = {
            "pixel_values": packed.images.pixels(packed.distinct_images),
            "image_grid_thw": packed.images.grid_thw[list(packed.distinct_images)],
        }
    else:
        images = {"mm_encoder_outputs": {"image": features}}
    logits: torch.Tensor = model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        logits_to_keep=packed.predictors,
        use_cache=False,
        shared_prefix=packed.groups,
        **images,
    ).logits
    return logits[0]


def log_probabilities(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of ``targets`` [tokens] under ``logits`` [tokens, vocabulary], as ms-swift takes them.

    TRL's function goes row by row, so that few copies of the logits are alive at a time in the
    backward pass; a packed sequence has no rows, so it is given parts.
    """
    parts = zip(logits.split(LOGPS_PART), targets.split(LOGPS_PART), strict=True)
    return torch.cat([selective_log_softmax(some[None], chosen[None])[0] for some, chosen in parts])


def unpack(values: torch.Tensor, completion_mask: torch.Tensor) -> torch.Tensor:
    """One value per completion token -> [rows, columns] with zeros elsewhere."""
    rows = values.new_zeros(completion_mask.shape)
    rows[completion_mask.bool()] = values
    return rows
