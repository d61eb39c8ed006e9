"""Pass the packed sequence through the model, and put its values back into rows.

logits [1200, 151936]  ->  log-probabilities [1200]  ->  [8, 150], 0 where a row has no token
"""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

from swift_vlrft.shared_prefix.features import ImageFeatures
from swift_vlrft.shared_prefix.layout import Packed
from swift_vlrft.shared_prefix.settings import LOGPS_PART


def forward(model: Any, packed: Packed, features: ImageFeatures | None = None) -> torch.Tensor:
    """Return the logits of completion tokens, [completion tokens, vocabulary], in row order.

    The model encodes the distinct images itself unless ``features`` has them.
    """
    if features is None:
        images: dict[str, Any] = packed.images.inputs(packed.distinct_images)
    else:
        if packed.images.grid_thw is None:  # InternVL's features of tiles are one tensor
            features = ImageFeatures(torch.stack(list(features.pooler_output)))
        images = {"mm_encoder_outputs": {"image": features}}
    if packed.position_ids.ndim == 2:
        # Without a mask transformers takes positions that start again for packed rows, and
        # builds one of the packed length squared.
        images["attention_mask"] = {"full_attention": None}
    logits: torch.Tensor = model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        logits_to_keep=packed.predictors,
        use_cache=False,
        shared_prefix=packed.groups,
        **images,
    ).logits
    return logits.squeeze(0)  # as a view whose gradient is a view: logits[0] would copy it


def values_of(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float, *, entropy: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the log-probabilities of ``targets`` [tokens], and the entropies of ``logits``.

    ``logits`` [tokens, vocabulary] are divided by the temperature, as ms-swift does
    (swift/rlhf_trainers/grpo_trainer.py, _get_logps_via_local_forward).

    TRL's function goes row by row, so that few copies of the logits are alive at a time in the
    backward pass; a packed sequence has no rows, so it is given parts. Each part is divided by
    itself: a division in place costs a copy of all logits on the way back.
    """
    logps, entropies = [], []
    for some, chosen in zip(logits.split(LOGPS_PART), targets.split(LOGPS_PART), strict=True):
        scaled = some / temperature
        logps.append(selective_log_softmax(scaled[None], chosen[None])[0])
        if entropy:
            entropies.append(entropy_from_logits(scaled))
    return torch.cat(logps), torch.cat(entropies) if entropy else None


def unpack(values: torch.Tensor, completion_mask: torch.Tensor) -> torch.Tensor:
    """Put a value per completion token into [rows, columns], with zeros elsewhere."""
    rows = values.new_zeros(completion_mask.shape)
    rows[completion_mask.bool()] = values
    return rows
