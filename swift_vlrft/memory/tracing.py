"""Activations and temporaries, by running the real transformers class on tensors without data.

    trace(config, BatchShape(batch=1, length=2048, logits=513, grids=((1, 34, 46),), ...))
    -> {"backward of the LLM": {"activations LLM": 9123456789, ...}, ...}

Weights and activations are meta tensors (shapes, types and autograd, no bytes); the few integers
that steer a model (image grids, window indices, token ids) are real. A dispatch mode sees every
result of every operator, forward, recomputation and backward, and counts its storage until it is
freed, in the blocks that CUDA's caching allocator gives. What else is on the GPU (weights,
gradients, optimizer, gathers) is states.py's: gradients are dropped here once complete.

The model is run at full depth: where a stage peaks depends on the depth (start of the ViT's
backward pass, or the gradient of the embedding), so a few layers cannot be extrapolated.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from swift_vlrft.memory import stages
from swift_vlrft.memory.models import on_meta, part_of
from swift_vlrft.memory.stages import BatchShape, Peaks
from swift_vlrft.shared_prefix.settings import LOGPS_PART

BLOCK = 512
"""Bytes; kMinBlockSize of torch/csrc/.../CUDACachingAllocator."""

FLASH = "flash_traced"
"""Name of the stand-in for flash attention; transformers makes no mask for names with "flash"."""


def trace(config: dict[str, Any], shape: BatchShape) -> Peaks:
    """Peaks of one forward and backward pass of the model of ``config`` (a transformers config)."""
    model = _model(config, shape)
    counter = _Counter(model, shape.batch * _image_tokens(config, shape))
    _mark_stages(model, counter, shape)
    with warnings.catch_warnings(), _kernels(shape), torch.set_grad_enabled(shape.train), counter:
        # About checkpoints of a frozen part: a run prints it, a plan need not.
        warnings.filterwarnings("ignore", message="None of the inputs have requires_grad")
        inputs = inputs_of(config, shape, getattr(model.config, "image_token_id", 0))
        loss = _loss(model, inputs, shape, counter)
        if shape.train:
            counter.enter(stages.BACKWARD_LOSS)
            loss.backward()
    passed = stages.STAGES if shape.train else stages.STAGES[:3]
    return {stage: counter.peaks.get(stage, {}) for stage in passed}


class _Counter(TorchDispatchMode):
    """Counts live storages by component, and keeps the counts at each stage's peak."""

    def __init__(self, model: torch.nn.Module, image_tokens: int) -> None:
        super().__init__()
        self.image_tokens = image_tokens
        self.alive: Counter[str] = Counter()
        self.total = 0
        self.stage = stages.FORWARD_VIT
        self.peaks: Peaks = {}
        self.highest: dict[str, int] = {}
        self.vocabulary = model.get_output_embeddings().out_features
        self._storages: dict[int, Any] = {}
        for tensor in [*model.parameters(), *model.buffers()]:
            self._watch(tensor.untyped_storage(), "weights", 0)

    def enter(self, stage: str) -> None:
        self.stage = stage
        self._note_peak()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        devices = {tensor.is_meta for tensor in _tensors((args, tuple(kwargs.values())))}
        # Only copies may read integers from another device.
        if len(devices) > 1 and function not in _COPIES:
            args, kwargs = tree_map(_to_meta, (args, kwargs))
        if function in _BY_MASK and any(map(_is_mask, args[1])):
            args = (args[0], [*self._places(args[1])], *args[2:])
        result = function(*args, **kwargs)
        for tensor in _tensors(result):
            if tensor.is_meta and tensor.untyped_storage()._cdata not in self._storages:
                self._count(tensor)
        return result

    def _places(self, indices: Any) -> Iterator[torch.Tensor]:
        """A mask without data picks as many rows as there are image tokens: the only masks that
        these models index with.
        """
        for index in indices:
            rows = torch.empty(self.image_tokens, dtype=torch.long, device="meta")
            yield from [rows] * index.dim() if _is_mask(index) else [index]

    def _count(self, tensor: torch.Tensor) -> None:
        storage, component = tensor.untyped_storage(), stages.TEMPORARIES
        if tensor.dim() and tensor.shape[-1] == self.vocabulary and tensor.numel():
            component = stages.LOGITS
        elif self.stage in (stages.FORWARD_VIT, stages.FORWARD_LLM, stages.LOSS):
            component = stages.VIT if self.stage == stages.FORWARD_VIT else stages.LLM
        self._watch(storage, component, -(-storage.nbytes() // BLOCK) * BLOCK)
        self._note_peak()

    def _note_peak(self) -> None:
        if self.total > self.highest.get(self.stage, -1):
            self.highest[self.stage] = self.total
            self.peaks[self.stage] = {name: n for name, n in self.alive.items() if n}

    def _watch(self, storage: Any, component: str, size: int) -> None:
        key = storage._cdata

        def freed(_: Any) -> None:
            if self._storages.pop(key, None) is not None:
                self.alive[component] -= size
                self.total -= size

        self._storages[key] = weakref.ref(storage, freed)
        self.alive[component] += size
        self.total += size


_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
_BY_MASK = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """torch's tree_map takes longer than the rest of the trace."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.is_meta and index.dtype == torch.bool


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) and not value.is_meta else value


def _model(config: dict[str, Any], shape: BatchShape) -> Any:
    """As ms-swift prepares it for training: what is frozen, adapters, checkpointing."""
    model = on_meta(config).to(getattr(torch, shape.dtype))
    for part in model.modules():
        if hasattr(part, "config"):
            flash = shape.attention == "flash_attention_2"
            part.config._attn_implementation_internal = FLASH if flash else shape.attention
            part.config.use_cache = False
    model.train(shape.train)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(shape.train and not shape.lora_rank and _trains(name, shape))
    if shape.lora_rank:
        _add_lora(model, shape)
    arguments = {"gradient_checkpointing_kwargs": {"use_reentrant": shape.reentrant}}
    if shape.train and shape.checkpoint_llm:
        model.gradient_checkpointing_enable(**arguments)
        model.enable_input_require_grads()
    _, visual = _parts(model)
    if visual is not None and shape.train:
        # swift/trainers/mixin.py: _prepare_gradient_checkpointing sets the ViT apart.
        if shape.checkpoint_vit:
            visual.gradient_checkpointing_enable(**arguments)
        else:
            visual.gradient_checkpointing_disable()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    return model


def _parts(model: Any) -> tuple[Any, Any]:
    """The language model, and the ViT or None."""
    if hasattr(model, "transformer"):
        return model.transformer.encoder, model.transformer.vision
    llm = getattr(model.model, "language_model", model.model)
    return llm, getattr(model.model, "visual", None)


def _trains(name: str, shape: BatchShape) -> bool:
    trains = {"vit": shape.train_vit, "aligner": shape.train_aligner, "llm": shape.train_llm}
    return trains[part_of(name)]


def _add_lora(model: Any, shape: BatchShape) -> None:
    """peft's adapters on the targeted linear layers; by default on all of what trains, as
    ms-swift's target all-linear.
    """
    from peft import LoraConfig, inject_adapter_in_model

    head, targets = model.get_output_embeddings(), shape.lora_targets
    linear = [n for n, p in model.named_modules() if isinstance(p, torch.nn.Linear) and p != head]
    names = [n for n in linear if not targets and _trains(n, shape)]
    names += [n for n in linear if n.rsplit(".", 1)[-1] in targets]  # ms-swift takes these as given
    config = LoraConfig(r=shape.lora_rank, lora_dropout=shape.lora_dropout, target_modules=names)
    with torch.device("meta"):
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            dtype = torch.float32 if shape.lora_float32 else getattr(torch, shape.dtype)
            parameter.data = parameter.data.to(dtype)


def _merge(config: dict[str, Any]) -> int:
    """Patches that become one image token."""
    return int((config.get("vision_config") or {}).get("spatial_merge_size", 2)) ** 2


def _image_tokens(config: dict[str, Any], shape: BatchShape) -> int:
    return sum(time * rows * columns // _merge(config) for time, rows, columns in shape.grids)


def inputs_of(config: dict[str, Any], shape: BatchShape, image_token: int) -> dict[str, Any]:
    """What the template passes to the model; ValueError if the images do not fit the length."""
    ids = torch.zeros(shape.batch, shape.length, dtype=torch.long)
    inputs: dict[str, Any] = {"attention_mask": None, "use_cache": False, "input_ids": ids}
    positions, glm4v = torch.arange(shape.length).expand(shape.batch, -1), "boi_token_id" in config
    # The other models with images that are traced have M-RoPE's three rows.
    three = "vision_config" in config and not glm4v
    inputs["position_ids"] = positions.expand(3, -1, -1) if three else positions
    if not shape.grids:
        return inputs
    # A text token before each image, at GLM-4v also one after it: the marks of an image.
    seen = 0
    for time, rows, columns in shape.grids:
        count = time * rows * columns // _merge(config)
        if glm4v:
            image_token = config["pad_token_id"]
            ids[:, seen : seen + 1] = config["boi_token_id"]
            ids[:, seen + 1 + count : seen + 2 + count] = config["eoi_token_id"]
        ids[:, seen + 1 : seen + 1 + count] = image_token
        seen += count + 1 + glm4v
    if seen > shape.length:
        raise ValueError(f"{seen} image tokens do not go into a length of {shape.length}")
    vision, dtype = config["vision_config"], getattr(torch, shape.dtype)
    if glm4v:
        size = (shape.batch * len(shape.grids), 3, vision["image_size"], vision["image_size"])
        return inputs | {"pixel_values": torch.empty(size, dtype=dtype, device="meta")}
    grid = torch.tensor(shape.grids).repeat(shape.batch, 1)
    width = 3 * int(vision.get("temporal_patch_size", 2)) * int(vision["patch_size"]) ** 2
    # The processor makes float32; swift/template moves it to the model's type.
    pixels = torch.empty(int(grid.prod(-1).sum()), width, dtype=dtype, device="meta")
    return inputs | {"image_grid_thw": grid, "pixel_values": pixels}


def _loss(model: Any, inputs: dict[str, Any], shape: BatchShape, counter: _Counter) -> torch.Tensor:
    """swift/rlhf_trainers/grpo_trainer.py: _get_logps_via_local_forward, then the surrogate loss.

    Temperature divides the logits in place; shared_prefix/forward.py: values_of, in parts.
    """
    if "pixel_values" not in inputs:
        counter.enter(stages.FORWARD_LLM)
    if shape.chunked_loss:
        return _chunked(model, inputs, shape, counter)
    logits = model(**inputs, logits_to_keep=shape.logits).logits
    if shape.logits_float32:
        logits = logits.float()
    counter.enter(stages.LOSS)
    if not shape.packed and shape.logits == shape.length:
        logits = logits[:, :-1]
    elif not shape.packed:
        logits = logits[:, -shape.logits : -1]
        logits.div_(0.9)
    chosen = torch.zeros(logits.shape[:2], dtype=torch.long, device="meta")[..., None]
    if shape.packed:
        parts = zip(*(x.split(LOGPS_PART, dim=1) for x in (logits, chosen)), strict=True)
        logps = torch.cat([_log_probabilities(some / 0.9, labels) for some, labels in parts], dim=1)
    else:
        logps = _log_probabilities(logits, chosen)
    del logits
    return (logps - logps.detach()).exp().mean()


def _log_probabilities(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """trl/trainer/utils.py: selective_log_softmax, the log-softmax row by row below float32 and
    logsumexp in float32.
    """
    if logits.dtype == torch.float32:
        picked = torch.gather(logits, -1, chosen)
        summed = torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
        return (picked - summed.unsqueeze(-1)).squeeze(-1)
    pairs = zip(logits, chosen, strict=True)
    rows = [torch.log_softmax(row, dim=-1).gather(-1, labels) for row, labels in pairs]
    return torch.stack(rows).squeeze(-1)


def _chunked(
    model: Any, inputs: dict[str, Any], shape: BatchShape, counter: _Counter
) -> torch.Tensor:
    """liger's fused loss: one sequence's logits at a time, and the head's gradient as it goes.

    liger_kernel/chunked_loss/fused_linear_ppo.py: chunks of one sequence, logits in float32.
    """
    hidden = model.model(**inputs).last_hidden_state
    counter.enter(stages.LOSS)
    weight = model.get_output_embeddings().weight
    kept = hidden[:, -shape.logits : -1]
    with torch.no_grad():
        input_gradient = torch.empty_like(kept)
        weight_gradient = torch.empty_like(weight) if weight.requires_grad else None
        for row in kept:
            logits = (row @ weight.t()).float()
            logps = torch.log_softmax(logits, dim=-1)
            gradient = (logps.exp() * 0.5).to(row.dtype)
            if weight_gradient is not None:
                weight_gradient.add_(gradient.t() @ row)
        del logits, logps, gradient
    loss = (kept * input_gradient).sum()
    return loss if weight_gradient is None else loss + 0 * weight_gradient.sum()


def _mark_stages(model: Any, counter: _Counter, shape: BatchShape) -> None:
    """Hooks that tell the counter when the ViT, the LLM and the loss begin, both ways."""
    llm, visual = _parts(model)

    def before(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        counter.enter(stages.FORWARD_LLM)
        embeds = args[0] if args else kwargs.get("inputs_embeds")
        if embeds is not None and embeds.requires_grad:
            embeds.register_hook(lambda _: counter.enter(stages.BACKWARD_VIT))

    def after(_: Any, args: Any, output: Any) -> None:
        hidden = getattr(output, "last_hidden_state", output)
        if hidden.requires_grad:
            hidden.register_hook(lambda _: counter.enter(stages.BACKWARD_LLM))

    def one_window(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        ends = kwargs.get("cu_seqlens")
        return None if ends is None else (args, kwargs | {"cu_seqlens": ends[[0, -1]]})

    for module in visual.modules() if visual is not None and shape.attention == "sdpa" else ():
        # A kernel needs as much for thousands of windows as for one, which is sooner counted.
        if type(module).__name__.endswith("VisionAttention"):
            module.register_forward_pre_hook(one_window, with_kwargs=True)
    llm.register_forward_pre_hook(before, with_kwargs=True)
    llm.register_forward_hook(after)
    if shape.train and visual and not any(p.requires_grad for p in visual.parameters()):
        # swift/model/patcher.py: patch_frozen_module runs a wholly frozen ViT without gradients.
        visual.forward = torch.no_grad()(visual.forward)


class _Kernel(torch.autograd.Function):
    """What flash attention saves (q, k, v, output, one float32 per row) and needs in backward.

    Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp: mha_bwd makes softmax_d and dq_accum in
    float32, and k's and v's gradients once per query head if heads are shared.
    """

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, cuda: bool) -> torch.Tensor:
        out = torch.empty_like(q)
        rows = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, rows)
        ctx.cuda = cuda
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        q, k, v, _, rows = ctx.saved_tensors
        if ctx.cuda:
            work = [torch.empty_like(rows), torch.empty_like(q, dtype=torch.float32)]
            if k.shape[1] != q.shape[1]:
                work += [torch.empty_like(q), torch.empty_like(q)]
        result = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), None
        return result


@contextmanager
def _kernels(shape: BatchShape) -> Iterator[None]:
    """Stand-ins for the kernels, which exist only on a GPU; "eager" needs none."""
    from transformers import AttentionInterface

    def sdpa(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> torch.Tensor:
        return _Kernel.apply(query, key, value, shape.cuda)

    def flash(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> Any:
        return sdpa(query, key, value).transpose(1, 2), None

    AttentionInterface.register(FLASH, flash)
    # Not a TorchFunctionMode: recomputation in the backward pass would not see one.
    with patch.object(torch.nn.functional, "scaled_dot_product_attention", sdpa):
        yield
