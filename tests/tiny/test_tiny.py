"""Tiny checkpoints: tokens where the real vocabulary has them (tests/families: each one loads)."""

import pytest

from swift_vlrft.families import FAMILIES, known_family
from swift_vlrft.tiny.checkpoint import build_tokenizer, write_tiny
from swift_vlrft.tiny.compact import COMPACT, compact

pytestmark = pytest.mark.slow  # transformers is imported


@pytest.mark.parametrize("name", FAMILIES)
def test_any_text_survives_and_special_tokens_keep_their_real_ids(name, tmp_path):
    from transformers import AutoTokenizer

    tiny = FAMILIES[name].tiny
    build_tokenizer(tiny).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    answer = "[{'Position': [254, 303, 291, 1000], 'Confidence': 0.9}]"
    text = f"<think>two, é中\n</think><answer>{answer}</answer>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) < 2000 and tiny.special_ids.items() <= vocabulary.items()
    assert all(tokenizer.decode([number]) == token for token, number in tiny.special_ids.items())
    assert tokenizer.decode([*ids, 100_000]) == text, "nothing lies between"


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'llava'; known: qwen2_5_vl, qwen2_vl, glm4v, glm46v"):
        known_family("llava")
    with pytest.raises(ValueError, match="qwen3_vl_moe"):  # no dense model for a mixture
        write_tiny("qwen3_vl_moe", tmp_path / "model")
    assert not list(tmp_path.iterdir())
    for name in FAMILIES.keys() - COMPACT:
        with pytest.raises(ValueError, match=f"{name} has no tiny model that learns on a CPU"):
            compact(known_family(name), 112)
