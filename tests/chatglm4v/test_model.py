"""The same numbers as the published model: sizes, names, logits, from_pretrained and back."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.glm4v_reading import (
    EOI,
    PAD,
    image_row,
    lively_model,
    logits_of,
    padded,
    pixels,
    tiny_config,
    vision_of,
    weights_of,
)
from transformers import AutoConfig, AutoModelForCausalLM

from swift_vlrft.chatglm4v import register
from swift_vlrft.chatglm4v.configuration import BUILT, ChatGLM4VConfig
from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration

TEXT = [7, 8, 9, 10, 11]
WITH_IMAGE = image_row([5, 6], [12, 13, 14])


def test_the_published_configuration_has_its_published_parameters():
    """The counts are of the published checkpoint (zai-org/GLM-4#500)."""
    with torch.device("meta"):
        model = ChatGLM4VForConditionalGeneration(ChatGLM4VConfig())
    parts = {
        "": 13_906_320_896,
        "transformer.encoder.layers.": 8_158_433_280,
        "transformer.vision.transformer.layers.": 4_279_387_392,
    }
    for part, expected in parts.items():
        counted = sum(w.numel() for n, w in model.named_parameters() if n.startswith(part))
        assert counted == expected, part
    assert model.config.image_tokens == 1600


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("original_rope", [True, False])
def test_logits_are_those_of_the_formulas(attention, original_rope, use_cache):
    """Without a cache and a mask, transformers would find packed sequences in the positions."""
    model = lively_model(original_rope=original_rope)
    model.set_attn_implementation(attention)
    weights, image = weights_of(model), pixels(1)
    for row, seen in ((TEXT, None), (WITH_IMAGE, image)):
        expected = logits_of(weights, model.config, row, None if seen is None else seen[0])
        with torch.no_grad():
            got = model(torch.tensor([row]), pixel_values=seen, use_cache=use_cache).logits[0]
        assert expected.std() > 1
        torch.testing.assert_close(got.double(), expected, atol=1e-4, rtol=0)


def test_the_vision_tower_is_that_of_the_formulas():
    model, images = lively_model(), pixels(2)
    with torch.no_grad():
        got = model.transformer.vision(images)
    expected = [vision_of(weights_of(model), model.config, image) for image in images]
    torch.testing.assert_close(got.double(), torch.stack(expected), atol=1e-5, rtol=0)


def test_the_adapters_epsilon_is_not_the_towers():
    model, images = lively_model(), pixels(1)
    with torch.no_grad():
        model.transformer.vision.linear_proj.linear_proj.weight.mul_(0.002)
        got = model.transformer.vision(images)[0]
    expected = vision_of(weights_of(model), model.config, images[0])
    torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_rows_of_a_batch_are_as_they_are_alone(side, attention):
    """Left and right padding, rows with and without an image, the pad token as last word."""
    model = lively_model()
    model.set_attn_implementation(attention)
    rows = [TEXT, WITH_IMAGE, image_row([], [4] * 7), [8, PAD, 9, PAD], [EOI, 3]]
    images = [None, *pixels(2), None, None]
    ids, mask = padded(rows, side)
    with torch.no_grad():
        logits = model(ids, attention_mask=mask, pixel_values=pixels(2)).logits
    for row, image, got, real in zip(rows, images, logits, mask.bool(), strict=True):
        expected = logits_of(weights_of(model), model.config, row, image)
        torch.testing.assert_close(got[real].double(), expected, atol=1e-4, rtol=0)


def test_kept_logits_by_number_by_index_and_by_mask():
    model = lively_model()
    ids = torch.tensor([WITH_IMAGE])
    every = model(ids, pixel_values=pixels(1)).logits
    mask = torch.zeros(len(WITH_IMAGE), dtype=torch.bool)
    mask[[3, 8]] = True
    for keep, expected in ((2, every[:, -2:]), (torch.tensor([3, 8]), every[:, [3, 8]])):
        torch.testing.assert_close(
            model(ids, pixel_values=pixels(1), logits_to_keep=keep).logits, expected
        )
    labels = torch.tensor([[9, 10]])
    kept = model(ids, pixel_values=pixels(1), logits_to_keep=mask, labels=labels)
    torch.testing.assert_close(kept.logits, every[:, mask])
    expected = torch.nn.functional.cross_entropy(every[0, [3]], labels[0, 1:])
    torch.testing.assert_close(kept.loss, expected)


def test_hidden_states_and_attentions_can_be_asked_for():
    model = lively_model()
    model.set_attn_implementation("eager")
    ids = torch.tensor([WITH_IMAGE])
    out = model(ids, pixel_values=pixels(1), output_hidden_states=True, output_attentions=True)
    layers, tokens = model.config.num_layers, len(WITH_IMAGE)
    assert len(out.hidden_states) == layers + 1 and len(out.attentions) == layers
    torch.testing.assert_close(model.transformer.output_layer(out.hidden_states[-1]), out.logits)
    assert out.attentions[0].shape == (1, 4, tokens, tokens)


def test_auto_classes_read_what_was_written_under_the_checkpoints_names(tmp_path):
    register()
    model = lively_model(original_rope=False)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert set(weights) == set(model.state_dict())
    for name in (
        "transformer.embedding.word_embeddings.weight",
        "transformer.encoder.layers.2.self_attention.query_key_value.bias",
        "transformer.encoder.layers.0.mlp.dense_h_to_4h.weight",
        "transformer.output_layer.weight",
        "transformer.vision.patch_embedding.cls_embedding",
        "transformer.vision.transformer.layers.1.attention.dense.bias",
        "transformer.vision.linear_proj.gate_proj.weight",
        "transformer.vision.boi",
    ):
        assert name in weights
    # The published file holds this buffer as well; it is computed here.
    weights["transformer.rotary_pos_emb.inv_freq"] = torch.full((8,), 99.0)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    # vLLM reads the dictionary as it stands in the file: its defaults are another model's.
    written = json.loads((tmp_path / "config.json").read_text())["vision_config"]
    assert written == model.config.vision_config and written["scaling_factor"] == 8
    assert json.loads((tmp_path / "config.json").read_text()).items() >= BUILT.items()

    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, ChatGLM4VConfig) and not config.original_rope
    again, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    ids = torch.tensor([WITH_IMAGE])
    with torch.no_grad():
        assert torch.equal(
            again.eval()(ids, pixel_values=pixels(1)).logits,
            model(ids, pixel_values=pixels(1)).logits,
        )


def test_new_weights_are_drawn_for_every_parameter():
    """A parameter outside of the usual layers is easily left at zero."""
    model = ChatGLM4VForConditionalGeneration(tiny_config())
    zero = [n for n, w in model.named_parameters() if not w.any() and not n.endswith(".bias")]
    assert not zero


@pytest.mark.parametrize(
    "changes",
    [
        {"rmsnorm": False},
        {"hidden_dropout": 0.1},
        {"add_bias_linear": True},
        {"pre_seq_len": 128},
        {"vision_config": {"dropout_prob": 0.1}},
        {"vision_config": {"image_size": 224}},
    ],
)
def test_another_models_configuration_is_refused_by_its_key(changes):
    with torch.device("meta"), pytest.raises(ValueError, match=next(iter(changes))):
        ChatGLM4VForConditionalGeneration(ChatGLM4VConfig(**changes))


@pytest.mark.parametrize(
    ("row", "images", "found"),
    [
        (WITH_IMAGE, 2, "2 images, input_ids places for 1"),
        (WITH_IMAGE, 0, "0 images, input_ids places for 1"),
        (TEXT, 1, "1 images, input_ids places for 0"),
        ([5, 301, PAD, EOI, 6], 1, "places for 0"),  # the makers' short form
        ([5, 301, PAD, PAD, 9, PAD, EOI], 1, "places for 0"),
    ],
)
def test_images_and_their_places_have_to_agree(row, images, found):
    seen = pixels(images) if images else None
    with pytest.raises(ValueError, match=found):
        lively_model()(torch.tensor([row]), pixel_values=seen)


def test_pixels_of_another_size_are_refused():
    with pytest.raises(
        ValueError, match=r"\[1, 3, 28, 28\], the model takes \[images, 3, 56, 56\]"
    ):
        lively_model()(torch.tensor([WITH_IMAGE]), pixel_values=torch.zeros(1, 3, 28, 28))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "either input_ids or inputs_embeds"),
        ({"inputs_embeds": torch.zeros(1, 3, 128), "pixel_values": pixels(1)}, "pixel_values need"),
    ],
)
def test_inputs_that_contradict_each_other(arguments, why):
    with pytest.raises(ValueError, match=why):
        lively_model()(**arguments)


def test_embeddings_in_place_of_words():
    model = lively_model()
    ids, mask = padded([TEXT, TEXT[:3]], "left")
    embeddings = model.get_input_embeddings()(ids)
    torch.testing.assert_close(
        model(inputs_embeds=embeddings, attention_mask=mask).logits[mask.bool()],
        model(ids, attention_mask=mask).logits[mask.bool()],
    )


def test_a_language_model_of_the_same_type_gets_no_random_vision_tower(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "chatglm", "num_layers": 2}')
    register()
    with pytest.raises(ValueError, match="has no vision_config: a language model"):
        AutoConfig.from_pretrained(tmp_path)
