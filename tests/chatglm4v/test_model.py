"""The same numbers as the published model: sizes, names, positions, logits, from_pretrained and
back.
"""

import json

import pytest
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
    vision_of,
)
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from swift_vlrft.chatglm4v import register
from swift_vlrft.chatglm4v.configuration import BUILT, ChatGLM4VConfig
from swift_vlrft.chatglm4v.modeling import ChatGLM4VForConditionalGeneration, position_ids_of

pytestmark = pytest.mark.slow  # torch is imported

TEXT = [7, 8, 9, 10, 11]
WITH_IMAGE = image_row([5, 6], [12, 13, 14])
IDS, PIXELS = torch.tensor([WITH_IMAGE]), pixels(1)
CONFIG, IMAGE = tiny_config(), image_row([], [])
# Words, images, pads that are words, and what looks like an image: cut short, too long, no end.
PIECES = st.sampled_from([[5], [PAD], [BOI], [EOI], IMAGE, [BOI, *[PAD] * PATCHES]])
ROW = st.lists(PIECES, min_size=1, max_size=8).map(lambda pieces: sum(pieces, []))


@pytest.fixture
def model():
    return lively_model()


@pytest.fixture(autouse=True)
def nothing_is_learned():
    with torch.no_grad():
        yield


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


@pytest.mark.parametrize(
    ("side", "attention", "original_rope", "use_cache"),
    [
        *(("left", "sdpa", True, True), ("right", "eager", False, False)),
        *((None, "sdpa", True, False), (None, "eager", True, True)),
    ],
)
def test_logits_are_those_of_the_formulas(side, attention, original_rope, use_cache):
    """A padded batch of rows with and without an image, one with the pad token as last word; or
    each alone, without a mask, where transformers would find packed sequences in the positions.
    """
    model = lively_model(original_rope=original_rope)
    model.set_attn_implementation(attention)
    rows = [TEXT, WITH_IMAGE, image_row([], [4] * 7), [8, PAD, 9, PAD], [EOI, 3]]
    images = [None, *pixels(2)[:, None], None, None]
    if side:
        ids, mask = padded(rows, side)
        inputs = {"attention_mask": mask, "pixel_values": pixels(2), "use_cache": use_cache}
        batch = model(ids, **inputs).logits
        logits = [batch[i, real] for i, real in enumerate(mask.bool())]
    else:
        logits = [
            model(torch.tensor([row]), pixel_values=image, use_cache=use_cache).logits[0]
            for row, image in zip(rows, images, strict=True)
        ]
    for row, image, got in zip(rows, images, logits, strict=True):
        expected = logits_of(model, row, None if image is None else image[0])
        assert expected.std() > 1
        assert_close(got, expected)


def test_the_adapters_epsilon_is_not_the_towers(model):
    model.transformer.vision.linear_proj.linear_proj.weight.mul_(0.002)
    expected = [vision_of(model, image) for image in pixels(2)]
    assert_close(model.transformer.vision(pixels(2)), torch.stack(expected), 1e-5)


def test_kept_logits_by_number_by_index_and_by_mask(model):
    every = model(IDS, pixel_values=PIXELS).logits
    mask = torch.zeros(len(WITH_IMAGE), dtype=torch.bool)
    mask[[3, 8]] = True
    for keep, expected in ((2, every[:, -2:]), (torch.tensor([3, 8]), every[:, [3, 8]])):
        kept = model(IDS, pixel_values=PIXELS, logits_to_keep=keep)
        torch.testing.assert_close(kept.logits, expected)
    labels = torch.tensor([[9, 10]])
    kept = model(IDS, pixel_values=PIXELS, logits_to_keep=mask, labels=labels)
    torch.testing.assert_close(kept.logits, every[:, mask])
    expected = torch.nn.functional.cross_entropy(every[0, [3]], labels[0, 1:])
    torch.testing.assert_close(kept.loss, expected)


def test_auto_classes_read_what_was_written_under_the_checkpoints_names(tmp_path):
    register()
    model = lively_model(original_rope=False)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    published = {
        "transformer.embedding.word_embeddings.weight",
        "transformer.encoder.layers.2.self_attention.query_key_value.bias",
        "transformer.encoder.layers.0.mlp.dense_h_to_4h.weight",
        "transformer.output_layer.weight",
        "transformer.vision.patch_embedding.cls_embedding",
        "transformer.vision.transformer.layers.1.attention.dense.bias",
        "transformer.vision.linear_proj.gate_proj.weight",
        "transformer.vision.boi",
    }
    assert published < set(weights) == set(model.state_dict())
    # The published file holds this buffer as well; it is computed here.
    weights["transformer.rotary_pos_emb.inv_freq"] = torch.full((8,), 99.0)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    # vLLM reads the dictionary as it stands in the file: its defaults are another model's.
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["vision_config"] == model.config.vision_config
    assert written["vision_config"]["scaling_factor"] == 8 and written.items() >= BUILT.items()

    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, ChatGLM4VConfig) and not config.original_rope
    again, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    both = [one.eval()(IDS, pixel_values=PIXELS).logits for one in (model, again)]
    assert torch.equal(*both)


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
    ids=str,
)
def test_another_models_configuration_is_refused_by_its_key(changes):
    with torch.device("meta"), pytest.raises(ValueError, match=next(iter(changes))):
        ChatGLM4VForConditionalGeneration(ChatGLM4VConfig(**changes))


@pytest.mark.parametrize(
    ("row", "seen", "named"),
    [
        (WITH_IMAGE, pixels(2), "2 images, .* 1 "),
        (WITH_IMAGE, None, "0 images, .* 1 "),
        (TEXT, PIXELS, "1 images, .* 0 "),
        ([5, 301, PAD, EOI, 6], PIXELS, "1 images, .* 0 "),  # the makers' short form
        ([5, 301, PAD, PAD, 9, PAD, EOI], PIXELS, "1 images, .* 0 "),
        (WITH_IMAGE, torch.zeros(1, 3, 28, 28), r"\[1, 3, 28, 28\].*\[images, 3, 56, 56\]"),
    ],
)
def test_inputs_that_contradict_each_other(model, row, seen, named):
    with pytest.raises(ValueError, match=named):
        model(torch.tensor([row]), pixel_values=seen)


def test_a_language_model_of_the_same_type_gets_no_random_vision_tower(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "chatglm", "num_layers": 2}')
    register()
    with pytest.raises(ValueError, match="no vision_config"):
        AutoConfig.from_pretrained(tmp_path)


# ---- positions: all placeholders of an image have one ----------------------------------------


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
