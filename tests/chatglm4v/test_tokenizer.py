"""tokenizer.model against tiktoken, which the published code reads it with."""

import sys
from pathlib import Path

import pytest
import tiktoken
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swift_vlrft.chatglm4v.tokenizer import PIECES, read_ranks, tokenizer_of
from swift_vlrft.families.chatglm4v import FAMILY, SPECIAL_IDS
from swift_vlrft.tiny.checkpoint import build_tokenizer
from tests.support.glm4v_folder import save_as_published

pytestmark = pytest.mark.slow  # torch is imported

REPOSITORY = Path(__file__).resolve().parents[2]
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(REPOSITORY.glob("*.md"))]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Four thousand tokens, learnt from English and Chinese text as the published ones were."""
    folder = tmp_path_factory.mktemp("published")
    save_as_published(build_tokenizer(FAMILY.tiny, TEXTS), folder)
    return folder


@pytest.fixture(scope="module")
def fast(published):
    return tokenizer_of(published)


@pytest.fixture(scope="module")
def same(published, fast):
    """Fails where a text is cut otherwise than by tiktoken, or does not come back."""
    ranks = read_ranks(published / "tokenizer.model")
    slow = tiktoken.Encoding("glm", pat_str=PIECES, mergeable_ranks=ranks, special_tokens={})

    def compare(text: str) -> None:
        ids = fast(text, add_special_tokens=False)["input_ids"]
        assert ids == slow.encode(text, disallowed_special=())
        assert fast.decode(ids) == text

    return compare


WORDS = sorted({word for text in TEXTS for word in text.split()})


@settings(max_examples=400)
@given(
    st.one_of(
        st.text(),
        st.text("aab \n\r\t12\u017fK'\"SsTtRrEe\u00df\u4e2d\u6587\u3000\x85\xa0"),
        st.lists(st.sampled_from([*WORDS, " ", "\n\n", "  ", "I'LL", "1234567"])).map(" ".join),
    )
)
def test_the_ids_are_tiktokens(same, text):
    assume(not any(token in text for token in SPECIAL_IDS))
    same(text)


def test_every_character_is_cut_as_by_tiktoken(same):
    step = 1 if sys.flags.dev_mode else 211  # -X dev: all of them, a minute
    letters = [chr(n) for n in [*range(0x3000), *range(0x3000, 0xD800, step)]]
    letters += [chr(n) for n in range(0xE000, 0x110000, step)]
    for start in range(0, len(letters), 32):
        same("\n".join(f"a{c}b{c}{c} {c}1{c}'{c}" for c in letters[start : start + 32]))


def test_prompts_begin_as_published_and_special_tokens_are_never_cut(fast):
    red = fast("red", add_special_tokens=False)["input_ids"]
    assert fast("red")["input_ids"] == [151331, 151333, *red]
    assert fast("<|user|>red<|endoftext|>")["input_ids"] == [151331, 151333, 151336, *red, 151329]
    assert (fast.pad_token_id, fast.eos_token_id, fast.padding_side) == (151329, 151329, "left")
    assert fast.decode([151336, *red], skip_special_tokens=True) == "red"


def test_a_saved_tokenizer_gives_the_same_as_the_published_one(fast, tmp_path):
    fast.save_pretrained(tmp_path)
    again, learnt = tokenizer_of(tmp_path), build_tokenizer(FAMILY.tiny, TEXTS)
    for text in ["", "Two dogs.\n\n \u4e24\u53ea\u72d7 1000", "<|user|>\nx<|assistant|>"]:
        assert learnt(text)["input_ids"] == again(text)["input_ids"] == fast(text)["input_ids"]
    assert again.pad_token_id == 151329 and again.padding_side == "left"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (None, "No such file"),
        (b"", "byte 0 (256 of 256"),
        (b"AA== 0\n<html>\n", "line 2"),
        (b"AA== 0\nAB!= 1\n", "line 2"),
        (b"AA== 0\nAQ== x\n", "line 2"),
        (b"\xff\xfe\x00", "its beginning"),
        (b"version https://git-lfs.github.com/spec/v1\n", "line 1"),
    ],
)
def test_a_broken_file_is_named_with_the_place_in_it(content, place, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(ValueError, match=r"^\S+tokenizer\.model: ") as error:
        tokenizer_of(tmp_path)
    assert place in str(error.value) and "\n" not in str(error.value)
