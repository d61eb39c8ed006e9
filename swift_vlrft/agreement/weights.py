"""Which parts of a model an engine did not take over.

part_of("model.visual.blocks.0.attn.qkv.weight")      "vision attention"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TOWERS = {
    "aligner": re.compile(r"merger|projector|mlp1|resampler|linear_proj|aligner|embed_vision"),
    "vision": re.compile(r"visual|vision|vpm|\bvit\b"),
}
KINDS = {
    "embeddings": re.compile(r"embed_tokens|word_embeddings"),
    "output layer": re.compile(r"lm_head|output_layer"),
    "norms": re.compile(r"norm[^.]*(\.\w+)?$"),
    "attention": re.compile(r"attn|attention"),
    "mlp": re.compile(r"mlp|expert|feed_?forward"),
}
STALE_ROWS = 0.05
"""A parameter of which this share of rows stays as it was: a query, key or value of a fused one,
and more than the rows with which an engine pads the vocabulary."""


def part_of(name: str) -> str:
    """The part of a model that a parameter of the trainer, or of an engine, belongs to."""
    tower = next((tower for tower, found in TOWERS.items() if found.search(name)), "language")
    kind = next((kind for kind, found in KINDS.items() if found.search(name)), "other weights")
    return tower if tower == "aligner" else f"{tower} {kind}"


def stale_parts(
    trained: Iterable[str], frozen: Iterable[str], unchanged: Mapping[str, float]
) -> dict[str, list[str]]:
    """The trained parts of which the engine kept weights that it should have replaced, with the
    engine's names of them. ``unchanged`` is the share of rows of each of the engine's parameters
    that did not change. Of a part that is trained in some of its weights (LoRA), one change will
    do.
    """
    moved, still = ({part_of(name) for name in names} for names in (trained, frozen))
    stale: dict[str, list[str]] = {}
    for part in sorted(moved):
        shares = {name: share for name, share in unchanged.items() if part_of(name) == part}
        kept = [name for name, share in shares.items() if share >= STALE_ROWS]
        if kept and (part not in still or all(share == 1 for share in shares.values())):
            stale[part] = kept
    return stale


def irregular(width: int, device: torch.device) -> torch.Tensor:
    """Weights of a sum that is not the same for other numbers: in bfloat16, plain sums of a few
    numbers often are.
    """
    import torch

    return torch.arange(1, width + 1, dtype=torch.float64, device=device).cos()


def row_sums(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Of every weight: a change shows."""
    weights = model.named_parameters()
    return {name: _sums(w.detach()).cpu() for name, w in weights if w.is_floating_point()}


def fingerprint(weight: torch.Tensor) -> float:
    """Another number for other values; those that are no numbers count as 0."""
    sums = _sums(weight.detach().nan_to_num())
    return float(sums @ irregular(len(sums), sums.device))


def _sums(weight: torch.Tensor) -> torch.Tensor:
    """An irregular sum of every row, or of every 8 numbers of a vector."""
    import torch

    width = weight.shape[-1:].numel()
    if weight.ndim == 1 and width % 8 == 0:
        width = 8
    rows = weight.reshape(-1, width) if weight.ndim < 2 else weight.flatten(1)
    factors = irregular(rows.shape[1], rows.device)
    parts = rows.split(max(1, 2**24 // max(1, rows.shape[1])))  # 128 MiB in float64
    return torch.cat([part.double() @ factors for part in parts])


def unchanged(before: torch.Tensor, after: torch.Tensor) -> float:
    """The share of rows."""
    return float((before == after).double().mean()) if before.numel() else 0.0
