"""What a chat template writes in front of a completion neither earns nor costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.families import FAMILIES
from swift_vlrft.parsing.answers import read
from swift_vlrft.rewards import REWARDS

FORMATS = ("vlrft_format", "vlrft_detection_format")
ALONE = "<answer>[[10, 20, 60, 80]]</answer>"
GOOD = f"<think>One dog.</think>{ALONE}"
# Read from ms-swift's templates (tests/families compares the families with the installed ones).
EMPTY = {"<think>\n\n</think>\n\n", "<think></think>\n", "<think></think>"} | {
    prefix
    for family in FAMILIES.values()
    for prefix in ("<|channel>thought\n<channel|>", *family.templates.values())
    if prefix.strip().endswith((">", "|>")) and prefix.strip() != "<think>"
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_prefix_of_the_template_is_skipped_once(name):
    for prefix in EMPTY:
        right = [prefix + GOOD, "\n" + prefix + GOOD]
        wrong = [prefix + ALONE, prefix + prefix + GOOD, f"{prefix}Well, {GOOD}", GOOD + prefix]
        assert REWARDS[name](right + wrong, [None] * 6) == [1.0] * 2 + [0.0] * 4, prefix


pieces = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", "a", "<|channel>", "<channel|>"]
)
texts = st.lists(pieces, max_size=10).map("".join) | st.text()


@pytest.mark.slow
@given(texts, st.sampled_from([*sorted(EMPTY), "<think>\n"]))
def test_a_prefix_changes_no_score_and_the_column_does_not_put_it_in_twice(text, prefix):
    score = REWARDS["vlrft_format"]
    assert score([prefix + text], response_prefix=prefix) == score([prefix + text])
    begins_like_one = text.lstrip().startswith(("<think>", "<|channel>"))
    if prefix in EMPTY and (not begins_like_one or read(text).well_formed):
        assert read(prefix + text).well_formed == read(text).well_formed


@pytest.mark.parametrize("name", FORMATS)
def test_the_column_puts_back_what_a_trainer_left_out(name):
    cut, score = GOOD.removeprefix("<think>"), REWARDS[name]
    assert score([cut], [None]) == [0.0]
    for prefix in ("<think>", "<think>\n", "<think>\n\n"):
        assert score([cut], [None], response_prefix=prefix) == [1.0]
        # A row that has it, and one whose template writes nothing.
        assert score([GOOD, GOOD, cut], [None] * 3, response_prefix=[prefix, None, ""]) == [1, 1, 0]
        assert explain(name, cut, None, response_prefix=prefix).score == 1.0
    with pytest.raises(ValueError, match="3 .* 2 .*'response_prefix'"):
        score([GOOD] * 3, [None] * 3, response_prefix=["<think>"] * 2)
