"""Tiny models of every family, and micro-batches of rows that begin alike as ms-swift has them."""

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from swift_vlrft.families import FAMILIES
from swift_vlrft.families.family import Tiny, TinySize
from swift_vlrft.shared_prefix.images import Images
from swift_vlrft.tiny.checkpoint import build_model

VOCABULARY, IMAGE, VIDEO, START, END = 512, 500, 501, 502, 503

EXPERTS = {
    **{"num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
}
# Twice as many heads of values, as in Qwen3.5-4B and larger.
MIXTURES = {
    "qwen3_vl_moe": ("qwen3_vl", {}),
    "qwen3_5_moe": ("qwen3_5", {"linear_num_value_heads": 4}),
    "glm4v_moe": ("glm46v", {}),
}
"""Types of which `vlrft tiny` has the dense model only."""


def tiny_of(kind: str) -> Tiny:
    """What is known of the tiny model of that family or type."""
    if kind not in MIXTURES:
        return FAMILIES[kind].tiny
    name, more = MIXTURES[kind]
    tiny = FAMILIES[name].tiny

    def config(size: TinySize, vocabulary: int) -> dict[str, Any]:
        values = tiny.config(size, vocabulary)
        text = values["text_config"] | EXPERTS | more
        return values | {"model_type": kind, "text_config": text}

    return replace(tiny, config=config)


def tiny_model(kind: str) -> torch.nn.Module:
    """The real transformers class with random weights and a vocabulary of 512."""
    torch.manual_seed(0)
    model = build_model(tiny_of(kind), TinySize(layers=3), vocabulary=VOCABULARY)
    config = model.config
    config.image_token_id, config.video_token_id = IMAGE, VIDEO
    config.image_start_token_id, config.image_end_token_id = START, END
    config.vision_start_token_id, config.vision_end_token_id = START, END
    with torch.no_grad():  # the initial spread of 0.02 leaves attention nearly uniform
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
            elif name.endswith("A_log"):
                # Gated DeltaNet forgets by up to exp(-16) a token at first: transformers sums the
                # exponents of 64 tokens up, and float32 then has no digits left to compare.
                parameter.sub_(math.log(256))
    return model.train()


@dataclass
class Rows:
    """One micro-batch: what ms-swift gives the model, and where the completions are."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    completion_mask: torch.Tensor
    images: Images


def make_rows(
    model,
    groups: list[tuple[int, int, list[int]]],
    *,
    left: bool = False,
    alike: int = 0,
    order: list[int] | None = None,
) -> Rows:
    """Rows of several prompts: ``(text tokens, images, completion lengths)`` for each.

    ``left``: padded there. ``alike`` is how many tokens all completions of a prompt begin with in
    common.
    """
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    vision = model.config.vision_config
    merge = getattr(vision, "spatial_merge_size", None)
    tile = model.config.image_seq_length if merge is None else 0
    rows: list[tuple[list[int], int, list[torch.Tensor], list[list[int]]]] = []

    def words(count: int) -> list[int]:
        return [rng.randrange(400) for _ in range(count)]

    for text, n_images, lengths in groups:
        prompt, pixels, grids = words(text // 2), [], []
        for _ in range(n_images):
            if tile:
                size = (rng.randint(1, 3), 3, *vision.image_size)
                tokens = tile * size[0]
            else:
                h, w = (merge * rng.randint(1, 3) for _ in range(2))
                size = (h * w, 3 * vision.temporal_patch_size * vision.patch_size**2)
                tokens = h * w // merge**2
                grids.append([1, h, w])
            pixels.append(torch.randn(size, generator=generator))
            prompt += [START, *[IMAGE] * tokens, END, *words(1)]
        prompt += words(text - text // 2)
        common = words(alike)
        rows += [(prompt + (common + words(n))[:n], n, pixels, grids) for n in lengths]
    rows = [rows[i] for i in order or range(len(rows))]

    columns = max(len(ids) for ids, *_ in rows)
    region = max(n if left else columns - len(ids) + n for ids, n, *_ in rows)
    input_ids = torch.zeros(len(rows), columns, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    completion_mask = torch.zeros(len(rows), columns, dtype=torch.bool)
    for r, (ids, n, *_) in enumerate(rows):
        first = columns - len(ids) if left else 0
        last = first + len(ids)
        input_ids[r, first:last] = torch.tensor(ids)
        attention_mask[r, first:last] = 1
        completion_mask[r, last - n : last] = True
    images = Images(
        torch.cat([x for _, _, pixels, _ in rows for x in pixels]),
        None if tile else torch.tensor([grid for *_, grids in rows for grid in grids]),
        IMAGE,
        merge or 1,
        tile,
    )
    position_ids = torch.arange(columns).expand_as(input_ids)
    if not tile:
        kinds = (input_ids == IMAGE).int()
        grid = {"image_grid_thw": images.grid_thw, "attention_mask": attention_mask}
        position_ids, _ = model.model.get_rope_index(input_ids, mm_token_type_ids=kinds, **grid)
    return Rows(input_ids, attention_mask, position_ids, completion_mask[:, -region:], images)


def stock(model, rows: Rows) -> torch.Tensor:
    """Logits of the completion region, computed row by row as ms-swift's trainer does."""
    keep = rows.completion_mask.shape[1]
    logits = model(
        input_ids=rows.input_ids,
        attention_mask=rows.attention_mask,
        position_ids=None if rows.images.tile_tokens else rows.position_ids,
        **rows.images.inputs(range(len(rows.images.tokens))),
        logits_to_keep=keep + 1,
        use_cache=False,
    ).logits
    return logits[:, -(keep + 1) : -1]
