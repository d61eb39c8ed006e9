"""GLM-4v a second time, from its formulas: one row, float64, no modules, rotations as complex
numbers. And a tiny model whose weights and epsilons are lively enough to show a wrong formula.
"""

import math

import torch
from torch.nn import functional

from swift_vlrft.chatglm4v.configuration import ChatGLM4VConfig
from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration

PAD, BOI, EOI = 300, 301, 302
PATCHES = 4


def tiny_config(**changes) -> ChatGLM4VConfig:
    vision = {"image_size": 56, "num_positions": 17, "num_hidden_layers": 3, "hidden_size": 32}
    vision |= {"num_heads": 2, "intermediate_size": 48, "layer_norm_eps": 0.02}
    sizes = {"padded_vocab_size": 320, "hidden_size": 128, "ffn_hidden_size": 96, "num_layers": 3}
    sizes |= {"num_attention_heads": 4, "kv_channels": 32, "seq_length": 256, "rope_ratio": 1.5}
    sizes |= {"layernorm_epsilon": 0.05, "eos_token_id": [300, 303], "vision_config": vision}
    special = {"pad_token_id": PAD, "boi_token_id": BOI, "eoi_token_id": EOI}
    return ChatGLM4VConfig(**(sizes | special | changes))


def lively_model(**changes) -> ChatGLM4VForConditionalGeneration:
    """Random weights under which logits spread by more than 1; in evaluation mode."""
    model = ChatGLM4VForConditionalGeneration(tiny_config(**changes)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name and name.endswith("weight"):
                weight.copy_(1 + 0.3 * noise)
            elif "embedding" in name:
                weight.copy_(noise)
            elif weight.ndim == 1 or name.endswith(("boi", "eoi")):
                weight.copy_(0.5 * noise)
            else:
                weight.copy_(1.2 * noise / math.sqrt(weight[0].numel()))
    return model


def image_row(before: list[int], after: list[int]) -> list[int]:
    """A row with one image between two texts."""
    return [*before, BOI, *[PAD] * PATCHES, EOI, *after]


def pixels(images: int) -> torch.Tensor:
    return torch.randn(images, 3, 56, 56, generator=torch.Generator().manual_seed(0))


def padded(rows: list[list[int]], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """``input_ids`` and ``attention_mask`` of rows of unequal length."""
    length = max(map(len, rows))
    ids = torch.full((len(rows), length), PAD)
    mask = torch.zeros((len(rows), length), dtype=torch.long)
    for i, row in enumerate(rows):
        where = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
        ids[i, where], mask[i, where] = torch.tensor(row), 1
    return ids, mask


def assert_close(got: torch.Tensor, expected: torch.Tensor, within: float = 1e-4) -> None:
    """A float32 result against one of this file."""
    torch.testing.assert_close(got.double(), expected, atol=within, rtol=0)


def weights_of(model: ChatGLM4VForConditionalGeneration) -> dict[str, torch.Tensor]:
    state = model.state_dict().items()
    return {name.removeprefix("transformer."): w.double() for name, w in state}


def _linear(weights, name, x):
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


def _layer_norm(weights, name, x, epsilon):
    scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return functional.layer_norm(x, x.shape[-1:], scale, shift, epsilon)


def _rms_norm(weights, name, x, epsilon):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weights[f"{name}.weight"]


def _attend(query, key, value, allowed):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    return scores.masked_fill(~allowed, -math.inf).softmax(-1) @ value


def _patches(image, side):
    """[patches of a grid row by row, channels x side x side]"""
    cut = image.unfold(1, side, side).unfold(2, side, side)  # channels, rows, columns, side, side
    return cut.permute(1, 2, 0, 3, 4).flatten(2).flatten(0, 1)


def vision_of(model, image):
    """What stands for boi, the placeholders and eoi of ``image`` [3, side, side]."""
    vision, gelu = model.config.vision_config, functional.gelu
    grid, heads = vision["image_size"] // vision["patch_size"], vision["num_heads"]
    w = {n.removeprefix("vision."): weight for n, weight in weights_of(model).items()}
    kernel = w["patch_embedding.proj.weight"].flatten(1)
    x = _patches(image.double(), vision["patch_size"]) @ kernel.T + w["patch_embedding.proj.bias"]
    x = torch.cat((w["patch_embedding.cls_embedding"], x))
    x = x + w["patch_embedding.position_embedding.weight"]
    everything = torch.ones(len(x), len(x), dtype=torch.bool)
    for i in range(vision["num_hidden_layers"]):
        at, epsilon = f"transformer.layers.{i}", vision["layer_norm_eps"]
        query, key, value = _linear(w, f"{at}.attention.query_key_value", x).chunk(3, dim=-1)
        each = [part.chunk(heads, dim=-1) for part in (query, key, value)]
        mixed = torch.cat([_attend(*qkv, everything) for qkv in zip(*each, strict=True)], dim=-1)
        mixed = _linear(w, f"{at}.attention.dense", mixed)
        x = x + _layer_norm(w, f"{at}.input_layernorm", mixed, epsilon)
        inner = _linear(w, f"{at}.mlp.fc2", gelu(_linear(w, f"{at}.mlp.fc1", x)))
        x = x + _layer_norm(w, f"{at}.post_attention_layernorm", inner, epsilon)
    square = x[1:].T.reshape(-1, grid, grid)
    x = _patches(square, 2) @ w["conv.weight"].flatten(1).T + w["conv.bias"]
    x = gelu(_layer_norm(w, "linear_proj.norm1", _linear(w, "linear_proj.linear_proj", x), 1e-5))
    gate = _linear(w, "linear_proj.gate_proj", x)
    x = gate * torch.sigmoid(gate) * _linear(w, "linear_proj.dense_h_to_4h", x)
    x = _linear(w, "linear_proj.dense_4h_to_h", x)
    return torch.cat((w["boi"][0], x, w["eoi"][0])) / vision["scaling_factor"]


def logits_of(model, ids: list[int], image=None, positions=None):
    """[tokens, vocabulary] of one row without padding; an image stands in it or does not."""
    weights, config = weights_of(model), model.config
    x = weights["embedding.word_embeddings.weight"][ids]
    places = list(range(len(ids)))
    if image is not None:
        boi, seen = ids.index(BOI), vision_of(model, image)
        x = torch.cat((x[:boi], seen, x[boi + len(seen) :]))
        places[boi + 1 :] = [boi + 1] * PATCHES + places[boi + 2 : 1 - PATCHES]
    place = torch.tensor(places if positions is None else [*positions], dtype=torch.double)
    heads, groups, width = config.num_attention_heads, config.multi_query_group_num, 32
    frequency = (10000 * config.rope_ratio) ** (-torch.arange(0, 16, 2).double() / 16)
    turn = torch.exp(1j * place[:, None] * frequency)

    def rotated(head):
        first, rest = head[:, :16], head[:, 16:]
        if config.original_rope:
            pairs = torch.view_as_real(torch.complex(first[:, 0::2], first[:, 1::2]) * turn)
            return torch.cat((pairs.flatten(1), rest), dim=-1)
        turned = torch.complex(first[:, :8], first[:, 8:]) * turn
        return torch.cat((turned.real, turned.imag, rest), dim=-1)

    causal = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    for i in range(config.num_layers):
        at, epsilon = f"encoder.layers.{i}", config.layernorm_epsilon
        normed = _rms_norm(weights, f"{at}.input_layernorm", x, epsilon)
        mixed = _linear(weights, f"{at}.self_attention.query_key_value", normed).split(width, -1)
        queries, keys, values = mixed[:heads], mixed[heads : heads + groups], mixed[-groups:]
        shared = [h * groups // heads for h in range(heads)]  # whose keys and values a head reads
        out = [
            _attend(rotated(query), rotated(keys[group]), values[group], causal)
            for query, group in zip(queries, shared, strict=True)
        ]
        x = x + _linear(weights, f"{at}.self_attention.dense", torch.cat(out, dim=-1))
        normed = _rms_norm(weights, f"{at}.post_attention_layernorm", x, epsilon)
        gate, up = _linear(weights, f"{at}.mlp.dense_h_to_4h", normed).chunk(2, dim=-1)
        inner = gate * torch.sigmoid(gate) * up
        x = x + _linear(weights, f"{at}.mlp.dense_4h_to_h", inner)
    x = _rms_norm(weights, "encoder.final_layernorm", x, config.layernorm_epsilon)
    return _linear(weights, "output_layer", x)
