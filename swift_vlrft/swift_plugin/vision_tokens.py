"""An answer that holds an image, video, audio or frame token scores 0 and stays out of the loss.

ms-swift takes one for one more image of the row, which ends the run: an IndexError, on a GPU a
failed assertion.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
from accelerate.utils import gather_object
from swift.template import Template
from swift.utils import get_logger

from swift_vlrft.swift_plugin.mixin import SwiftsTrainer

logger = get_logger()

NAMED = re.compile(r"(image|video|vision|audio|slice|[be]o[ia]_).*token(_id|_index)?$")


def vision_ids(template: Template) -> set[int]:
    """Return the ids of vision and audio that template, processor, tokenizer and config name."""
    tokenizer = template.tokenizer
    added = tokenizer.get_added_vocab()
    named = template.config.to_dict() | vars(template.processor) | tokenizer.special_tokens_map
    found = set(template.placeholder_tokens)
    for name, value in named.items():
        if NAMED.search(name) and isinstance(value, str if name.endswith("token") else int):
            found.add(added.get(value, value))
    # An image of GLM-4v is made of the token that ends its answers.
    return (found & {*added.values()}) - {tokenizer.eos_token_id, tokenizer.pad_token_id}


class VisionTokens(SwiftsTrainer):
    def _generate_completions(self, samples: Any) -> Any:
        samples = super()._generate_completions(samples)
        ids, end = vision_ids(self.template), self.template.tokenizer.eos_token_id
        for sample in samples:
            sample.left_out = take_out(sample, ids, end)
        return samples

    def _compute_rewards_per_func(self, samples: Any) -> Any:
        rewards = super()._compute_rewards_per_func(samples)
        out = torch.tensor(gather_object(left_out(samples)), device=rewards.device)
        ratio = out.float().mean().item()
        mode = "train" if self.model.training else "eval"
        self._metrics[mode]["completions/vision_token_ratio"].append(ratio)
        if ratio:
            logger.warning_once(
                "swift_vlrft: an answer holds an image, video or frame token: it scores 0 and "
                "stays out of the loss; completions/vision_token_ratio is the share of such answers"
            )
        return rewards.masked_fill(out[:, None] & ~rewards.isnan(), 0.0)

    def _prepare_batch_inputs(self, samples: Any) -> Any:
        batches = super()._prepare_batch_inputs(samples)
        if self._on_any_rank(any(left_out(samples))):
            for chunk, batch in zip(self.split_by_mini_batches(samples), batches, strict=True):
                mask = batch["grpo_batch"].completion_mask.clone()
                mask[torch.tensor(left_out(chunk))] = False
                batch["grpo_batch"] = replace(batch["grpo_batch"], completion_mask=mask)
            self._micro_batches.clear()  # shared prefixes were laid out with the masks before
        return batches


def left_out(samples: Any) -> list[bool]:
    """Return whether each sample's answer is left out."""
    return [getattr(sample, "left_out", False) for sample in samples]


def take_out(sample: Any, forbidden: set[int], end: int) -> bool:
    """Put ``end`` in place of forbidden ids that the model wrote; return whether there were any.

    A multi-turn scheduler's own tokens, whose loss mask is 0, may be images.
    """
    ids, mask = sample.response_token_ids, sample.response_loss_mask
    turns = [ids] if ids and isinstance(ids[0], int) else ids
    masks = [mask] if mask and isinstance(mask[0], int) else mask or [[1] * len(t) for t in turns]
    clean = [
        [end if own and id in forbidden else id for id, own in zip(turn, owns, strict=True)]
        for turn, owns in zip(turns, masks, strict=True)
    ]
    sample.response_token_ids = ids if clean == turns else clean
    return clean != turns
