"""One trainer and its engine: the rows sampled by the one, and scored by the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from swift.rlhf_trainers.utils import collate_to_grpo_micro_batch, encode_sample
from swift.trainers import disable_gradient_checkpointing
from torch import distributed

from swift_vlrft.agreement.figures import Figures, Row, figures
from swift_vlrft.agreement.measurement import Job
from swift_vlrft.agreement.weights import row_sums

Samples = list[Any]
Values = list[list[float]]
NumberedRow = tuple[int, dict[str, Any]]


class Sides:
    """``rows`` are this process's, by their number in the set; ``sums`` is of the engine's weights
    at the last rollout; ``resolution`` that of the trainer's log-probabilities.
    """

    rows: list[NumberedRow]
    resolution: float

    def __init__(self, trainer: Any, job: Job) -> None:
        self.trainer = trainer
        self.vllm = trainer.args.use_vllm
        self.colocated = self.vllm and trainer.vllm_mode == "colocate"
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        self.size = trainer.args.per_device_train_batch_size
        config = trainer.request_config
        config.max_tokens, config.logprobs = min(config.max_tokens or job.tokens, job.tokens), True
        if not self.vllm:  # it returns log-probabilities from before the temperature
            config.temperature = trainer.temperature = 1.0
        self.answers: list[Any] = []
        self.sums: dict[str, torch.Tensor] = {}
        self._watch()

    def _watch(self) -> None:
        """Keep what ms-swift drops: the engine's prompts, and sums of its weights while it is
        awake."""
        trainer = self.trainer
        infer, merge = trainer._engine_infer, trainer._postprocess_rollout_outputs

        def _engine_infer(*args: Any, **kwargs: Any) -> Any:
            if self.colocated:
                self.sums = row_sums(trainer.engine.inner_model)
            return infer(*args, **kwargs)

        def _postprocess_rollout_outputs(samples: Samples, outputs: Any) -> Samples:
            self.answers = [output.response for output in outputs]
            return merge(samples, outputs)  # type: ignore[no-any-return]

        trainer._engine_infer = _engine_infer
        trainer._postprocess_rollout_outputs = _postprocess_rollout_outputs

    def compare(self, *, sync: bool = True) -> tuple[list[Row], Samples]:
        """The rows of all processes, sampled anew, and this process's samples."""
        trainer = self.trainer
        trainer._last_loaded_step = -1 if sync else trainer.state.global_step
        samples = trainer._generate_completions(trainer.to_samples([row for _, row in self.rows]))
        scores, again = self.score(samples), self.score(samples, 1 if self.size > 1 else 2)
        with rounding(self.model):
            rounded = self.score(samples)
        tokenizer, found = trainer.template.tokenizer, []
        columns = zip(self.rows, samples, self.answers, scores, again, rounded, strict=True)
        for (number, _), sample, answer, of_trainer, *others in columns:
            tokens = flat(sample.response_token_ids)
            whole, asked = list(sample.encoded["input_ids"]), answer.prompt_token_ids
            prompt = whole[: len(whole) - len(tokens)]
            found.append(
                Row(
                    place=f"row {number}",
                    images=len(sample.images or ()),
                    prompt=prompt,
                    asked=None if asked is None else list(asked),
                    tokens=tokens,
                    texts=[tokenizer.decode([token]) for token in tokens],
                    engine=flat(sample.rollout_logprobs),
                    trainer=of_trainer,
                    again=others[0],
                    rounded=others[1],
                    apart=apart(prompt, list(asked or ()), tokenizer),
                )
            )
        return gathered(found), samples

    def score(
        self,
        samples: Samples,
        size: int | None = None,
        change: Callable[[dict[str, Any]], None] = lambda inputs: None,
    ) -> Values:
        """The trainer's log-probabilities, in micro-batches of ``size`` (the run's own), as
        ``_prepare_batch_inputs`` computes them, without dropout. ``change`` alters the model's
        inputs before.
        """
        trainer, model, found = self.trainer, self.trainer.model, []
        training, size = model.training, size or self.size
        model.eval()
        for start in range(0, len(samples), size):
            batch = samples[start : start + size]
            with trainer._template_context(trainer.template):
                for sample in batch:
                    sample.encoded = encode_sample(sample, trainer.template)
                    sample.encoded.pop("_extra_kwargs", None)
                inputs, grpo = collate_to_grpo_micro_batch(
                    *(batch, trainer.template),
                    device=trainer.accelerator.device,
                    use_logits_to_keep=True,
                )
            inputs.pop("labels", None)
            change(inputs)
            checkpointing = trainer.args.gradient_checkpointing_kwargs
            with torch.no_grad(), disable_gradient_checkpointing(trainer.model, checkpointing):
                logps = trainer._get_per_token_logps_and_entropies(model, inputs, grpo)[0]
            mask, self.resolution = grpo.completion_mask.bool(), torch.finfo(logps.dtype).eps
            found += [row[kept].float().tolist() for row, kept in zip(logps, mask, strict=True)]
        model.train(training)
        return found

    def against(self, samples: Samples, scores: Values) -> Figures | None:
        """Figures of the engine's values against other scores, of all processes."""
        return figures_of_all([flat(sample.rollout_logprobs) for sample in samples], scores)


def figures_of_all(first: Values, second: Values) -> Figures | None:
    """Of the rows of all processes in which both have equally many values."""
    same = [(a, b) for a, b in zip(first, second, strict=True) if a and len(a) == len(b)]
    both = gathered(same)
    return figures([a for a, _ in both], [b for _, b in both])


def gathered(values: list[Any]) -> list[Any]:
    """Those of all processes."""
    if not distributed.is_initialized():
        return values
    parts: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(parts, values)
    return [*chain.from_iterable(parts)]


def flat(values: Any) -> list[Any]:
    """ms-swift nests tokens and log-probabilities by turn."""
    nested = values and isinstance(values[0], (list, tuple))
    return [*chain.from_iterable(values)] if nested else list(values or ())


def apart(ours: list[int], theirs: list[int], tokenizer: Any) -> str:
    """How the two prompts go on where they first differ."""
    same = len(os.path.commonprefix([ours, theirs]))
    if ours == theirs or not theirs:
        return ""
    ends = [tokenizer.decode(side[same : same + 12]) for side in (ours, theirs)]
    return f"after {same} tokens the trainer goes on with {ends[0]!r}, the engine with {ends[1]!r}"


@contextmanager
def rounding(model: torch.nn.Module) -> Iterator[None]:
    """Every layer's output moved at random by at most half the spacing of its numbers: what another
    order of the same sums may do.
    """

    def hook(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
        if not torch.is_tensor(output) or not output.is_floating_point():
            return output
        share = torch.rand(output.shape, device=output.device) - 0.5
        return (output * (1 + torch.finfo(output.dtype).eps * share)).to(output.dtype)

    leaves = [m for m in model.modules() if [*m.parameters(False)] and not [*m.children()]]
    hooks = [leaf.register_forward_hook(hook) for leaf in leaves]
    try:
        yield
    finally:
        for one in hooks:
            one.remove()
