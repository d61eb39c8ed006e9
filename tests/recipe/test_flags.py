"""The flags of a command line, held against Python's own argparse."""

from argparse import ArgumentParser

from hypothesis import given
from hypothesis import strategies as st

from swift_vlrft.recipe.flags import flags_of

NAMES = ("dataset", "top_k", "system", "learning-rate")
VALUES = ["a", "-1", "-0.5", "", "a b", "x=y", "{}", "hf::me/set:pixels#3"]
FLAG = st.sampled_from(NAMES).map("--{}".format)
INLINE = st.tuples(FLAG, st.sampled_from(VALUES)).map("=".join)


@given(
    st.lists(st.tuples(FLAG | INLINE, st.lists(st.sampled_from(VALUES), max_size=3)), max_size=5)
)
def test_words_are_parted_as_argparse_parts_them(groups):
    words = [word for first, more in groups for word in (first, *([] if "=" in first else more))]
    parser = ArgumentParser(allow_abbrev=False)
    for name in NAMES:
        parser.add_argument(f"--{name}", nargs="*")
    theirs = vars(parser.parse_args(words))
    ours = {flag.name: list(flag.values) for flag in flags_of(words)}
    assert ours == {name: values for name, values in theirs.items() if values is not None}
