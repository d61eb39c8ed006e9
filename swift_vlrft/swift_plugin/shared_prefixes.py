"""Compute each prompt and each image of a micro-batch once, where VLRFT_SHARED_PREFIX=1.

    VLRFT_SHARED_PREFIX=1 swift rlhf --rlhf_type grpo --external_plugins "$(vlrft plugin)" ...

It overrides one method, the one that turns a micro-batch into log-probabilities of the policy, the
old policy and the reference. A micro-batch that cannot be packed goes to ms-swift's method, with a
line in the log that says why. All ranks decide together: with ZeRO-3 a rank that runs other modules
than the rest would hang.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from accelerate.utils import gather_object
from swift.utils import get_logger
from torch.utils.weak import WeakTensorKeyDictionary

from swift_vlrft.families import why_not_shared
from swift_vlrft.shared_prefix.attention import NAME, use_shared_attention
from swift_vlrft.shared_prefix.delta_net import has_another_forward
from swift_vlrft.shared_prefix.features import FeatureCache, encoders
from swift_vlrft.shared_prefix.forward import forward, unpack, values_of
from swift_vlrft.shared_prefix.images import CannotPack, Images
from swift_vlrft.shared_prefix.layout import Packed, pack
from swift_vlrft.shared_prefix.settings import KEPT, SWITCH, switched_on
from swift_vlrft.swift_plugin.mixin import SwiftsTrainer

logger = get_logger()
Values = tuple[torch.Tensor, torch.Tensor | None]


class SharedPrefixes(SwiftsTrainer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._shares = switched_on()
        self._said: set[str] = set()
        self._features = FeatureCache(KEPT)
        # By the tensor of token ids, while it lives: one micro-batch serves the old policy's pass,
        # the reference's and each update.
        self._micro_batches: Any = WeakTensorKeyDictionary()
        super().__init__(*args, **kwargs)
        if not self._shares:
            return
        if why := self._why_never():
            self._say(f"not used: {why}. Every micro-batch is computed as ms-swift does it.")
            return
        replaced = self._base(self.model).config.get_text_config()._attn_implementation
        if replaced != "sdpa":
            self._say(f"the language model's attention is torch's sdpa instead of {replaced}.")
        for model in (self.model, self.ref_model):
            if model is not None:
                use_shared_attention(self._base(model))
        dropout = max((getattr(a, "lora_dropout", 0) or 0 for a in self._adapters()), default=0)
        if dropout:
            self._say(
                f"LoRA's dropout {dropout} draws one mask for a shared prompt, but one per "
                "separate row; with --lora_dropout 0 the results are the same."
            )

    def _base(self, model: Any) -> Any:
        """Return the transformers model inside engines and adapters."""
        model = self.accelerator.unwrap_model(model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    def _adapters(self) -> list[Any]:
        """Return the configurations of the policy's adapters."""
        return [*getattr(self.accelerator.unwrap_model(self.model), "peft_config", {}).values()]

    def _why_never(self) -> str | None:
        base, template = self._base(self.model), self.template
        if why := why_not_shared(base.config.to_dict()):
            return why
        layers = getattr(base.config.get_text_config(), "layer_types", None) or ()
        reasons = {
            "the model has layers with a sliding window": "sliding_attention" in layers,
            "the layers of Gated DeltaNet have a forward of their own (several devices?)": (
                has_another_forward(base)
            ),
            "the adapter puts tokens of its own before the prompt": any(
                adapter.is_prompt_learning for adapter in self._adapters()
            ),
            "--padding_free packs rows in its own way": template.padding_free,
            "--multi_turn_scheduler gives rows of one prompt further images": bool(
                self.args.multi_turn_scheduler
            ),
            "--sequence_parallel_size above 1 splits rows over processes": (
                template.sequence_parallel_size > 1
            ),
            "--use_liger_kernel computes the loss without log-probabilities": self.use_liger_loss,
            "FSDP is not supported (DeepSpeed is)": self.is_fsdp_enabled,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        # Free what was kept for the last generation batch before the rollout needs the memory.
        self._features.clear()
        self._micro_batches.clear()
        return super()._generate_and_score_completions(inputs)

    def _get_per_token_logps_and_entropies_single(
        self, model: Any, model_inputs: Any, grpo_batch: Any, compute_entropy: bool = False
    ) -> Values:
        stock: Callable[[], Values] = partial(
            super()._get_per_token_logps_and_entropies_single,
            *(model, model_inputs, grpo_batch, compute_entropy),
        )
        base = self._base(model)
        if not self._shares or base.config.get_text_config()._attn_implementation != NAME:
            return stock()
        batch = self._micro_batch(base, model_inputs, grpo_batch.completion_mask)
        *_, encoder = parts = encoders(base)
        frozen = not any(p.requires_grad for part in parts for p in part.parameters())
        features = self._features.get(encoder, batch.digests) if batch and frozen else None
        # All ranks pack if all can and one gains, and use kept features if none lacks any.
        own = (batch is not None, batch is not None and batch.repeats, features is not None)
        can, repeats, stored = zip(*gather_object([own]), strict=True)
        if batch is None or not all(can):
            return stock()
        keeping = (
            self._features.fill(encoder, batch.digests, batch.distinct_tokens)
            if frozen and not all(stored)
            else nullcontext()
        )
        if not any(repeats) and not all(stored):
            self._say("a micro-batch without repeated prompts is computed as ms-swift does it.")
            with keeping:
                return stock()
        self._say(
            f"first micro-batch: {batch.tokens} tokens instead of {batch.row_tokens}, "
            f"{len(batch.distinct_images)} images instead of {len(batch.images.tokens)}, for "
            f"{batch.rows} completions of {len(batch.groups)} prompts; image features are "
            + (f"kept up to {KEPT >> 20} MiB." if frozen else "not kept.")
        )
        # Without ms-swift's forward hook, which encodes the images and drops unknown arguments.
        with self.template.generate_context(), keeping:
            logits = forward(model, batch, features if all(stored) else None)
        mask = grpo_batch.completion_mask
        values = values_of(logits, batch.targets, self.temperature, entropy=compute_entropy)
        logps, entropies = (None if value is None else unpack(value, mask) for value in values)
        return logps, entropies

    def _micro_batch(
        self, base: Any, model_inputs: dict[str, Any], completion_mask: torch.Tensor
    ) -> Packed | None:
        ids = model_inputs["input_ids"]
        if ids not in self._micro_batches:
            self._micro_batches[ids] = None
            try:
                self._micro_batches[ids] = _pack(base.config, model_inputs, completion_mask)
            except CannotPack as error:
                self._say(f"a micro-batch is computed as ms-swift does it: {error}.")
        return self._micro_batches[ids]  # type: ignore[no-any-return]

    def _say(self, text: str) -> None:
        """Log a line once; lines that differ only in numbers count as one."""
        if (key := re.sub(r"\d+", "#", text)) not in self._said:
            self._said.add(key)
            logger.info(f"swift_vlrft: {SWITCH}: {text}")


def _pack(config: Any, model_inputs: dict[str, Any], completion_mask: torch.Tensor) -> Packed:
    if model_inputs.get("pixel_values_videos") is not None:
        raise CannotPack("it holds videos")
    if model_inputs.get("pixel_values") is None:
        raise CannotPack("it holds no images")
    ids, grids = model_inputs["input_ids"], model_inputs.get("image_grid_thw")
    positions = model_inputs.get("position_ids")
    images = Images(
        model_inputs["pixel_values"],
        grids,
        config.image_token_id,
        getattr(config.vision_config, "spatial_merge_size", 1),
        tile_tokens=getattr(config, "image_seq_length", 0),
    )
    if grids is None and positions is None:  # as transformers counts them then
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    if positions is None or positions.ndim != (2 if grids is None else 3):
        raise CannotPack("its position ids are not those of its family")
    return pack(ids, model_inputs.get("attention_mask"), positions, completion_mask, images)
