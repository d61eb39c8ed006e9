"""Find lines that bash reads otherwise than they look."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from swift_vlrft.recipe.facts import facts
from swift_vlrft.recipe.tree import Node, Note

OTHER_VARIABLES = re.compile(
    r"(VLRFT|VLLM|NCCL|GLOO|DS|PYTORCH|OMP|MODELSCOPE|CUDA_DEVICE|SWIFT(?!_CONFIG_FILE$))_\w+"
    r"|HF_(HOME|ENDPOINT|(HUB|DATASETS)_\w+)|ROOT_IMAGE_DIR|WANDB_(PROJECT|MODE)|MASTER_ADDR"
    r"|(CUDA|HIP|ASCEND_RT)_VISIBLE_DEVICES|QWENVL_BBOX_FORMAT|\w*VIDEO_READER\w*|DOWNSAMPLE_MODE"
    r"|THINKING(_MODE|_BUDGET)?|TORCH_COMPILE_DISABLE|CUBLAS_WORKSPACE_CONFIG"
)
"""Variables that ms-swift, its engines or this package read, beside ms-swift's numbers."""
JOINED = re.compile(r"[^'\"]*\S\\\r?\n(--?[A-Za-z]\w*|[A-Za-z_]\w*=)")
"""A word that goes on in the first column of the next line, with what looks like another word."""


def is_read(name: str) -> bool:
    """Tell whether ms-swift, its engines or this package read a variable; torchrun's own aside."""
    known = name in facts().variables or OTHER_VARIABLES.fullmatch(name)
    return bool(known) and name not in ("RANK", "LOCAL_RANK")


def wrong_lines(text: str, statements: Sequence[Node]) -> Iterator[Note]:
    """Yield notes on lines of a script that are lost or joined."""
    if text.startswith("\ufeff"):
        why = "the file begins with a byte order mark, which bash takes for a part of line 1. "
        why += "Remove it: sed -i '1s/^\\xef\\xbb\\xbf//' FILE"
        yield Note(1, "syntax", why)
    if "\r" in text:
        why = "the line ends in a carriage return (Windows), which bash takes for a part of it. "
        why += "Convert the file: sed -i 's/\\r$//' FILE"
        yield Note(text[: text.index("\r")].count("\n") + 1, "continuation", why)
    for node in (inner for statement in statements for inner in statement.walk()):
        if node.Type == "CallExpr":
            yield from _lost_or_joined(node)
    lines = text.split("\n")
    for node, below in pairwise(statements):
        words = [word.text for word in node.Cmd.Args] if node.Cmd else []
        ends = re.match(r"[ \t\r]*(#.*)?\n", node.source[node.End.at :])
        if "swift" not in words or node.Background or not ends:
            continue
        here, above = lines[below.line - 1], lines[node.line - 1]
        deeper = len(here) - len(here.lstrip()) > len(above) - len(above.lstrip())
        follows = deeper and below.line == node.End.line + 1
        if follows and not here.lstrip().startswith("-"):  # _lost_or_joined says that one
            why = f"no backslash ends line {node.End.line}, so bash takes `{here.strip()[:60]}` for"
            why += " a command of its own: it and all below it are lost"
            yield Note(below.line, "continuation", why)


def _lost_or_joined(node: Node) -> Iterator[Note]:
    words = [word.text for word in node.Args]
    if words and re.match("--?[A-Za-z]", words[0]) and not node.Assigns:
        flags = ", ".join(word.partition("=")[0] for word in words if word.startswith("-"))
        why = f"{words[0]} stands alone: no backslash ends the line before it (or a comment or an "
        why += "empty line stands between), so bash takes it for a command: lost "
        yield Note(
            node.line, "continuation", f"{why}{'is' if flags == words[0] else 'are'} {flags}"
        )
    for word in (*node.Args, *(assigned.Value for assigned in node.Assigns if assigned.Value)):
        if match := JOINED.match(word.text):
            line = word.line + match[0].count("\n") - 1
            why = "no blank stands before the backslash, and none before the next line: bash joins "
            why += f"{match[1]} to the word before it. Write a blank before the backslash"
            yield Note(line, "continuation", why)
