"""The text model: 40 layers, two groups of keys and values, rotary positions on half a head."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.glm.modeling_glm import eager_attention_forward

from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig

Turns = tuple[torch.Tensor, torch.Tensor]


def rotary(position_ids: torch.Tensor, config: ChatGLM4VConfig, dtype: torch.dtype) -> Turns:
    """Return cosines and sines [rows, 1, tokens, a quarter head] of positions [rows, tokens].

    Computed at each call in float32: nothing to keep in the checkpoint or to cast by accident.
    """
    width = config.kv_channels // 2
    pairs = torch.arange(0, width, 2, device=position_ids.device, dtype=torch.float32)
    frequencies = (10000.0 * config.rope_ratio) ** (-pairs / width)
    angles = position_ids[:, None, :, None].float() * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(states: torch.Tensor, turns: Turns, neighbours: bool) -> torch.Tensor:
    """Turn pairs of the first half of each head's dimensions.

    ``neighbours``: dimensions (0, 1), (2, 3), ... are pairs, else (0, 32), (1, 33), ...
    """
    cos, sin = turns
    pairs = cos.shape[-1]
    first, rest = states.split((2 * pairs, states.shape[-1] - 2 * pairs), dim=-1)
    x, y = first.unflatten(-1, (pairs, 2)).unbind(-1) if neighbours else first.chunk(2, dim=-1)
    turned = (x * cos - y * sin, y * cos + x * sin)
    first = torch.stack(turned, -1).flatten(-2) if neighbours else torch.cat(turned, -1)
    return torch.cat((first, rest), dim=-1)


class TextAttention(nn.Module):
    is_causal = True

    def __init__(self, config: ChatGLM4VConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.heads, self.groups = config.num_attention_heads, config.multi_query_group_num
        self.num_key_value_groups = self.heads // self.groups
        self.scaling = config.kv_channels**-0.5
        width = self.heads * config.kv_channels
        mixed = width + 2 * self.groups * config.kv_channels
        self.query_key_value = nn.Linear(config.hidden_size, mixed, bias=True)
        self.dense = nn.Linear(width, config.hidden_size, bias=False)

    def forward(
        self,
        states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        turns: Turns,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        mixed = self.query_key_value(states).unflatten(-1, (-1, self.config.kv_channels))
        turning, value = mixed.transpose(1, 2).split((self.heads + self.groups, self.groups), 1)
        turning = rotate(turning, turns, self.config.original_rope)
        query, key = turning.split((self.heads, self.groups), dim=1)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.dense(context.flatten(2)), weights


class TextMLP(nn.Module):
    """The SwiGLU layer; ``dense_h_to_4h`` computes the gate and the gated values at once."""

    def __init__(self, config: ChatGLM4VConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.ffn_hidden_size
        self.dense_h_to_4h = nn.Linear(width, 2 * inner, bias=False)
        self.dense_4h_to_h = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        gate, up = self.dense_h_to_4h(states).chunk(2, dim=-1)
        return self.dense_4h_to_h(nn.functional.silu(gate) * up)


class ChatGLM4VTextLayer(GradientCheckpointingLayer):
    def __init__(self, config: ChatGLM4VConfig, layer_idx: int) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.layernorm_epsilon
        self.input_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.self_attention = TextAttention(config, layer_idx)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.mlp = TextMLP(config)

    def forward(self, states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        states = states + self.self_attention(self.input_layernorm(states), **kwargs)[0]
        return states + self.mlp(self.post_attention_layernorm(states))


class TextEncoder(nn.Module):
    def __init__(self, config: ChatGLM4VConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ChatGLM4VTextLayer(config, i) for i in range(config.num_layers))
        self.final_layernorm = nn.RMSNorm(config.hidden_size, eps=config.layernorm_epsilon)

    def forward(self, states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        for layer in self.layers:
            states = layer(states, **kwargs)
        return self.final_layernorm(states)
