"""Tiny checkpoints: loadable by transformers, tokens where the real vocabulary has them."""

import pytest

from swift_vlrft.families import FAMILIES, known_family
from swift_vlrft.families.family import TinySize
from swift_vlrft.tiny.checkpoint import build_tokenizer, write_tiny


@pytest.mark.parametrize("name", FAMILIES)
def test_any_text_survives_the_tokenizer(name):
    tokenizer = build_tokenizer(FAMILIES[name].tiny)
    answer = "[{'Position': [254, 303, 291, 1000], 'Confidence': 0.9}]"
    text = f"<think>two, é中\n</think><answer>{answer}</answer>"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


@pytest.mark.parametrize("name", FAMILIES)
def test_special_tokens_keep_their_real_ids_and_nothing_lies_between(name, tmp_path):
    from transformers import AutoTokenizer

    tiny = FAMILIES[name].tiny
    build_tokenizer(tiny).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) < 2000
    assert tiny.special_ids.items() <= vocabulary.items()
    for token, number in tiny.special_ids.items():
        assert tokenizer.decode([number]) == token
    red = tokenizer("red", add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(red + [100_000]) == "red"


def test_an_unknown_family_lists_the_known_ones():
    with pytest.raises(
        ValueError,
        match="unknown model family 'llava'; known: qwen2_5_vl, qwen2_vl, glm4v, glm46v",
    ):
        known_family("llava")


def test_widths_that_break_the_head_dimension_are_refused():
    with pytest.raises(ValueError, match="hidden 96 must be a multiple of 64"):
        TinySize(hidden=96)


def test_a_dense_model_is_not_written_for_a_mixture_of_experts(tmp_path):
    with pytest.raises(ValueError, match="no tiny qwen3_vl_moe: the tiny qwen3_vl is a qwen3_vl$"):
        write_tiny("qwen3_vl_moe", tmp_path / "model")
    assert not list(tmp_path.iterdir())
