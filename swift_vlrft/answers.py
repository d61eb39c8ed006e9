"""The one place that reads what a model wrote.

    <think>One dog.</think><answer>[{'Position': [10, 20, 60, 80], 'Confidence': 0.9}]</answer>

    read(completion).text     "[{'Position': [10, 20, 60, 80], 'Confidence': 0.9}]"
    read(completion).boxes    one box (10, 20, 60, 80) with confidence 0.9
    read("no tags").text      None: no complete answer block

The answer is the text of the last complete ``<answer>...</answer>`` after the last ``</think>``;
tags are written exactly so, in lower case. Where answer tags nest, the innermost complete pair is
it. Every reading is done once per text, however many rewards ask, and held in a bounded cache.
"""

import json
import re
import threading
import unicodedata
from functools import cached_property
from typing import Any

from swift_vlrft.box_list import BoxList
from swift_vlrft.box_text import read_boxes
from swift_vlrft.boxes import Box
from swift_vlrft.labels import normalise

__all__ = ["Answer", "Box", "BoxList", "normalise", "read", "text_of", "well_formed"]

REFUSALS = frozenset({"no objects", "none"})

MAX_SHORT_ANSWER = 10_000
"""A longer answer is no number, choice or yes/no."""


class Answer:
    """One completion, read lazily: each property is worked out when it is first asked for.

    ``text`` is the text of the answer block without outer blanks, None where none is complete.
    """

    def __init__(self, completion: str) -> None:
        self.completion = completion
        self.text = answer_text(completion)
        self.memo: tuple[Any, Any, Any] | None = None
        """The last comparison with a gold answer: (gold, threshold, result), see matching.py."""

    @cached_property
    def boxes(self) -> BoxList | None:
        """Stated boxes; empty for a refusal; None for text that is neither a list nor a refusal."""
        return None if self.text is None else boxes_or_refusal(self.text)

    @cached_property
    def label(self) -> str:
        """The answer as class names are compared; empty where there is none."""
        return "" if self.text is None else normalise(_without_box_tokens(self.text))

    @cached_property
    def number(self) -> float | None:
        """The one distinct number that the answer states; None for no number or several."""
        return None if self.text is None else number(self.text)

    @cached_property
    def choice(self) -> str | None:
        """The one option letter, upper case."""
        return None if self.text is None else choice(self.text)

    @cached_property
    def yes_no(self) -> str | None:
        """``"yes"`` or ``"no"``."""
        return None if self.text is None else yes_no(self.text)

    @cached_property
    def well_formed(self) -> bool:
        return well_formed(self.completion)


def answer_text(completion: str) -> str | None:
    """Text of the last complete answer block after the last ``</think>``, without outer blanks."""
    after = completion.rfind("</think>")
    last_end = completion.rfind("</answer>")
    start = completion.rfind("<answer>", max(after, 0), max(last_end, 0))
    if start < 0:
        return None
    return completion[start + 8 : completion.find("</answer>", start)].strip()


def well_formed(completion: str) -> bool:
    """Whether the whole text is one non-empty think block, then one non-empty answer block.

    Blanks may stand around and between the blocks. The reasoning may mention answer tags; a second
    think block, or a tag inside the answer, is one block too many.
    """
    text = completion.strip()
    thought_end = text.find("</think>")
    if thought_end < 0 or not (text.startswith("<think>") and text.endswith("</answer>")):
        return False
    thought = text[len("<think>") : thought_end]
    start = text.find("<answer>", thought_end)
    if "<think>" in thought or not thought.strip() or start < 0:
        return False
    answer = text[start + len("<answer>") : -len("</answer>")]
    return (
        not text[thought_end + len("</think>") : start].strip()
        and bool(answer.strip())
        and not ("<" in answer and _TAG.search(answer))
    )


def boxes_or_refusal(text: str) -> BoxList | None:
    """Boxes of an answer or a gold solution: empty for "No Objects", ``[]`` or "None", any case."""
    plain = _without_box_tokens(text)
    if len(plain) < 64 and plain[:1] not in _OPENING and normalise(plain) in REFUSALS:
        return BoxList()
    return read_boxes(text)


def number(text: str) -> float | None:
    """The one distinct number in a short text: "4", "4 dogs", "I count 4, so 4", "1,000", "4.0".

    Digits that belong to a word ("A320", "4th") and number words are not read. "4 or 5", "4-5" and
    "1/2" state two numbers, which is none.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    plain = unicodedata.normalize("NFKC", text).replace("\u2212", "-")
    stated = {float(n.replace(",", "")) for n in _NUMBER.findall(_without_box_tokens(plain))}
    return stated.pop() if len(stated) == 1 else None


def choice(text: str) -> str | None:
    """The option letter of "A", "(A)", "A)", "A.", "A. text" or "A: text".

    None for prose and for two options. Either case of the letter; quotes and ``*`` around it are
    dropped.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    plain = unicodedata.normalize("NFKC", _without_box_tokens(text)).strip().strip("*`\"'").strip()
    stated = _CHOICE.fullmatch(plain)
    if stated is None or _ANOTHER_CHOICE.search(stated["text"] or ""):
        return None
    return (stated["letter"] or stated["enclosed"]).upper()


def yes_no(text: str) -> str | None:
    """The one of the words yes and no that the text holds; "not yes" states neither."""
    if len(text) > MAX_SHORT_ANSWER:
        return None
    plain = unicodedata.normalize("NFKC", text).casefold()
    stated = set(_YES_NO.findall(plain))
    return stated.pop() if len(stated) == 1 and not _NEGATED.search(plain) else None


_OPENING = tuple("[({<`")
_TAG = re.compile(r"</?(?:think|answer)>")
_BOX_TOKENS = re.compile(r"<\|(?:begin|end)_of_box\|>")
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?+(?!\w|\.\d)")
_CHOICE = re.compile(
    r"(?:\((?P<enclosed>[A-Za-z])\)[.:]?|(?P<letter>[A-Za-z])[.):]?)(?P<text>(?<=[.):])\s*\S.*)?",
    re.DOTALL,
)
_ANOTHER_CHOICE = re.compile(
    r"\([A-Za-z]\)"  # (A) cat (B) dog
    r"|(?:^|[\s,;/&])[A-Z]\)"  # A) or B)
    r"|[\s,;/&(][A-Z][.:](?:\s+\S|[a-z]{2}|\d)"  # A. cat B. dog | A.cat B.dog
    r"|\n\s*[A-Z][.:]?\s*$"  # A. cat\nB
    r"|^[A-Za-z][.:]"  # A.B. and e.g.
    # A. B | A. and B | A, B, but neither O'Hare nor U.S.
    r"|(?:^\s*|\b(?:and|or)\s+|[,;/&+|]\s*)[A-Z](?:(?!['’]\w|\.[A-Z]\.)\W|$)(?!\s*[a-z])"
)
_YES_NO = re.compile(r"(?<!\w)(yes|no)(?!\w)")
_NEGATED = re.compile(
    r"(?:\bnot|\bnever|n['’]t|\bneither|\bnor)\W+(?:(?:an?|the)\W+)?(?:yes|no)(?!\w)"
)


def _without_box_tokens(text: str) -> str:
    if "<" in text and "<|" in text:  # looking for one character is many times faster
        return _BOX_TOKENS.sub(" ", text).strip()
    return text


# ---- reading once ----------------------------------------------------------------------------

MAX_CACHED = 8192
MAX_CACHED_CHARACTERS = 4_000_000
"""Bound on the memory held: a parsed text takes about ten times its length."""

_cache: dict[str, Answer] = {}
_cached_characters = 0
_lock = threading.Lock()


def read(completion: Any) -> Answer:
    """What ``completion`` says. The same text is read once as long as it stays in the cache."""
    global _cached_characters
    text = completion if type(completion) is str else text_of(completion)
    answer = _cache.get(text)
    if answer is None:
        answer = Answer(text)
        if len(text) <= MAX_CACHED_CHARACTERS // 2:
            with _lock:
                if text not in _cache:
                    _cache[text] = answer
                    _cached_characters += len(text)
                while _cached_characters > MAX_CACHED_CHARACTERS or len(_cache) > MAX_CACHED:
                    oldest = next(iter(_cache))
                    del _cache[oldest]
                    _cached_characters -= len(oldest)
    return answer


def text_of(completion: Any) -> str:
    """Text of a completion in any form a trainer hands over: a string, or chat messages.

    Of messages, the last one's content; parts like ``{"type": "text", "text": ...}`` are joined.
    None and everything else is the empty text.
    """
    if isinstance(completion, str):
        return str(completion)
    if isinstance(completion, (list, tuple)) and completion:
        if all(isinstance(part, dict) and part.get("type") == "text" for part in completion):
            return "".join(text_of(part.get("text")) for part in completion)
        return text_of(completion[-1]) if isinstance(completion[-1], (dict, str)) else ""
    if isinstance(completion, dict):
        return text_of(completion.get("content"))
    return ""


def gold_text(solution: Any) -> str:
    """A gold solution without its wrapping: the answer block where it has one, else all of it."""
    if not isinstance(solution, str):
        solution = "" if solution is None else json.dumps(solution, default=str)
    wrapped = answer_text(solution)
    return str(solution).strip() if wrapped is None else wrapped
