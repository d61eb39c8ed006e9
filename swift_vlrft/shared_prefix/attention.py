"""Attend over a packed sequence, in two parts and without a quadratic mask.

    prompt       sees itself, causally                        [1, heads, P, P]
    completions  see their prompt and themselves, causally    [G, heads, C, P + C], lower right

Both are torch's scaled_dot_product_attention with a causal flag, so that CUDA takes its flash
kernel and nothing dense is built; on a CPU the second part has a mask of C x (P + C). The prompt's
keys and values are written G times for the second part, as separate rows have them too.

It is registered as an attention function of transformers, for the language model alone, and falls
back to transformers' sdpa without a packed sequence (rollouts, batches that do not pack).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from swift_vlrft.shared_prefix.delta_net import use_shared_delta_net
from swift_vlrft.shared_prefix.layout import Group

NAME = "vlrft_shared_prefix"
"""The name of ``attend`` in transformers' registry."""


def use_shared_attention(model: Any) -> None:
    """Make the language model of ``model``, the unwrapped transformers model, use ``attend``.

    Its Gated DeltaNet layers read packed sequences in their own way (delta_net.py).
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation({"text_config": NAME})
    use_shared_delta_net(model)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    shared_prefix: Sequence[Group] | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Replace transformers' attention; ``shared_prefix`` holds the groups of a packed sequence.

    Query is [1, heads, tokens, width]; key and value may have fewer heads.
    """
    if shared_prefix is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return result
    options: dict[str, Any] = {"dropout_p": dropout, "scale": scaling}
    if query.shape[1] != key.shape[1]:
        # The flash kernel reads shared heads as they are; other kernels would fall back to the
        # one that writes all scores out.
        if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16):
            options["enable_gqa"] = True
        else:
            times = query.shape[1] // key.shape[1]
            key, value = (x.repeat_interleave(times, dim=1) for x in (key, value))
    tensors = (query, key, value)
    parts = [part for group in shared_prefix for part in _attend_group(group, tensors, options)]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


def _attend_group(
    group: Group, tensors: Sequence[torch.Tensor], options: dict[str, Any]
) -> list[torch.Tensor]:
    middle = group.start + group.shared
    q, k, v = prompt = [x[:, :, group.start : middle] for x in tensors]
    part = scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    if not group.lengths:
        return [part]
    q, k, v = (_as_batch(group.lengths, x[0, :, middle : group.stop]) for x in tensors)
    k, v = (
        torch.cat([shared.expand(len(q), -1, -1, -1), own], dim=2)
        for shared, own in ((prompt[1], k), (prompt[2], v))
    )
    mask = _lower_right(q.shape[2], k.shape[2], q.device)
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    rows = [row[:, :count] for row, count in zip(out, group.lengths, strict=True)]
    return [part, torch.cat(rows, dim=1)[None]]


def _lower_right(queries: int, keys: int, device: torch.device) -> torch.Tensor:
    """Return a causal mask, aligned lower right; on CUDA a bias object for the flash kernel."""
    if device.type == "cuda":
        # Inside a TorchDispatchMode (an operation counter, selective checkpointing) that object
        # cannot be made.
        with suppress(RuntimeError):
            return causal_lower_right(queries, keys)
    full = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return full.tril(keys - queries)


def _as_batch(lengths: Sequence[int], x: torch.Tensor) -> torch.Tensor:
    """Turn [heads, tokens, width] into [completions, heads, longest, width].

    Padding comes after all that a completion's tokens may see, and its results are dropped.
    """
    if len(set(lengths)) == 1:
        return x.unflatten(1, (len(lengths), lengths[0])).transpose(0, 1)
    rows = x.transpose(0, 1).split(list(lengths))
    return pad_sequence(rows, batch_first=True).transpose(1, 2)
