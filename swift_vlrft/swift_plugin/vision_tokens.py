"""No answer holds an image, video, audio or frame token.

ms-swift takes one for one more image of the row, which ends the run: an IndexError, on a GPU a
failed assertion. So templates forbid these ids to every engine, also to that of `swift rollout
--external_plugins "$(vlrft plugin)"`. An answer that holds one all the same, as another server's
may, scores 0 and stays out of the loss.
"""

from __future__ import annotations

import re
import sys
from copy import copy
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import torch
from accelerate.utils import gather_object
from swift.template import TEMPLATE_MAPPING, Template, register_template
from swift.utils import get_logger

from swift_vlrft.swift_plugin.mixin import SwiftsTrainer

logger = get_logger()

NAMED = re.compile(r"(image|video|vision|audio|slice|[be]o[ia]_).*token(_id|_index)?$")
TAKEN = ("logits_processors", "additional_config", "speculative_config")
"""Settings of vLLM that exclude ours: a command that gives one samples all tokens."""


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


class Forbids(Template):
    forbids = True
    """`vlrft agree` sets it to False: without these tokens the others are likelier."""

    def prepare_generate_kwargs(self, generate_kwargs: dict[str, Any], **more: Any) -> Any:
        config = generate_kwargs["generation_config"]
        if self.forbids and (ids := {*vision_ids(self), *(config.suppress_tokens or ())}):
            config.update(suppress_tokens=sorted(ids))
        return super().prepare_generate_kwargs(generate_kwargs, **more)

    def prepare_engine_kwargs(self) -> Any:
        kwargs, ids = super().prepare_engine_kwargs(), sorted(vision_ids(self))
        if not (self.forbids and ids):
            return kwargs
        if taken := [name for name in TAKEN if any(name in argument for argument in sys.argv)]:
            logger.warning_once(
                f"swift_vlrft: beside {' and '.join(taken)} vLLM may sample tokens of images: an "
                "answer that holds one scores 0 and stays out of the loss"
            )
            return kwargs
        from swift_vlrft.swift_plugin.vllm_tokens import KEY, ForbiddenIds

        name = f"{ForbiddenIds.__module__}:{ForbiddenIds.__name__}"
        return {**kwargs, "logits_processors": [name], "additional_config": {KEY: ids}}


def register() -> None:
    """Register every template anew, as a subclass that forbids the ids; twice is once."""
    for meta in map(copy, [*TEMPLATE_MAPPING.values()]):
        if not issubclass(old := meta.template_cls, Forbids):
            meta.template_cls = _forbidding(old)
            register_template(meta, exist_ok=True)


@cache
def _forbidding(old: type[Template]) -> type[Template]:
    # `swift rollout` pickles it, by a name that __getattr__ below finds.
    name = f"{old.__module__}/{old.__qualname__}".replace(".", "/")
    return type(old.__name__, (Forbids, old), {"__module__": __name__, "__qualname__": name})


def __getattr__(name: str) -> Any:
    module, _, old = name.rpartition("/")
    if not module:
        raise AttributeError(name)
    return _forbidding(getattr(import_module(module.replace("/", ".")), old))


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
                'stays out of the loss. `swift rollout --external_plugins "$(vlrft plugin)"` '
                "samples none; completions/vision_token_ratio is the share of such answers"
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
