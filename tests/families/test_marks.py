"""Which tokens of a family a prompt may name, and which its template writes."""

import pytest

from swift_vlrft.families import FAMILIES
from swift_vlrft.families.marks import first_mark

NAMED = [*("think", "answer", "box", "<ref", "/ref", "_ref_", "quad", "tool_", "arg_", "<mask")]
NAMED += ["[MASK", "<pad", "unk"]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_every_special_token_is_a_mark_or_may_be_named(family):
    for token in family.tiny.special_ids:
        named = token in ("<image>", "/nothink") or any(part in token for part in NAMED)
        if token.startswith(("<|image", "<|vision", "<|video", "<|think")):
            named = False
        assert (first_mark(f"What is {token} here?") is None) == named, token


@pytest.mark.parametrize(
    "token", ["<|image_1|>", "<｜User｜>", "<|media_pad|>", "<<SYS>>", "[IMG]"]
)
def test_marks_of_other_models(token):
    assert first_mark(f"a {token} b") == token


@pytest.mark.parametrize("text", ["x |> f <| y", "a<b", "<image>", "<table>", "<|point_start|>"])
def test_what_is_no_mark(text):
    assert first_mark(text) is None
