"""Split a command line into flags and values, as ms-swift's argparse does.

flags_of(["--model", "m", "--columns={}", "--strict"])
GivenFlag("model", ("m",), ("--model", "m")), ("columns", ("{}",), ...), ("strict", (), ...)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class GivenFlag(NamedTuple):
    """``name`` has `_`, as ms-swift's arguments; ``words`` are as they are written."""

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]


def is_flag(text: str) -> bool:
    """Accept ``--name`` and ``-n``, but not the -1 of `--top_k -1`, nor text with a blank."""
    if " " in text.partition("=")[0]:
        return False
    return text.startswith("--") or (text.startswith("-") and text[1:2].isalpha())


def flag_name(text: str) -> str:
    """Return the name in ``--the-name`` or ``--the-name=value``; with its dashes if they are not
    two, as argparse knows no long flag of one dash.
    """
    name = text.partition("=")[0]
    two = name.startswith("--") and name[2:3] != "-"
    return underscored(name[2:]) if two else name


def underscored(name: str) -> str:
    """Read --the-name as the_name, and leave the number of --learning_rate:1e-6 as it is."""
    return re.sub(r"(?<!\de)-", "_", name)


def flags_of(words: Sequence[str]) -> Iterator[GivenFlag]:
    """Yield each flag with its values; words before the first flag are a subcommand or a file."""
    starts = [n for n, word in enumerate(words) if is_flag(word)]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=False):
        first, *values = words[start:end]
        inline = [first.partition("=")[2]] if "=" in first else []
        yield GivenFlag(flag_name(first), (*inline, *values), tuple(words[start:end]))
