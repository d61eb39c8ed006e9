"""All placeholders of an image have one position; the pad token says nothing about padding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.glm4v_reading import (
    BOI,
    EOI,
    PAD,
    PATCHES,
    image_row,
    lively_model,
    logits_of,
    padded,
    pixels,
    tiny_config,
    weights_of,
)
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from swift_vlrft.chatglm4v.modeling import position_ids_of

IMAGE = image_row([], [])
POSITIONS = {
    "text": ([5, 6, 7], [0, 1, 2]),
    "boi p, every patch p + 1, eoi p + 2": ([5, *IMAGE, 6], [0, 1, 2, 2, 2, 2, 3, 4]),
    "nothing but an image": (IMAGE, [0, 1, 1, 1, 1, 2]),
    "two images": ([*IMAGE, *IMAGE], [0, 1, 1, 1, 1, 2, 3, 4, 4, 4, 4, 5]),
    "pads that are words": ([5, PAD, PAD, PAD, PAD, 6], [0, 1, 2, 3, 4, 5]),
    "the short form": ([5, BOI, PAD, EOI], [0, 1, 2, 3]),
    "a word among the patches": ([BOI, PAD, PAD, 9, PAD, EOI], [0, 1, 2, 3, 4, 5]),
    "one patch too many": ([BOI, *[PAD] * 5, EOI], [0, 1, 2, 3, 4, 5, 6]),
    "no end": ([BOI, *[PAD] * 5], [0, 1, 2, 3, 4, 5]),
    "begun twice": ([BOI, *IMAGE], [0, 1, 2, 2, 2, 2, 3]),
}


@pytest.mark.parametrize(("row", "expected"), POSITIONS.values(), ids=POSITIONS)
def test_positions_of_a_row(row, expected):
    assert lively_model().position_ids_of(torch.tensor([row])).tolist() == [expected]


def test_padding_does_not_count():
    rows = [[5, 6], [5, *IMAGE, 6], [*IMAGE, 7]]
    for side in ("left", "right"):
        ids, mask = padded(rows, side)
        positions = position_ids_of(ids, mask, tiny_config())
        for row, got, real in zip(rows, positions, mask.bool(), strict=True):
            expected = position_ids_of(torch.tensor([row]), None, tiny_config())[0]
            assert torch.equal(got[real], expected)


PIECES = st.sampled_from([[5], [PAD], [BOI], [EOI], IMAGE, [BOI, *[PAD] * PATCHES]])


@given(st.lists(PIECES, min_size=1, max_size=8).map(lambda pieces: sum(pieces, [])))
def test_positions_as_one_would_count_them_by_hand(row):
    position, expected, i = 0, [], 0
    while i < len(row):
        if row[i : i + len(IMAGE)] == IMAGE:
            expected += [position, *[position + 1] * PATCHES, position + 2]
            position, i = position + 3, i + len(IMAGE)
        else:
            expected.append(position)
            position, i = position + 1, i + 1
    assert position_ids_of(torch.tensor([row]), None, tiny_config()).tolist() == [expected]


def test_positions_that_are_given_are_taken():
    """Counting every patch, as vLLM does by itself, makes another model of it."""
    model, row, image = lively_model(), [5, *IMAGE, 6, 7], pixels(1)
    counted = torch.arange(len(row))[None]
    with torch.no_grad():
        got = model(torch.tensor([row]), pixel_values=image, position_ids=counted).logits[0]
        trained = model(torch.tensor([row]), pixel_values=image).logits[0]
    expected = logits_of(weights_of(model), model.config, row, image[0], range(len(row)))
    torch.testing.assert_close(got.double(), expected, atol=1e-4, rtol=0)
    assert (got - trained).abs().max() > 0.1


def test_attention_is_never_told_the_positions():
    """Flash attention reads positions that do not rise by one as several packed sequences; it is
    told what is causal, and what a trainer that does pack hands over for it.
    """
    calls = []

    def record(module, query, key, value, mask, **kwargs):
        causal = kwargs.get("is_causal", module.is_causal)
        calls.append((type(module).__name__, causal, kwargs))
        return sdpa_attention_forward(module, query, key, value, mask, **kwargs)

    AttentionInterface.register("record", record)
    AttentionMaskInterface.register("record", sdpa_mask)
    model = lively_model()
    model.set_attn_implementation("record")
    ids = torch.tensor([[5, *IMAGE, 6]])
    lengths = torch.tensor([0, ids.shape[1]])
    model(ids, pixel_values=pixels(1), cu_seq_lens_q=lengths)
    assert {(name, causal) for name, causal, _ in calls} == {
        ("VisionAttention", False),
        ("TextAttention", True),
    }
    assert len(calls) == 6
    for name, _, kwargs in calls:
        assert "position_ids" not in kwargs
        assert ("cu_seq_lens_q" in kwargs) == (name == "TextAttention")
