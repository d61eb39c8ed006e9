"""Markdown shows text of others as it is, never as markup.

inline("a|b <img>")     "a\\|b &lt;img&gt;"
code("runs/a")          "`runs/a`"
fenced("ls", "bash")    "```bash\\nls\\n```"
"""

from __future__ import annotations

import html
import re

from swift_vlrft.files.text import visible

_MARKUP = re.compile(r"([\\`*_\[\]|~$]|(?<=http):(?=//)|(?<=https):(?=//)|(?<=www)\.|^[-+#=:])")
_NUMBER = re.compile(r"^(\d+)([.)])(?=\s|$)")  # at the beginning it would make a list


def inline(text: object) -> str:
    """Put the text on one line, for a sentence or a cell of a table."""
    line = _MARKUP.sub(r"\\\1", html.escape(" ".join(visible(str(text)).split()), quote=False))
    return _NUMBER.sub(r"\1\\\2", line)


def code(text: object, *, in_table: bool = False) -> str:
    """Put the text on one line, in backticks; in a table, a bar would end the cell."""
    text = " ".join(visible(str(text)).split()) or " "
    ticks = "`" * (_longest_run(text) + 1)
    room = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{room}{text.replace('|', chr(92) + '|') if in_table else text}{room}{ticks}"


def fenced(text: object, language: str = "") -> str:
    """Put the text into a block of code."""
    body = visible(str(text)).strip("\n")
    ticks = "`" * max(3, _longest_run(body) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
