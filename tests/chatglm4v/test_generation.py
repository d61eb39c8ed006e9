"""Generation is what reading on from the formulas gives, with a cache and without."""

import pytest
import torch
from chatglm4v.reading import (
    PAD,
    assert_close,
    image_row,
    lively_model,
    logits_of,
    padded,
    pixels,
)

ROWS = [[5, 6, 7], image_row([5, 6], [12, 13, 14]), image_row([9], [4] * 6)]
IMAGES = [None, *pixels(2)]
NEW = 5
LOGITS = {"output_logits": True, "return_dict_in_generate": True}


@pytest.fixture(scope="module")
def model():
    return lively_model()


def read_on(model):
    """Each row alone, greedily, everything computed anew for every token: ids, logits."""
    tokens, logits = [], []
    for row, image in zip(ROWS, IMAGES, strict=True):
        text, last = list(row), []
        for _ in range(NEW):
            last.append(logits_of(model, text, image)[-1])
            text.append(int(last[-1].argmax()))
        tokens.append(text[len(row) :])
        logits.append(torch.stack(last))
    return torch.tensor(tokens), torch.stack(logits)


@pytest.fixture(scope="module")
def expected(model):
    return read_on(model)


def generate(model, rows=ROWS, images=2, **settings):
    ids, mask = padded(rows, "left")
    inputs = {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels(images)}
    inputs |= {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False} | settings
    return model.generate(**{k: v for k, v in inputs.items() if v is not None})


@pytest.mark.parametrize(
    ("original_rope", "settings"),
    [(True, {}), (False, {"use_cache": False}), (True, {"cache_implementation": "static"})],
    ids=["cache", "no cache", "static cache"],
)
def test_a_left_padded_batch_of_mixed_rows(settings, original_rope):
    model = lively_model(original_rope=original_rope)
    looked = []
    model.transformer.vision.register_forward_hook(lambda *_: looked.append(1))
    out = generate(model, **settings, **LOGITS, disable_compile=True)
    tokens, logits = read_on(model)
    assert len(looked) == (NEW if "use_cache" in settings else 1)
    assert torch.equal(out.sequences[:, -NEW:], tokens)
    assert_close(torch.stack(out.logits, dim=1), logits)


def test_images_follow_their_rows_when_rows_are_multiplied(model, expected):
    out = generate(model, do_sample=True, top_k=1, num_return_sequences=2)
    assert torch.equal(out[:, -NEW:], expected[0].repeat_interleave(2, dim=0))
    torch.manual_seed(0)
    beams = [generate(model, num_beams=3, use_cache=use)[:, -NEW:] for use in (True, False)]
    assert torch.equal(*beams)


def test_a_filled_cache_needs_positions(model):
    """An image's patches share one, so that the length does not give the next."""
    first = model(torch.tensor(ROWS[:1]), use_cache=True)
    with pytest.raises(ValueError, match="position_ids"):
        model(torch.tensor([[8]]), past_key_values=first.past_key_values, use_cache=True)


@pytest.mark.parametrize("eos", [PAD, 303])
def test_without_a_mask_every_token_counts(model, expected, eos):
    """transformers would take the pad token for padding wherever it does not end a text."""
    settings = {"eos_token_id": eos, "pad_token_id": PAD, "attention_mask": None}
    out = generate(model, [ROWS[1]], 1, **settings, **LOGITS)
    assert_close(torch.cat(out.logits), expected[1][1])


def test_embeddings_can_be_read_on(model, expected):
    embeddings = model.get_input_embeddings()(torch.tensor(ROWS[:1]))
    nothing = dict.fromkeys(("input_ids", "attention_mask", "pixel_values"))
    out = generate(model, ROWS[:1], **nothing, inputs_embeds=embeddings)
    assert torch.equal(out, expected[0][:1])
