"""The measuring process of `vlrft agree`: ms-swift's GRPO run up to its first step, then no
training.

    python -m swift_vlrft.swift_plugin.agreement JOB.json --rlhf_type grpo ...     (or under
    torchrun)

Model, template, engine, sharding and weight synchronisation are those of the run itself: the
pipeline of `swift rlhf` builds its trainer and prepares it, and a callback measures where the
training would begin. ``swift_vlrft.agreement`` judges what was measured.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import torch
from swift.pipelines.train.rlhf import SwiftRLHF
from swift.rlhf_trainers.utils import collate_to_grpo_micro_batch, encode_sample
from swift.trainers import disable_gradient_checkpointing
from swift.utils import remove_response
from torch import distributed
from transformers import TrainerCallback

from swift_vlrft.agreement.figures import Row, figures, noise, of_rows
from swift_vlrft.agreement.measurement import Job, Measurement, Moved
from swift_vlrft.agreement.verdict import off
from swift_vlrft.agreement.weights import irregular, part_of, row_sums, stale_parts, unchanged
from swift_vlrft.files.records import read_record, write_record

SCANNED = 1000
"""Rows of the set that are looked at for rows with and without images."""
STEPS = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
VISIBLE = 20.0
"""The step is enlarged until the trainer's own answer moves by this much more than its noise."""

NO_ROWS = "the data set has no rows: give another with --dataset"

Samples = list[Any]
Values = list[list[float]]


class Measured(BaseException):
    """Ends the training where it would begin."""


class Measuring(SwiftRLHF):
    job: Job

    def train(self, trainer: Any) -> Any:
        job = self.job

        class Begin(TrainerCallback):
            def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
                found = Measure(trainer, job).measure()
                if trainer.accelerator.is_main_process:
                    write_record(Path(job.result), found)
                raise Measured

        trainer.add_callback(Begin())
        with suppress(Measured):
            trainer.train(self._get_resume_checkpoint(trainer))


class Measure:
    """One trainer and its engine; every process takes its share of the rows."""

    def __init__(self, trainer: Any, job: Job) -> None:
        self.trainer, self.job = trainer, job
        self.vllm = trainer.args.use_vllm
        self.colocated = self.vllm and trainer.vllm_mode == "colocate"
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        name = f"vLLM {trainer.vllm_mode}" if self.vllm else "transformers"
        self.found = Measurement(engine=name, model=str(self.model.model_dir))
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

    def measure(self) -> Measurement:
        found, trainer = self.found, self.trainer
        self.rows = self._rows()
        if self.vllm and trainer.args.sleep_level < 2:
            found.loaded = of_rows(self.compare(sync=False)[0])
        found.rows, samples = self.compare()
        self.dtype = next(p.dtype for n, p in self.model.named_parameters() if "lora_" not in n)
        found.noise = noise(found.rows, self.resolution)
        found.facts = self._facts()
        found.adapter = hasattr(self.model, "peft_config")
        if self.resolution > 2**-20:
            found.notes.append(
                "the trainer's log-probabilities are of half precision, coarser than the engine's: "
                f"two that are neighbours at -12 are {8 * self.resolution:.2g} apart"
            )
        self._try(samples)
        if self.vllm:
            self._move(samples)
        return found

    def _rows(self) -> list[tuple[int, dict[str, Any]]]:
        """This process's share, half of it without images if there are such rows."""
        trainer, job = self.trainer, self.job
        kinds: dict[bool, list[tuple[int, dict[str, Any]]]] = {True: [], False: []}
        long = []
        limit = trainer.engine.engine.model_config.max_model_len if self.colocated else None
        for number, row in enumerate(islice(trainer.train_dataset, SCANNED), 1):
            kind = kinds[bool(row.get("images"))]
            if len(kind) == job.rows:
                continue
            tokens = self._prompt_tokens(row) if limit else 0
            if limit and tokens + trainer.request_config.max_tokens > limit:
                long.append(f"row {number}: {tokens}")
                continue
            kind.append((number, row))
            if all(len(kind) >= job.rows for kind in kinds.values()):
                break
        texts = kinds[False][: job.rows // 2 if kinds[True] else job.rows]
        chosen = kinds[True][: job.rows - len(texts)] + texts
        if not chosen and long:
            raise ValueError(
                f"no row fits into the engine: {long[0]} tokens of prompt and up to "
                f"{trainer.request_config.max_tokens} of the answer, --vllm_max_model_len allows "
                f"{limit}; raise it, or lower MAX_PIXELS"
            )
        if not chosen:
            raise ValueError(NO_ROWS)
        if long:
            self.found.notes.append(
                f"{len(long)} rows longer than the engine's {limit} tokens left out ({long[0]})"
            )
        if not kinds[True]:
            self.found.notes.append("no row has an image: only text was compared")
        share = -(-len(chosen) // trainer.accelerator.num_processes)
        first = trainer.accelerator.process_index * share
        return list(islice(cycle(chosen), first, first + share))

    def _prompt_tokens(self, row: dict[str, Any]) -> int:
        (sample,) = self.trainer.to_samples([row])
        remove_response(sample.messages)
        with self.trainer._template_context(self.trainer.template):
            return len(self.trainer.template.encode(sample.to_template_dict())["input_ids"])

    # Engine against trainer ----------------------------------------

    def compare(self, *, sync: bool = True) -> tuple[list[Row], Samples]:
        """The rows of all processes, sampled anew, and this process's samples."""
        trainer = self.trainer
        trainer._last_loaded_step = -1 if sync else trainer.state.global_step
        samples = trainer._generate_completions(trainer.to_samples([row for _, row in self.rows]))
        size = trainer.args.per_device_train_batch_size
        scores, again = self.score(samples, size), self.score(samples, 1 if size > 1 else 2)
        with rounding(self.model):
            rounded = self.score(samples, size)
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
        size: int,
        change: Callable[[dict[str, Any]], None] = lambda inputs: None,
    ) -> Values:
        """The trainer's log-probabilities, in micro-batches of ``size``, as
        ``_prepare_batch_inputs`` computes them, without dropout. ``change`` alters the model's
        inputs before.
        """
        trainer, model, found = self.trainer, self.trainer.model, []
        training = model.training
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

    def _against(self, samples: Samples, scores: Values) -> Any:
        """Figures of the engine's values against other scores, of all processes."""
        engine = [flat(sample.rollout_logprobs) for sample in samples]
        same = [(a, b) for a, b in zip(engine, scores, strict=True) if a and len(a) == len(b)]
        both = gathered(same)
        return figures([a for a, _ in both], [b for _, b in both])

    # Causes ----------------------------------------

    def _facts(self) -> dict[str, tuple[str, str]]:
        """Of the trainer and of the engine, what can be read off them."""
        if not self.colocated:
            return {}
        engine = self.trainer.engine.engine.model_config
        names = [name for name, _ in self.trainer.engine.inner_model.named_parameters()]
        ours = [name for name, _ in self.model.named_parameters()]
        media = getattr(engine, "multimodal_config", None)
        quantised = getattr(self.model.model_info, "quant_method", None)
        return {
            "dtype": (str(self.dtype)[6:], str(engine.dtype)[6:]),  # without "torch."
            "quantisation": (
                str(quantised).replace("bnb", "bitsandbytes"),
                str(engine.quantization),
            ),
            "tied embeddings": (tied(ours), tied(names)),
            "processor options": ("{}", str(getattr(media, "mm_processor_kwargs", None) or {})),
        }

    def _try(self, samples: Samples) -> None:
        """The same tokens under conditions that an engine might have."""

        def in_order(inputs: dict[str, Any]) -> None:
            for name in ("position_ids", "text_position_ids"):
                if torch.is_tensor(inputs.get(name)):
                    places = torch.arange(inputs[name].shape[-1], device=inputs[name].device)
                    inputs[name] = places.expand_as(inputs[name]).clone()
            if inputs.get("position_ids") is None:
                ids = inputs["input_ids"]
                places = torch.arange(ids.shape[1], device=ids.device)
                inputs["position_ids"] = places.expand_as(ids)

        with suppress(TypeError):  # a model that takes none
            found = self._against(samples, self.score(samples, 1, in_order))
            if found:
                self.found.tried["sequential positions"] = found.mean
        config = self.trainer.request_config
        if (config.top_k or -1) > 0 or config.top_p not in (None, 1.0) or config.min_p:
            kept = config.top_k, config.top_p, config.min_p
            config.top_k, config.top_p, config.min_p = -1, 1.0, None
            unfiltered = of_rows(self.compare()[0])
            config.top_k, config.top_p, config.min_p = kept
            if unfiltered:
                self.found.tried["no sampling filters"] = unfiltered.mean

    # Weight synchronisation ----------------------------------------

    def _move(self, samples: Samples) -> None:
        """Move every trained weight, synchronise, compare; then the weights are put back."""
        floor = self.found.noise
        size = self.trainer.args.per_device_train_batch_size
        first, sums = self.score(samples, size), self.sums
        target = max(VISIBLE * floor.mean, 0.01) if floor else 0.0
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        weights = [p for _, p in named]
        kept = [local(p).to("cpu", copy=True) for p in weights]
        added = self._lora_sums()
        step = STEPS[0]
        for step in STEPS:
            move(weights, kept, step)
            both = gathered(list(zip(first, self.score(samples, size), strict=True)))
            seen = figures([a for a, _ in both], [b for _, b in both])
            if seen is None or seen.mean >= target:
                break
        rows, moved = self.compare()
        changed, after = self.sums, self._lora_sums()
        move(weights, kept, 0.0)
        before = self._against(moved, self.score(moved, size))
        result = Moved(step, rows, noise(rows, self.resolution), before, {})
        back = figures(first, self.score(samples, size))
        result.left = back.mean if back else 0.0
        if self.colocated and not self.trainer.rollout_enable_lora:
            most: dict[str, float] = {}
            for name, share in gathered([(n, unchanged(sums[n], changed[n])) for n in sums]):
                most[name] = max(share, most.get(name, 0.0))
            trained = {n for n, _ in named}
            frozen = {n for n, p in self.model.named_parameters() if not p.requires_grad}
            if self.found.facts["tied embeddings"][0] == "tied" and any(map(embeds, trained)):
                trained.add("lm_head.weight")
            result.stale = stale_parts(trained, frozen, most)
            if added and after:
                wanted = sum(float((after[n] - added[n]).square().sum()) for n in added)
                arrived = sum(float((changed[n] - sums[n]).square().sum()) for n in sums)
                result.lora_scale = (arrived / wanted) ** 0.5 if wanted else None
        followed = not off(of_rows(rows), result.noise) or off(of_rows(self.found.rows), floor)
        if not followed and not result.stale:
            for part in sorted({part_of(name) for name, _ in named}):
                of_part = [n for n, (name, _) in enumerate(named) if part_of(name) == part]
                move([weights[n] for n in of_part], [kept[n] for n in of_part], step)
                found = of_rows(self.compare()[0])
                result.parts[part] = found.mean if found else 0.0
                move(weights, kept, 0.0)
        self.found.moved = result

    def _lora_sums(self) -> dict[str, torch.Tensor]:
        """As ``row_sums``, of what each adapter adds to its weight; empty with sharded weights."""
        found = {}
        for name, module in self.model.named_modules():
            for adapter, a in getattr(module, "lora_A", {}).items():
                if hasattr(a.weight, "ds_tensor") or self.trainer.accelerator.num_processes > 1:
                    return {}
                b = module.lora_B[adapter].weight.detach().double()
                a = a.weight.detach().double()
                sums = b @ (a @ irregular(a.shape[1], a.device))
                found[f"{name}.{adapter}"] = (module.scaling[adapter] * sums).cpu()
        return found


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


def embeds(name: str) -> bool:
    return part_of(name) == "language embeddings"


def tied(names: Sequence[str]) -> str:
    return "separate" if any(part_of(n) == "language output layer" for n in names) else "tied"


def local(parameter: torch.nn.Parameter) -> torch.Tensor:
    """What this process holds of a weight: ZeRO-3's or FSDP's shard, or all of it (ZeRO-3 shards no
    small weights).
    """
    if parameter.numel() < getattr(parameter, "ds_numel", 0):
        return parameter.ds_tensor.data  # type: ignore[no-any-return, attr-defined]
    data = parameter.data
    return data.to_local() if hasattr(data, "to_local") else data


def move(weights: Sequence[torch.nn.Parameter], kept: Sequence[torch.Tensor], step: float) -> None:
    """Each weight away from where it was, by normal random numbers of ``step`` times its root mean
    square; with 0 exactly back. The same in every process that holds the same part.
    """
    for number, (weight, was) in enumerate(zip(weights, kept, strict=True)):
        place = local(weight)
        start = was.to(place.device)
        size = float(start.float().square().mean().sqrt()) or 0.02  # a new adapter's B is zero
        if step:
            generator = torch.Generator(place.device).manual_seed(number)
            drawn = torch.randn(start.shape, generator=generator, device=place.device)
            start = start + (step * size * drawn).to(start.dtype)
        place.copy_(start)
        shard = getattr(weight, "ds_tensor", None)
        if shard is not None and shard.data_ptr() != place.data_ptr():  # whole, and sharded besides
            rank = distributed.get_rank(weight.ds_process_group)  # type: ignore[attr-defined]
            part = place.flatten()[rank * shard.numel() : (rank + 1) * shard.numel()]
            shard.data[: part.numel()].copy_(part)


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


def prepare_cpu(flags: Sequence[str]) -> None:
    """Without a GPU: DeepSpeed wants a process group before anything else, and vLLM's CPU kernels
    keep a packed copy of the weights, into which no synchronisation can load.
    """
    if "--deepspeed" in flags and "RANK" in os.environ:
        import deepspeed

        deepspeed.init_distributed("gloo")
    if importlib.util.find_spec("vllm"):
        import vllm._custom_ops

        vllm._custom_ops._supports_onednn = False
        torch.cpu._is_amx_tile_supported = lambda: False


def main(arguments: Sequence[str]) -> None:
    job = read_record(Path(arguments[0]), Job)
    sys.argv = [sys.argv[0], *arguments[1:]]  # the plugin reads them, too
    if not torch.cuda.is_available():
        prepare_cpu(arguments)
    Measuring.job = job
    try:
        Measuring().main()
    except (Exception, SystemExit) as error:
        if os.environ.get("RANK", "0") == "0":
            empty = isinstance(error, StopIteration)  # ms-swift looks for columns in the first row
            text = NO_ROWS if empty else str(error) or type(error).__name__
            Path(job.result).with_suffix(".error").write_text(text)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
