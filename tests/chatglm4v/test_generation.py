"""Generation is what reading on from the formulas gives, with a cache and without."""

import pytest
import torch
from support.glm4v_reading import (
    PAD,
    image_row,
    lively_model,
    logits_of,
    padded,
    pixels,
    weights_of,
)

ROWS = [[5, 6, 7], image_row([5, 6], [12, 13, 14]), image_row([9], [4] * 6)]
NEW = 5


@pytest.fixture(scope="module")
def model():
    return lively_model()


@pytest.fixture(scope="module")
def expected(model):
    """Each row alone, greedily, everything computed anew for every token."""
    tokens, logits = [], []
    for row, image in zip(ROWS, (None, *pixels(2)), strict=True):
        text, last = list(row), []
        for _ in range(NEW):
            last.append(logits_of(weights_of(model), model.config, text, image)[-1])
            text.append(int(last[-1].argmax()))
        tokens.append(text[len(row) :])
        logits.append(torch.stack(last))
    return torch.tensor(tokens), torch.stack(logits)


def generate(model, rows=ROWS, images=2, **settings):
    ids, mask = padded(rows, "left")
    given = {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels(images)}
    given |= {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False} | settings
    return model.generate(**{k: v for k, v in given.items() if v is not None})


@pytest.mark.parametrize("settings", [{}, {"use_cache": False}, {"cache_implementation": "static"}])
@pytest.mark.parametrize("original_rope", [True, False])
def test_a_left_padded_batch_of_mixed_rows(settings, original_rope):
    model = lively_model(original_rope=original_rope)
    out = generate(
        model,
        **settings,
        output_logits=True,
        return_dict_in_generate=True,
        disable_compile=True,
    )
    rows = [list(row) for row in ROWS]
    for step, logits in enumerate(out.logits):
        for row, image, got in zip(rows, (None, *pixels(2)), logits, strict=True):
            here = logits_of(weights_of(model), model.config, row, image)[-1]
            torch.testing.assert_close(got.double(), here, atol=1e-4, rtol=0)
            row.append(int(out.sequences[rows.index(row), step - NEW]))


def test_images_follow_their_rows_when_rows_are_multiplied(model, expected):
    out = generate(model, do_sample=True, top_k=1, num_return_sequences=2)
    torch.testing.assert_close(out[:, -NEW:], expected[0].repeat_interleave(2, dim=0))
    torch.manual_seed(0)
    beams = [generate(model, num_beams=3, use_cache=use)[:, -NEW:] for use in (True, False)]
    assert torch.equal(*beams)


def test_the_next_position_is_the_last_one_plus_one(model, expected):
    """A cache filled and read on by hand, as generate() does it."""
    row = ROWS[1]
    ids = torch.tensor([row])
    first = model(ids, pixel_values=pixels(1), use_cache=True)
    token = first.logits[:, -1:].argmax(-1)
    position = model.position_ids_of(ids)[:, -1:] + 1
    assert position < len(row) - 1
    given = {"past_key_values": first.past_key_values, "use_cache": True}
    second = model(token, position_ids=position, **given).logits[0, -1]
    torch.testing.assert_close(second.double(), expected[1][1, 1], atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="filled cache needs position_ids"):
        model(token, **given)


def test_an_image_is_looked_at_once(model):
    looked = []
    hook = model.transformer.vision.register_forward_hook(lambda *_: looked.append(1))
    generate(model)
    hook.remove()
    assert len(looked) == 1


@pytest.mark.parametrize("eos", [PAD, 303])
def test_without_a_mask_every_token_counts(model, expected, eos):
    """transformers would take the pad token for padding wherever it does not end a text."""
    one = {"rows": [ROWS[1]], "images": 1, "eos_token_id": eos, "pad_token_id": PAD}
    one |= {"output_logits": True, "return_dict_in_generate": True}
    logits = torch.cat(generate(model, **one, attention_mask=None).logits)
    torch.testing.assert_close(logits.double(), expected[1][1], atol=1e-4, rtol=0)


def test_embeddings_can_be_read_on(model, expected):
    embeddings = model.get_input_embeddings()(torch.tensor(ROWS[:1]))
    out = model.generate(
        inputs_embeds=embeddings, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
    )
    torch.testing.assert_close(out, expected[0][:1])
