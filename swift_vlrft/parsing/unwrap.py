r"""Take off what models and trainers put around a short answer or gold; nothing else does.

    unwrapped("**Answer: B**")                    "B"
    unwrapped(r"The answer is $\boxed{30^\circ}$.")    r"30^\circ"
    unwrapped('```json\n{"answer": "dog"}\n```')  "dog"

The wrappers come off in the order of ``STEPS``, each at most twice; boxes and points lose the first
three (``bared``). Every step is linear in the text.
"""

import json
import re
from collections.abc import Callable

from swift_vlrft.parsing.texts import nfkc

MAX_UNWRAPPED = 20_000
"""A longer text, in characters, keeps its wrappers: no reader of short answers takes it."""
MAX_ANSWER = 100_000
"""A longer one, some 30,000 tokens, keeps the first three, too, and is not read as boxes."""

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_TOKENS = re.compile(
    r"<\|(?!(?:box|object_ref)_(?:start|end)\|>|(?:begin|end)_of_box\|>)[^<>|]{1,40}\|>"
    r"|</?s>|<(?:eos|bos|pad|unk|end_of_turn|start_of_turn)>"
)
_BOX_TOKENS = re.compile(r"<\|(?:(?:box|object_ref)_(?:start|end)|(?:begin|end)_of_box)\|>")
# `dog` is a fence, too, but `cat`, `dog` is none.
_FENCE = re.compile(r"(?:`{3,}|``?(?=[^`]*`*$))(?:[A-Za-z]*+[ \t]*+\n|(?:json|python)\b)?")
# NFKC would make 42 of 4² and 41/2 of 4½.
_RAISED = re.compile("(?<=[0-9])[⁺⁻]?[⁰¹²³⁴-⁹]+")
_SMALL = re.compile("(?<=[0-9])(?=[₀-₉¼-¾⅐-↉①-⓿])")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BOXED_OR_BRACE = re.compile(r"\\boxed\s*+\{|\\.|[{}]", re.DOTALL)
_COMMANDS = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*+\{")
_DOLLARS = re.compile(r"\$\$?([^$]+)\$\$?")
_MARKS = re.compile(r"(?<![\w)\]])(\*\*|`)(?=\S)((?:(?!\1).)+)\1(?!\w)", re.DOTALL)
_LEAD_IN = re.compile(
    r"(?i)(?:(?:the|my)\s+)?(?:(?:final|correct)\s+)?answer\s*(?::|is\b\s*:?)\s*"
    r"|(?:正确|最终|故)?答案\s*(?::|是|为)\s*:?\s*"
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "「": "」"}
_WRAPPED = re.compile(r"""[<`\\$*{"']|answer|\.$""", re.IGNORECASE)


def bared(text: str) -> str:
    """Return ``text`` in NFKC without zero-width characters, special tokens and outer fence."""
    if len(text) > MAX_ANSWER:
        return text.strip()
    if not text.isascii():
        text = nfkc(_UNSEEN.sub("", text))
    if "<" in text:
        text = _TOKENS.sub(" ", text)
    text = text.strip()
    if text[:1] == "`" and (fence := _FENCE.match(text)):
        text = text[fence.end() :].rstrip("`").strip()
    return text


def unwrapped(text: str) -> str:
    """Return ``text`` without any of the wrappers that stand around all of it."""
    text = text.strip()
    if len(text) > MAX_UNWRAPPED or (text.isascii() and not _WRAPPED.search(text)):
        return text
    if not text.isascii():
        text = _SMALL.sub(" ", _RAISED.sub(lambda match: f"^{nfkc(match[0])}", text))
    left = [2] * len(STEPS)
    changed = True
    while changed:
        changed = False
        for n, (first, step) in enumerate(STEPS):
            if not left[n] or (first and text[:1] not in first):
                continue
            if (inner := step(text).strip()) != text:
                text, changed = inner, True
                left[n] -= 1
    return text


def boxed(text: str) -> list[str]:
    r"""Return the content of every complete ``\boxed{...}`` in order, of nested ones the outer."""
    opened: list[int] = []  # where the content of a box begins; -1: another brace
    contents: list[tuple[int, str]] = []
    for mark in _BOXED_OR_BRACE.finditer(text):
        if mark[0] == "{":
            opened.append(-1)
        elif mark[0][-1] == "{" and mark[0] != "\\{":
            opened.append(mark.end())
        elif mark[0] == "}" and opened and (start := opened.pop()) >= 0:
            while contents and contents[-1][0] > start:
                contents.pop()
            contents.append((start, text[start : mark.start()].strip()))
    return [inner for _, inner in contents]


def _of_command(text: str) -> str:
    start, depth = _COMMANDS.match(text), 1
    if start is None:
        return text
    for brace in _BRACE.finditer(text, start.end()):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[start.end() : -1] if brace.end() == len(text) else text
    return text


def _of_dollars(text: str) -> str:
    match = _DOLLARS.fullmatch(text)
    if match is not None:
        return match[1]
    closing = {"\\(": "\\)", "\\[": "\\]"}.get(text[:2])
    return text[2:-2] if closing and text.find(closing) == len(text) - 2 else text


def _of_object(text: str) -> str:
    """The one value of a JSON object."""
    quoted = text.replace("'", '"') if '"' not in text else text
    try:
        (value,) = json.loads(quoted, parse_int=str, parse_float=str).values()
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _of_quotes(text: str) -> str:
    if len(text) < 3 or _QUOTES.get(text[0]) != text[-1]:
        return text
    inner = text[1:-1]
    between = re.sub(r"(?<=\w)['’](?=\w)", "", inner) if text[-1] in "'’" else inner
    return text if text[-1] in between or text[0] in between else inner


def _of_stop(text: str) -> str:
    return text[:-1] if text[-1:] in (".", "。") and text[-2:-1] != "." else text


STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", lambda text: _BOX_TOKENS.sub(" ", bared(text)) if "<|" in text else bared(text)),
    ("\\", _of_command),
    ("$\\", _of_dollars),
    ("", lambda text: _MARKS.sub(r"\2", text) if "**" in text or "`" in text else text),
    ("{", _of_object),
    ("", lambda text: text[match.end() :] if (match := _LEAD_IN.match(text)) else text),
    ("".join(_QUOTES), _of_quotes),
    ("", _of_stop),
)
"""The wrappers from the outermost to the innermost: what each may begin with, anything if empty,
and the step that takes one of its kind off.
"""
