"""Split a command line into flags and values, as ms-swift's argparse does.

flags_of(["--model", "m", "--columns={}", "--strict"])
Flag("model", ("m",)), Flag("columns", ("{}",)), Flag("strict", ())
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from swift_vlrft.recipe.tree import Span


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag is ``--name value ...``; not ``known``: only bash knows its value, as written here."""

    name: str
    values: tuple[str, ...]
    line: int = 1
    known: bool = True
    span: Span | None = None
    """Of ``--name``, without an ``=value``."""
    value_spans: tuple[Span | None, ...] = ()
    """One for each of ``values``."""
    inline: bool = False
    """Whether it is written ``--name=value``."""

    @property
    def option(self) -> str:
        """Return the name as it is written: with two dashes, unless there are others."""
        return self.name if self.name.startswith("-") else f"--{self.name}"


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


def flags_of(words: Sequence[str]) -> Iterator[Flag]:
    """Yield each flag with its values; words before the first flag are a subcommand or a file."""
    starts = [n for n, word in enumerate(words) if is_flag(word)]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=False):
        first, *values = words[start:end]
        inline = [first.partition("=")[2]] if "=" in first else []
        yield Flag(flag_name(first), (*inline, *values))
