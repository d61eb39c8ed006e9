"""Build the vision tower: EVA2-CLIP with norms behind each block, and an adapter to the text model.

pixel_values [images, 3, 1120, 1120]
  14 x 14 patches and a class vector   [images, 6401, 1792]
  63 layers, class vector dropped      [images, 6400, 1792]
  2 x 2 convolution                    [images, 1600, 4096]
  gated adapter, boi before, eoi after [images, 1602, 4096]
"""

from __future__ import annotations

from argparse import Namespace

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.models.clip.modeling_clip import CLIPMLP
from transformers.models.glm.modeling_glm import eager_attention_forward

from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig


class PatchEmbedding(nn.Module):
    """Make patches by convolution, put the class vector in front, add learned positions."""

    def __init__(self, vision: Namespace) -> None:
        super().__init__()
        width, patch = vision.hidden_size, vision.patch_size
        self.proj = nn.Conv2d(vision.in_channels, width, kernel_size=patch, stride=patch)
        self.cls_embedding = nn.Parameter(torch.zeros(1, width))
        self.position_embedding = nn.Embedding(vision.num_positions, width)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        patches = self.proj(pixel_values).flatten(2).transpose(1, 2)
        first = self.cls_embedding.expand(len(patches), 1, -1)
        # The module is called, not its weight read: ZeRO-3 gathers a weight for its module's call.
        places = torch.arange(patches.shape[1] + 1, device=patches.device)
        return torch.cat((first, patches), dim=1) + self.position_embedding(places)


class VisionAttention(nn.Module):
    is_causal = False
    num_key_value_groups = 1

    def __init__(self, config: ChatGLM4VConfig, vision: Namespace) -> None:
        super().__init__()
        self.config = config
        self.heads = vision.num_heads
        self.scaling = (vision.hidden_size // vision.num_heads) ** -0.5
        self.query_key_value = nn.Linear(vision.hidden_size, 3 * vision.hidden_size)
        self.dense = nn.Linear(vision.hidden_size, vision.hidden_size)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        mixed = self.query_key_value(states).unflatten(-1, (3, self.heads, -1))
        query, key, value = mixed.transpose(1, 3).unbind(2)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, _ = attend(self, query, key, value, None, scaling=self.scaling)
        return self.dense(context.flatten(2))


class ChatGLM4VVisionLayer(GradientCheckpointingLayer):
    """``input_layernorm`` is the checkpoint's name; it stands behind the attention."""

    def __init__(self, config: ChatGLM4VConfig, vision: Namespace) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(vision.hidden_size, eps=vision.layer_norm_eps)
        self.attention = VisionAttention(config, vision)
        self.mlp = CLIPMLP(vision)
        self.post_attention_layernorm = nn.LayerNorm(vision.hidden_size, eps=vision.layer_norm_eps)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.input_layernorm(self.attention(states))
        return states + self.post_attention_layernorm(self.mlp(states))


class VisionAdapter(nn.Module):
    """Apply a linear layer and a gated layer, in the width of the text model."""

    def __init__(self, config: ChatGLM4VConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.ffn_hidden_size
        self.linear_proj = nn.Linear(width, width, bias=False)
        self.norm1 = nn.LayerNorm(width, eps=1e-5)  # not the tower's epsilon
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.dense_h_to_4h = nn.Linear(width, inner, bias=False)
        self.dense_4h_to_h = nn.Linear(inner, width, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = nn.functional.gelu(self.norm1(self.linear_proj(states)))
        gate = nn.functional.silu(self.gate_proj(states))
        return self.dense_4h_to_h(gate * self.dense_h_to_4h(states))


class ChatGLM4VVisionModel(PreTrainedModel):
    """Turn pixels into vectors of boi, placeholders, eoi: [images, 2 + image tokens, hidden]."""

    config_class = ChatGLM4VConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    supports_gradient_checkpointing = True
    _no_split_modules = ["ChatGLM4VVisionLayer"]
    # Its output must ask for gradients under reentrant checkpointing.
    _input_embed_layer = "patch_embedding"
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: ChatGLM4VConfig) -> None:
        super().__init__(config)
        vision = Namespace(**(config.vision_config or {}))
        self.patch_embedding = PatchEmbedding(vision)
        layers = (ChatGLM4VVisionLayer(config, vision) for _ in range(vision.num_hidden_layers))
        self.transformer = nn.ModuleDict({"layers": nn.Sequential(*layers)})
        self.conv = nn.Conv2d(vision.hidden_size, config.hidden_size, kernel_size=2, stride=2)
        self.linear_proj = VisionAdapter(config)
        self.boi = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.eoi = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.scaling_factor = vision.scaling_factor
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        for name in ("cls_embedding", "boi", "eoi"):
            if isinstance(vector := getattr(module, name, None), nn.Parameter):
                init.normal_(vector, std=self.config.initializer_range)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        vision = self.config.vision_config
        sides = (vision["in_channels"], vision["image_size"], vision["image_size"])
        if pixel_values.shape[1:] != sides:
            shape = list(pixel_values.shape)
            raise ValueError(
                f"pixel_values is {shape}, the model takes [images, {str(sides)[1:-1]}]"
            )
        pixel_values = pixel_values.to(self.patch_embedding.proj.weight)
        states = self.transformer["layers"](self.patch_embedding(pixel_values))[:, 1:]
        square = states.transpose(1, 2).unflatten(2, (self.config.grid, self.config.grid))
        states = self.linear_proj(self.conv(square).flatten(2).transpose(1, 2))
        ends = [end.expand(len(states), -1, -1).to(states.device) for end in (self.boi, self.eoi)]
        return torch.cat((ends[0], states, ends[1]), dim=1) / self.scaling_factor
