"""Run Gated DeltaNet (Qwen3.5) over a packed sequence, in two passes.

    prompts      [prompts, longest, width]      padded in front
    completions  [completions, longest, width]  padded after, from the state that their prompt left

That state has two halves: the matrix that the delta rule carries from token to token, and the last
inputs of the short convolution. Neither is detached, so gradients of all completions add up in
their prompt. Zeros in front of a prompt leave both as they are. The projections run once on the
packed sequence, so every rank calls the same modules (ZeRO-3) and padding costs no projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from swift_vlrft.shared_prefix.layout import Group


def use_shared_delta_net(model: Any) -> None:
    """Let the Gated DeltaNet layers of ``model`` read packed sequences."""
    for layer in _layers(model):
        layer.__class__ = type("SharedDeltaNet", (_SharedDeltaNet, type(layer)), {})


def has_another_forward(model: Any) -> bool:
    """Say whether a layer's forward is not its class's, so that ours would never be called:
    accelerate's hooks for several devices and the hub's kernels put theirs on the instance.
    """
    return any("forward" in vars(layer) for layer in _layers(model))


def _layers(model: Any) -> list[Any]:
    return [part for part in model.modules() if type(part).__name__.endswith("GatedDeltaNet")]


class _SharedDeltaNet:
    """A base class that precedes transformers' ``Qwen3_5GatedDeltaNet`` and its MoE variant."""

    def forward(
        self: Any,
        hidden_states: torch.Tensor,
        *args: Any,
        shared_prefix: Sequence[Group] | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Run the layer; ``shared_prefix`` holds the groups of a packed [1, tokens, width]."""
        if shared_prefix is None:
            plain: torch.Tensor = super().forward(hidden_states, *args, **kwargs)  # type: ignore[misc]
            return plain
        mixed, b, a = (
            project(hidden_states)[0]
            for project in (self.in_proj_qkv, self.in_proj_b, self.in_proj_a)
        )
        z = self.in_proj_z(hidden_states).reshape(-1, self.head_v_dim)
        g = -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias)
        out = torch.cat(_attend(self, (mixed, b.sigmoid(), g), shared_prefix))
        out = self.norm(out.reshape(-1, self.head_v_dim), z)
        result: torch.Tensor = self.out_proj(out.reshape(*hidden_states.shape[:2], -1))
        return result


def _attend(layer: Any, tensors: Sequence[torch.Tensor], groups: Sequence[Group]) -> Any:
    """Return the delta rule's output of every prompt and completion, in packed order."""
    sizes = [(group.shared, *group.lengths) for group in groups]
    parts = [x.split(list(chain(*sizes))) for x in tensors]
    firsts = [sum(map(len, sizes[:i])) for i in range(len(sizes))]
    rest = [i for i in range(len(parts[0])) if i not in firsts]

    before = layer.conv_kernel_size - 1
    mixed, beta, g = (
        pad_sequence([x[i] for i in firsts], batch_first=True, padding_side="left") for x in parts
    )
    mixed = F.pad(mixed, (0, 0, before, 0))
    out, state = _delta_rule(layer, mixed, beta, g)
    results = {i: out[row, -len(parts[0][i]) :] for row, i in enumerate(firsts)}
    if rest:
        copies = torch.tensor([len(group.lengths) for group in groups], device=mixed.device)
        tails, state = (
            x.repeat_interleave(copies, 0, output_size=len(rest))
            for x in (mixed[:, -before:], state)
        )
        mixed, beta, g = (pad_sequence([x[i] for i in rest], batch_first=True) for x in parts)
        out, _ = _delta_rule(layer, torch.cat([tails, mixed], 1), beta, g, state)
        results |= {i: out[row, : len(parts[0][i])] for row, i in enumerate(rest)}
    return [results[i] for i in range(len(results))]


def _delta_rule(
    layer: Any,
    mixed: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    state: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Any]:
    """Return the layer's output as in transformers' forward pass, and the state after a prompt.

    ``mixed`` has the inputs that the convolution needs in front of those of ``beta`` and ``g``.
    """
    from transformers.models.qwen3_5.modeling_qwen3_5 import (
        causal_conv1d_fn,
        torch_chunk_gated_delta_rule,  # flash-linear-attention's where that is installed
    )

    mixed = causal_conv1d_fn(
        mixed.transpose(1, 2),
        layer.conv1d.weight.squeeze(1),
        layer.conv1d.bias,
        activation=layer.activation,
    ).transpose(1, 2)[:, -beta.shape[1] :]
    query, key, value = mixed.split([layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
    query, key = (x.unflatten(-1, (layer.num_k_heads, layer.head_k_dim)) for x in (query, key))
    times = layer.num_v_heads // layer.num_k_heads
    if times > 1:
        query, key = (x.repeat_interleave(times, dim=2) for x in (query, key))
    result: tuple[torch.Tensor, Any] = torch_chunk_gated_delta_rule(
        query,
        key,
        value.unflatten(-1, (layer.num_v_heads, layer.head_v_dim)),
        g=g,
        beta=beta,
        initial_state=state,
        output_final_state=state is None,
        use_qk_l2norm_in_kernel=True,
    )
    return result
