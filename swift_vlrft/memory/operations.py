"""Floating-point operations of a model's passes: a product and its sum are two.

    forward(model, tokens=1000, pairs=500_500, logits=1, grids=((1, 44, 44),))
    Operations(llm=6.0e12, vit=2.6e12, head=6.2e8)

Every weight that multiplies costs two operations for each token, and attention four for each pair
of a query and a key and each of its channels (Kaplan et al. 2020, appendix A of Hoffmann et al.
2022). Norms, activations and the sampler are left out: they are bound by memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from swift_vlrft.memory.models import Model

ATTENTION_BACKWARD = 2.5
"""Five products of matrices where the forward pass has two: flash attention computes the scores
again (Dao et al. 2022)."""


@dataclass(frozen=True)
class Operations:
    llm: float = 0  # Without the head, attention included
    vit: float = 0  # With the aligner
    head: float = 0
    attention: float = 0  # Of the language model; also in llm

    @property
    def total(self) -> float:
        return self.llm + self.vit + self.head

    def __add__(self, other: Operations) -> Operations:
        return Operations(
            *(self.llm + other.llm, self.vit + other.vit),
            *(self.head + other.head, self.attention + other.attention),
        )

    def __mul__(self, times: float) -> Operations:
        return Operations(
            *(self.llm * times, self.vit * times, self.head * times, self.attention * times)
        )


def forward(
    model: Model,
    *,
    tokens: float,
    pairs: float,
    logits: float,
    grids: tuple[tuple[int, int, int], ...] = (),
    images: float = 1,
) -> Operations:
    """Of the language model for ``tokens`` with ``pairs`` of queries and keys and the head for
    ``logits`` of them; of the ViT for ``images`` times the pictures ``grids``.
    """
    attention = 4.0 * pairs * model.heads * model.head_size * model.attention_layers
    return Operations(
        llm=2.0 * layer_parameters(model) * tokens + attention,
        vit=images * _vision(model, grids),
        head=2.0 * model.hidden * model.vocabulary * logits,
        attention=attention,
    )


def causal_pairs(length: float, before: float = 0) -> float:
    """Pairs of ``length`` tokens that see themselves and all to their left, after ``before``."""
    return length * before + length * (length + 1) / 2


def layer_parameters(model: Model) -> int:
    """Weights of the layers that one token passes: of the experts only those chosen.

    A layer's largest count bounds them: in Gemma 4 tables that are looked up stand beside layers.
    """
    parameters = model.parameters
    count = min(parameters.layers, parameters.largest_layer * model.layers)
    return count - expert_parameters(model) * _idle_experts(model)


def expert_parameters(model: Model) -> int:
    """Weights of one expert, in all layers that have experts; together no more than there are."""
    if not model.experts:
        return 0
    dense = int(model.text.get("first_k_dense_replace") or 0)
    each = 3 * model.hidden * model.expert_width * (model.layers - dense)
    return min(each, model.parameters.layers // model.experts)


def _idle_experts(model: Model) -> int:
    return max(0, model.experts - model.chosen_experts)


def _vision(model: Model, grids: tuple[tuple[int, int, int], ...]) -> float:
    """The ViT's layers and the aligner for one row's pictures."""
    patches = sum(t * h * w for t, h, w in grids)
    if not patches or not model.vit_layers:
        return 0.0
    hidden = model.vit_hidden
    mlp = (3 if model.facts.vit_gated else 2) * hidden * model.vit_intermediate
    weights = model.vit_layers * (4 * hidden * hidden + mlp)
    weights += 2 * 3 * model.patch**2 * hidden  # two frames of three colours at most
    if model.family is None:
        weights = model.parameters.vit  # whatever its layers are; Gemma's ears are in its own
    whole = sum(t * (h * w) ** 2 for t, h, w in grids)
    full, pairs = model.vit_layers, 0.0
    if window := int(model.vision.get("window_size") or 0):
        full = len(model.vision.get("fullatt_block_indexes") or ())
        near = (window // model.patch) ** 2
        pairs = (model.vit_layers - full) * sum(t * h * w * min(near, h * w) for t, h, w in grids)
    pairs += full * whole
    tokens = patches / model.merge**2
    return 2.0 * patches * weights + 4.0 * pairs * hidden + 2.0 * tokens * model.parameters.aligner


def training(
    passed: Operations, *, llm: str, vit: str, checkpoint_llm: bool, checkpoint_vit: bool
) -> Operations:
    """Forward, recomputation and backward of a pass that takes ``passed`` forward.

    ``llm`` and ``vit``: "full" (gradients of inputs and weights), "inputs" (LoRA, or only the ViT
    trains) or "none". A ViT that does not train runs forward once.
    """
    passes = {"full": 2.0, "inputs": 1.0, "none": 0.0}
    back, back_vit = passes[llm], passes[vit]
    linear = passed.llm - passed.attention
    again = checkpoint_llm and back > 0
    attention = passed.attention * (1 + again + (ATTENTION_BACKWARD if back else 0))
    return Operations(
        llm=linear * (1 + again + back) + attention,
        vit=passed.vit * (1 + (checkpoint_vit and back_vit > 0) + back_vit),
        head=passed.head * (1 + back),
        attention=attention,
    )
