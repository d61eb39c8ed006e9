"""Compare ms-swift's GRPO trainer with its engine: the engine samples rows, the trainer scores."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch
from accelerate.utils import gather_object

from swift_vlrft.agreement.measurement import Row, first_apart
from swift_vlrft.swift_plugin.mixin import SwiftsTrainer

Samples = list[Any]
NumberedRow = tuple[int, dict[str, Any]]
STEPS = (0.08, 0.16, 0.32, 0.64)
"""Sizes by which weights are moved, each in shares of the weight's root mean square."""
VISIBLE_MOVE = 10.0
"""How far weights must move the trainer's own answers, in limits of its type."""
AMP = {"fp16": torch.float16, "bf16": torch.bfloat16}


class ComparisonMixin(SwiftsTrainer):
    """Samples rows with the engine and scores them with the trainer it stands in front of."""

    answers: Samples
    """The engine's answers to the rows that were sampled last."""

    def __init__(self, *args: Any, tokens: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.request_config
        config.max_tokens, config.logprobs = min(config.max_tokens or 512, tokens), True

    @property
    def colocated(self) -> bool:
        return bool(self.args.use_vllm and self.vllm_mode == "colocate")

    @property
    def dtype(self) -> torch.dtype:
        """Return the coarser type of both sides."""
        amp = self.accelerator.mixed_precision if self.accelerator.native_amp else "no"
        types = [AMP[amp]] if amp in AMP else []
        types += [p.dtype for n, p in self.model.named_parameters() if "lora_" not in n][:1]
        types += [self.engine.engine.model_config.dtype] if self.colocated else []
        return max(types, key=lambda dtype: torch.finfo(dtype).eps)

    def _postprocess_rollout_outputs(self, samples: Samples, outputs: Any) -> Samples:
        self.answers = [output.response for output in outputs]  # with the engine's prompts
        return super()._postprocess_rollout_outputs(samples, outputs)  # type: ignore[no-any-return]

    def compare(self, numbered: list[NumberedRow], *, sync: bool) -> tuple[list[Row], Samples]:
        """Return the rows of all processes, sampled anew, and this process's samples."""
        self._last_loaded_step = -1 if sync else self.state.global_step
        samples = self._generate_completions(self.to_samples([row for _, row in numbered]))
        scores = self.score(samples)
        decode, rows = self.template.tokenizer.decode, []
        for (number, _), sample, answer, score in zip(
            numbered, samples, self.answers, scores, strict=True
        ):
            tokens, asked = one_turn(sample.response_token_ids), answer.prompt_token_ids
            whole = list(sample.encoded["input_ids"])
            prompt = whole[: len(whole) - len(tokens)]
            place = None if asked is None else first_apart(prompt, asked)
            pair = [] if place is None else [side[place : place + 1] for side in (prompt, asked)]
            rows.append(
                Row(
                    place=f"row {number}",
                    images=len(sample.images or ()),
                    videos=len(sample.videos or ()),
                    prompt=prompt,
                    asked=None if asked is None else list(asked),
                    texts=[decode([token]) for token in tokens],
                    engine=one_turn(sample.rollout_logprobs),
                    trainer=score,
                    apart=[f"{s[0]} {decode(s)!r}" if s else "no more" for s in map(list, pair)],
                )
            )
        return gather_object(rows), samples

    def split_by_mini_batches(self, samples: Samples) -> list[Samples]:
        """Return batches of the size of training's; ms-swift splits a whole generation."""
        size = self.args.per_device_train_batch_size
        return [samples[start : start + size] for start in range(0, len(samples), size)]

    def score(self, samples: Samples) -> list[list[float]]:
        """Return the trainer's log-probabilities, as in its own steps but without dropout."""
        training, scores = self.model.training, []
        self.model.eval()
        for batch in self._prepare_batch_inputs(samples):
            grpo = batch["grpo_batch"]
            rows = zip(grpo.old_per_token_logps, grpo.completion_mask.bool(), strict=True)
            scores += [row[mask].float().tolist() for row, mask in rows]
        self.model.train(training)
        return scores

    def compare_moved(
        self, numbered: list[NumberedRow], samples: Samples, limit: float
    ) -> tuple[list[Row], str]:
        """Return the rows after every trained weight was moved and sent, and a note on the step.
        The weights are put back.
        """
        first = self.score(samples)
        weights = [p for p in self.model.parameters() if p.requires_grad]
        before = [local(p).to("cpu", copy=True) for p in weights]
        step = moved = 0.0
        for larger in STEPS:
            move(weights, before, larger)
            scores = zip(first, self.score(samples), strict=True)
            own = [abs(b - a) for pair in scores for a, b in zip(*pair, strict=True)]
            sizes = gather_object(own)
            mean = sum(sizes) / max(1, len(sizes))
            if step and not isfinite(mean):  # too large for the type
                move(weights, before, step)
                break
            step, moved = larger, mean
            if not moved < VISIBLE_MOVE * limit:
                break
        rows, _ = self.compare(numbered, sync=True)
        move(weights, before, 0.0)
        if not self.colocated:  # a server lives on
            self._move_model_to_vllm()
        return rows, f"weights moved by {step:.0%} before the sync, answers by {moved:.2g}"


def one_turn(values: Any) -> list[Any]:
    """Return tokens or log-probabilities, which ms-swift puts into a list of turns or not."""
    nested = values and isinstance(values[0], (list, tuple))
    return list(values[0] if nested else values or ())


def local(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return what this process holds of a weight: all of it, or FSDP's or ZeRO-3's shard."""
    if hasattr(parameter, "ds_tensor"):
        parameter.partition()  # type: ignore[attr-defined]  # some are left whole after a forward
        return parameter.ds_tensor.data  # type: ignore[no-any-return]
    data = parameter.data
    return data.to_local() if hasattr(data, "to_local") else data


def move(weights: Sequence[torch.nn.Parameter], saved: Sequence[torch.Tensor], step: float) -> None:
    """Move each weight by normal random numbers; with ``step`` 0 exactly back.

    The numbers are ``step`` times the weight's root mean square. Processes that hold the same part
    move it alike.
    """
    for number, (weight, was) in enumerate(zip(weights, saved, strict=True)):
        place = local(weight)
        start = was.to(place.device)
        size = float(start.float().square().mean().sqrt()) or 0.02  # a new adapter's B is zero
        if step:
            generator = torch.Generator(place.device).manual_seed(number)
            drawn = torch.randn(start.shape, generator=generator, device=place.device)
            start = start + (step * size * drawn).to(start.dtype)
        place.copy_(start)
