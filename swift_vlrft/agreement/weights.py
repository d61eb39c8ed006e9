"""Which parts of a model an engine did not take over.

part_of("model.visual.blocks.0.attn.qkv.weight")      "vision attention"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
