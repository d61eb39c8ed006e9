"""Activations and temporaries, by running the real transformers class on tensors without data.

    simulate(config, Shape(batch=1, length=2048, logits=513, grids=((1, 34, 46),), ...))
    -> {"backward of the LLM": {"activations LLM": 9123456789, ...}, ...}

Weights and activations are meta tensors (shapes, types and autograd, no bytes); the few integers
that steer a model (image grids, window indices, token ids) are real. A dispatch mode sees every
result of every operator, forward, recomputation and backward, and counts its storage until it is
freed, in the blocks of 512 bytes that CUDA's caching allocator gives. What stands on the card
besides (weights, gradients, optimizer, gathers) is estimate.py's: gradients are dropped here as
soon as they are whole.

The model is run at its full depth: a stage's peak changes its place with the depth (start of the
ViT's backward pass, or the gradient of the embedding), so that few layers do not tell of many.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from swift_vlrft.memory.activations import (
    BACKWARD_LLM,
    BACKWARD_LOSS,
    BACKWARD_VIT,
    FORWARD_LLM,
    FORWARD_VIT,
    LLM,
    LOGITS,
    LOSS,
    STAGES,
    TEMPORARY,
    VIT,
    Peaks,
    Shape,
)
from swift_vlrft.memory.models import part_of
from swift_vlrft.shared_prefix.settings import LOGPS_PART

BLOCK = 512
"""Bytes; kMinBlockSize of torch/csrc/.../CUDACachingAllocator."""


def simulate(config: dict[str, Any], shape: Shape) -> Peaks:
    """Peaks of one forward and backward pass of the model of ``config`` (a transformers config)."""
    return measure(config, shape, *_depths(config))


def measure(config: dict[str, Any], shape: Shape, layers: int, vit_layers: int) -> Peaks:
    """The pass itself, at a given depth."""
    model = _build(config, shape, layers, vit_layers)
    counter = _Counter(model, shape.batch * _image_tokens(config, shape))
    parameters = [p for p in model.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(_drop_gradient)
    with _attention(shape), _sections(model, counter, shape), counter:
        inputs = _inputs(config, shape, getattr(model.config, "image_token_id", 0))
        if shape.train:
            with warnings.catch_warnings():
                # Of a frozen part's checkpoints: a run prints it, a plan need not.
                warnings.filterwarnings("ignore", message="None of the inputs have requires_grad")
                loss = _loss(model, inputs, shape, counter)
                counter.enter(BACKWARD_LOSS)
                loss.backward()
        else:
            with torch.no_grad():
                _loss(model, inputs, shape, counter)
    stages = STAGES if shape.train else STAGES[:3]
    return {stage: counter.peaks.get(stage, {}) for stage in stages}


# The counter ---------------------------------------------------------------------------------


class _Counter(TorchDispatchMode):
    """Counts the storages alive, by component, and keeps what was alive at each stage's peak."""

    def __init__(self, model: torch.nn.Module, image_tokens: int) -> None:
        super().__init__()
        self.image_tokens = image_tokens
        self.alive: Counter[str] = Counter()
        self.total = 0
        self.stage = FORWARD_VIT
        self.peaks: Peaks = {}
        self.highest: dict[str, int] = {}
        self.vocabulary = model.get_output_embeddings().out_features
        self._storages: dict[int, Any] = {}
        for tensor in [*model.parameters(), *model.buffers()]:
            self._known(tensor.untyped_storage(), "weights", 0)

    def enter(self, stage: str) -> None:
        self.stage = stage
        self._mark()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors: list[torch.Tensor] = []
        tree_map_only(torch.Tensor, tensors.append, (args, kwargs))
        if any(t.is_meta for t in tensors) and not all(t.is_meta for t in tensors):
            if function in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
                pass  # the one operator that may read integers from elsewhere
            else:
                args, kwargs = tree_map(_to_meta, (args, kwargs))
        if function in _BY_MASK and any(_is_mask(index) for index in args[1]):
            args = (args[0], [*self._places(args[1])], *args[2:])
        result = function(*args, **kwargs)
        tree_map_only(torch.Tensor, self._see, result)
        return result

    def _places(self, indices: Any) -> Iterator[torch.Tensor]:
        """A mask without data picks as many rows as there are image tokens: the only masks that
        these models index with.
        """
        for index in indices:
            if _is_mask(index):
                for _ in range(index.dim()):
                    yield torch.empty(self.image_tokens, dtype=torch.long, device="meta")
            else:
                yield index

    def _see(self, tensor: torch.Tensor) -> None:
        if not tensor.is_meta:
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self._storages:
            return
        size = -(-storage.nbytes() // BLOCK) * BLOCK
        if tensor.dim() and tensor.shape[-1] == self.vocabulary and tensor.numel():
            component = LOGITS
        elif self.stage in (FORWARD_VIT, FORWARD_LLM, LOSS):
            component = VIT if self.stage == FORWARD_VIT else LLM
        else:
            component = TEMPORARY
        self._known(storage, component, size)
        self.alive[component] += size
        self.total += size
        self._mark()

    def _mark(self) -> None:
        if self.total > self.highest.get(self.stage, -1):
            self.highest[self.stage] = self.total
            self.peaks[self.stage] = {name: n for name, n in self.alive.items() if n}

    def _known(self, storage: Any, component: str, size: int) -> None:
        key = storage._cdata

        def freed(_: Any) -> None:
            if self._storages.pop(key, None) is not None:
                self.alive[component] -= size
                self.total -= size

        self._storages[key] = weakref.ref(storage, freed)


_BY_MASK = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.is_meta and index.dtype == torch.bool


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) and not value.is_meta else value


def _drop_gradient(parameter: torch.Tensor) -> None:
    parameter.grad = None


# The model -----------------------------------------------------------------------------------


def _depths(config: dict[str, Any]) -> tuple[int, int]:
    text = config.get("text_config") or config
    vision = config.get("vision_config") or {}
    return int(text["num_hidden_layers"]), int(vision.get("depth", 0))


def _bare(config: dict[str, Any], layers: int, vit_layers: int) -> Any:
    """The class of ``config`` at a given depth, on meta."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    values = {name: value for name, value in config.items() if name != "model_type"}
    sees = bool(values.get("vision_config"))
    text = dict(values["text_config"] if sees else values)
    text["num_hidden_layers"] = layers
    text.pop("layer_types", None)
    if sees:
        vision = dict(values["vision_config"])
        vision["depth"] = vit_layers
        if "fullatt_block_indexes" in vision:
            vision["fullatt_block_indexes"] = [vit_layers - 1]
        if "deepstack_visual_indexes" in vision:
            count = len(vision["deepstack_visual_indexes"])
            vision["deepstack_visual_indexes"] = list(range(min(count, vit_layers)))
        values.update(text_config=text, vision_config=vision)
    else:
        values = text
    made = CONFIG_MAPPING[config["model_type"]](**values)
    maker = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    with torch.device("meta"):
        model = maker.from_config(made)
    model.tie_weights()
    return model


def _build(config: dict[str, Any], shape: Shape, layers: int, vit_layers: int) -> Any:
    model = _bare(config, layers, vit_layers).to(getattr(torch, shape.dtype))
    for part in model.modules():
        # The kernels themselves are _attention's; flash-attn need not be installed to be counted.
        if hasattr(part, "config"):
            part.config._attn_implementation_internal = shape.attention
            part.config.use_cache = False
    model.train(shape.train)
    visual = getattr(model.model, "visual", None)
    full = shape.lora_rank == 0
    for name, parameter in model.named_parameters():
        part = part_of(name)
        trains = {
            "vit": shape.train_vit,
            "aligner": shape.train_aligner,
            "llm": shape.train_llm,
        }[part]
        parameter.requires_grad_(full and trains and shape.train)
    if not full:
        model = _with_lora(model, shape)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    arguments = {"gradient_checkpointing_kwargs": {"use_reentrant": shape.reentrant}}
    if shape.train and shape.checkpoint_llm:
        inner.gradient_checkpointing_enable(**arguments)
        inner.enable_input_require_grads()
    if visual is not None and shape.train:
        # swift/trainers/mixin.py: _prepare_gradient_checkpointing sets the ViT apart.
        if shape.checkpoint_vit:
            visual.gradient_checkpointing_enable(**arguments)
        else:
            visual.gradient_checkpointing_disable()
    return inner


def _with_lora(model: Any, shape: Shape) -> Any:
    """peft's adapters on every linear layer that trains, as ms-swift's target all-linear."""
    from peft import LoraConfig, get_peft_model

    names = []
    for name, part in model.named_modules():
        trains = {
            "vit": shape.train_vit,
            "aligner": shape.train_aligner,
            "llm": shape.train_llm,
        }[part_of(name)]
        if trains and isinstance(part, torch.nn.Linear) and not name.endswith("lm_head"):
            names.append(name)
    config = LoraConfig(r=shape.lora_rank, lora_dropout=shape.lora_dropout, target_modules=names)
    with torch.device("meta"):
        wrapped = get_peft_model(model, config, autocast_adapter_dtype=shape.lora_float32)
    dtype = torch.float32 if shape.lora_float32 else getattr(torch, shape.dtype)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(dtype)
    return wrapped


def _image_tokens(config: dict[str, Any], shape: Shape) -> int:
    merge = int((config.get("vision_config") or {}).get("spatial_merge_size", 2)) ** 2
    return sum(time * rows * columns // merge for time, rows, columns in shape.grids)


def _inputs(config: dict[str, Any], shape: Shape, image_token: int) -> dict[str, Any]:
    ids = torch.zeros(shape.batch, shape.length, dtype=torch.long)
    inputs: dict[str, Any] = {"attention_mask": None, "use_cache": False}
    if shape.grids:
        vision = config["vision_config"]
        merge = int(vision.get("spatial_merge_size", 2)) ** 2
        image = image_token
        seen = 0
        for time, rows, columns in shape.grids:
            count = time * rows * columns // merge
            # one text token between two images
            ids[:, seen + 1 : seen + 1 + count] = image
            seen += count + 1
        if seen > shape.length:
            raise ValueError(f"{seen} image tokens do not go into a length of {shape.length}")
        grid = torch.tensor(shape.grids, dtype=torch.long).repeat(shape.batch, 1)
        patch = int(vision["patch_size"])
        width = 3 * int(vision.get("temporal_patch_size", 2)) * patch * patch
        inputs["image_grid_thw"] = grid
        # The processor makes float32; swift/template moves it to the model's type.
        inputs["pixel_values"] = torch.empty(
            int(grid.prod(-1).sum()), width, dtype=getattr(torch, shape.dtype), device="meta"
        )
    positions = torch.arange(shape.length).expand(shape.batch, -1)
    # Every model with images that is simulated has M-RoPE's three rows.
    inputs["position_ids"] = positions.expand(3, -1, -1) if "vision_config" in config else positions
    inputs["input_ids"] = ids
    return inputs


# The loss of ms-swift ---------------------------------------------------------------------------


def _loss(model: Any, inputs: dict[str, Any], shape: Shape, counter: _Counter) -> torch.Tensor:
    """swift/rlhf_trainers/grpo_trainer.py: _get_logps_via_local_forward, then the surrogate loss.

    Temperature divides the logits in place; shared_prefix/forward.py: values_of, in parts.
    """
    if not inputs.get("image_grid_thw", torch.empty(0)).numel():
        counter.enter(FORWARD_LLM)
    if shape.chunked_loss:
        return _chunked(model, inputs, shape, counter)
    logits = model(**inputs, logits_to_keep=shape.logits).logits
    if shape.logits_float32:
        logits = logits.float()
    counter.enter(LOSS)
    whole = shape.logits == shape.length
    if not shape.packed:
        logits = logits[:, :-1] if whole else logits[:, -shape.logits : -1]
        if not whole:
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
    rows = []
    for row, labels in zip(logits, chosen, strict=True):
        rows.append(torch.log_softmax(row, dim=-1).gather(-1, labels))
    return torch.stack(rows).squeeze(-1)


def _chunked(model: Any, inputs: dict[str, Any], shape: Shape, counter: _Counter) -> torch.Tensor:
    """liger's fused loss: one sequence's logits at a time, and the head's gradient as it goes.

    liger_kernel/chunked_loss/fused_linear_ppo.py: chunks of one sequence, logits in float32.
    """
    hidden = model.model(**inputs).last_hidden_state
    counter.enter(LOSS)
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
    return (kept * input_gradient).sum() + (
        0 if weight_gradient is None else 0 * weight_gradient.sum()
    )


# Sections and attention ---------------------------------------------------------------------


class _Border(torch.autograd.Function):
    """Nothing but a sign on the road back: the gradient has reached the part before."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, cross: Callable[[], None]) -> torch.Tensor:
        ctx.cross = cross
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        ctx.cross()
        return gradient, None


@contextmanager
def _sections(model: Any, counter: _Counter, shape: Shape) -> Iterator[None]:
    body = model.model
    llm = getattr(body, "language_model", body)
    visual = getattr(body, "visual", None)
    undo = []

    def before(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        counter.enter(FORWARD_LLM)
        embeds = kwargs.get("inputs_embeds")
        if embeds is not None and embeds.requires_grad:
            kwargs["inputs_embeds"] = _Border.apply(embeds, lambda: counter.enter(BACKWARD_VIT))
        return args, kwargs

    def after(_: Any, args: Any, output: Any) -> Any:
        if output.last_hidden_state.requires_grad:
            output.last_hidden_state = _Border.apply(
                output.last_hidden_state, lambda: counter.enter(BACKWARD_LLM)
            )
        return output

    undo.append(llm.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.append(llm.register_forward_hook(after).remove)
    if visual is not None and not any(p.requires_grad for p in visual.parameters()):
        # swift/model/patcher.py: patch_frozen_module runs a wholly frozen ViT without gradients.
        original = visual.forward

        def frozen(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                return original(*args, **kwargs)

        visual.forward = frozen
        undo.append(lambda: setattr(visual, "forward", original))
    try:
        yield
    finally:
        for function in undo:
            function()


class _Flash(torch.autograd.Function):
    """What flash attention keeps (q, k, v, output, one float32 per row) and needs on the way back.

    Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp: mha_bwd makes softmax_d and dq_accum in
    float32, and k's and v's gradients once per query head where heads are shared.
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
def _attention(shape: Shape) -> Iterator[None]:
    """Stand-ins for the kernels, which exist on a GPU only; "eager" needs none."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    functional = torch.nn.functional
    real = functional.scaled_dot_product_attention

    def sdpa(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> torch.Tensor:
        return _Flash.apply(query, key, value, shape.cuda)

    def flash(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> Any:
        return _Flash.apply(query, key, value, shape.cuda).transpose(1, 2), None

    functional.scaled_dot_product_attention = sdpa
    before = ALL_ATTENTION_FUNCTIONS._local_mapping.get("flash_attention_2")
    ALL_ATTENTION_FUNCTIONS["flash_attention_2"] = flash
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = real
        if before is None:
            del ALL_ATTENTION_FUNCTIONS["flash_attention_2"]
        else:
            ALL_ATTENTION_FUNCTIONS["flash_attention_2"] = before
