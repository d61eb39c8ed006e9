"""All placeholders of an image have one position; the pad token says nothing about padding."""

import torch
from chatglm4v.reading import (
    BOI,
    EOI,
    PAD,
    PATCHES,
    assert_close,
    image_row,
    lively_model,
    logits_of,
    padded,
    pixels,
    tiny_config,
)
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from swift_vlrft.chatglm4v.modeling import position_ids_of

CONFIG, IMAGE = tiny_config(), image_row([], [])
# Words, images, pads that are words, and what looks like an image: cut short, too long, no end.
PIECES = st.sampled_from([[5], [PAD], [BOI], [EOI], IMAGE, [BOI, *[PAD] * PATCHES]])
ROW = st.lists(PIECES, min_size=1, max_size=8).map(lambda pieces: sum(pieces, []))


def test_begin_every_patch_and_end_of_an_image():
    row = torch.tensor([[5, *IMAGE, 6]])
    assert lively_model().position_ids_of(row).tolist() == [[0, 1, 2, 2, 2, 2, 3, 4]]


def counted(row):
    """As one would count them by hand."""
    positions, i = [], 0
    while i < len(row):
        position = positions[-1] + 1 if positions else 0
        if row[i : i + len(IMAGE)] == IMAGE:
            positions += [position, *[position + 1] * PATCHES, position + 2]
            i += len(IMAGE)
        else:
            positions.append(position)
            i += 1
    return positions


@given(st.lists(ROW, min_size=1, max_size=3), st.sampled_from(["left", "right"]))
@example([[BOI, *IMAGE], [5, BOI, PAD, EOI]], "left")
@example([[BOI, PAD, PAD, 9, PAD, EOI], [BOI, *[PAD] * 5, EOI]], "right")
def test_positions_as_one_would_count_them_and_padding_does_not_count(rows, side):
    ids, mask = padded(rows, side)
    found = position_ids_of(ids, mask, CONFIG)
    for row, positions, real in zip(rows, found, mask.bool(), strict=True):
        assert positions[real].tolist() == counted(row)
        alone = position_ids_of(torch.tensor([row]), None, CONFIG)
        assert alone.tolist() == [counted(row)]


def test_positions_that_are_given_are_taken():
    """Counting every patch, as vLLM does by itself, makes another model of it."""
    model, row, image = lively_model(), [5, *IMAGE, 6, 7], pixels(1)
    every_patch = torch.arange(len(row))[None]
    with torch.no_grad():
        got = model(torch.tensor([row]), pixel_values=image, position_ids=every_patch).logits[0]
        trained = model(torch.tensor([row]), pixel_values=image).logits[0]
    assert_close(got, logits_of(model, row, image[0], range(len(row))))
    assert (got - trained).abs().max() > 0.1


def test_attention_is_never_told_the_positions():
    """Flash attention reads positions that do not rise by one as several packed sequences; it is
    told what is causal, and what a trainer that does pack hands over for it.
    """
    calls = []

    def record(module, query, key, value, mask, **kwargs):
        causal = kwargs.get("is_causal", module.is_causal)
        told = ("position_ids" in kwargs, "cu_seq_lens_q" in kwargs)
        calls.append((type(module).__name__, causal, *told))
        return sdpa_attention_forward(module, query, key, value, mask, **kwargs)

    AttentionInterface.register("record", record)
    AttentionMaskInterface.register("record", sdpa_mask)
    model = lively_model()
    model.set_attn_implementation("record")
    ids = torch.tensor([[5, *IMAGE, 6]])
    model(ids, pixel_values=pixels(1), cu_seq_lens_q=torch.tensor([0, ids.shape[1]]))
    vision, text = ("VisionAttention", False, False, False), ("TextAttention", True, False, True)
    assert calls == [vision] * 3 + [text] * 3
