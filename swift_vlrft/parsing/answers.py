"""Read the answer out of a model's text; nothing else does.

    <think>One dog.</think><answer>[{'Position': [10, 20, 60, 80], 'Confidence': 0.9}]</answer>

    read(completion).text     "[{'Position': [10, 20, 60, 80], 'Confidence': 0.9}]"
    read(completion).boxes    one box (10, 20, 60, 80) with confidence 0.9
    read("no tags").text      None: no complete answer block
    read(r"so \\boxed{4}").number    4.0: the one thing that is read without a block

The answer is the text of the last complete ``<answer>...</answer>`` after the last ``</think>``;
of nested tags the innermost pair counts. Each text is parsed once, and kept in a bounded cache.
"""

import json
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Any, TypeVar

from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.boxes import BoxList, read_boxes
from swift_vlrft.parsing.items import read_items
from swift_vlrft.parsing.labels import normalise
from swift_vlrft.parsing.mathematics import mathematics
from swift_vlrft.parsing.points import read_points
from swift_vlrft.parsing.short_answers import choice, decimal, number, yes_no
from swift_vlrft.parsing.spans import read_spans
from swift_vlrft.parsing.texts import plain_text
from swift_vlrft.parsing.unwrap import boxed

__all__ = ["Answer", "Box", "BoxList", "normalise", "read", "read_boxes"]


T = TypeVar("T")


def _of(field: str, reader: Callable[[str], T | None]) -> "cached_property[T | None]":
    """``reader`` applied to the answer's ``text``, or to its ``short`` one; None without a text."""
    text = attrgetter(field)
    return cached_property(lambda self: None if text(self) is None else reader(text(self)))


class Answer:
    """Parses one completion lazily: each property is computed on first access."""

    def __init__(self, completion: str) -> None:
        self.completion = completion
        self.text = answer_text(completion)

    boxes = _of("text", read_boxes)
    """Stated boxes; empty for "No Objects"; None for text that is neither."""
    points = _of("text", read_points)
    """Stated points; empty for "No Objects"; None for text that is neither."""
    spans = _of("text", read_spans)
    """Spans of time in seconds; None for text that is anything else."""
    items = _of("text", read_items)
    """The items of a list, as class names are compared; empty for "No Objects"."""
    order = _of("text", partial(read_items, ordered=True))
    """The same, where arrows and "then" part items, too."""
    plain = _of("text", plain_text)
    """The text as texts in images are compared; None if it is too long."""
    decimal = _of("short", decimal)
    """The one number of the answer, as ``vlrft_number`` reads it."""
    number = _of("short", number)
    """The same as ``vlrft_counting`` reads it."""
    choice = _of("short", choice)
    yes_no = _of("short", yes_no)
    mathematics = _of("short", mathematics)

    @cached_property
    def short(self) -> str | None:
        """Return the answer block's text, else the last ``\\boxed{...}`` after the reasoning."""
        if self.text is not None:
            return self.text
        after = max(self.completion.rfind("</think>"), 0)
        contents = boxed(self.completion[after:]) if "\\boxed" in self.completion else []
        return contents[-1] if contents else None

    @cached_property
    def label(self) -> str:
        """Return the answer as class names are compared; empty if there is none."""
        return "" if self.short is None else normalise(self.short)

    def placed(self, *, points: bool = False) -> BoxList | None:
        """Return its boxes; with ``points`` its points, as boxes without a side."""
        if not points or self.points is None:
            return None if points else self.boxes
        return BoxList([point and (*point, *point) for point in self.points])

    @cached_property
    def well_formed(self) -> bool:
        """Return whether it is one think block, then one answer block, neither empty: outer blanks
        do not count, and the reasoning may mention answer tags.
        """
        reasoned, rest = think_block(self.completion)
        inner = rest[len("<answer>") : -len("</answer>")]
        tagged = rest.startswith("<answer>") and rest.endswith("</answer>")
        return reasoned and tagged and bool(inner.strip()) and not _TAG.search(inner)

    @cached_property
    def well_boxed(self) -> bool:
        """Return whether it is one think block, then text with one ``\\boxed{}``, neither empty."""
        reasoned, rest = think_block(self.completion)
        return reasoned and rest.count("\\boxed") == 1 and any(boxed(rest))


@lru_cache(maxsize=16)  # the checks of a row ask for its gold several times
def answer_text(completion: str) -> str | None:
    """Return the text of the answer block without outer blanks; None if none is complete."""
    span = answer_span(completion)
    return None if span is None else completion[slice(*span)].strip()


def answer_span(completion: str) -> tuple[int, int] | None:
    """Return start and end of that block's text, outer blanks included."""
    after = completion.rfind("</think>")
    last_end = completion.rfind("</answer>")
    start = completion.rfind("<answer>", max(after, 0), max(last_end, 0))
    return None if start < 0 else (start + 8, completion.find("</answer>", start))


def think_block(completion: str) -> tuple[bool, str]:
    """Return whether one non-empty think block, and no other, begins the text, and what follows.
    What a chat template writes by itself in front is skipped, once.
    """
    of_template = _OF_TEMPLATE.match(completion)
    text = completion[of_template.end() :] if of_template else completion
    thought, _, rest = text.strip().partition("</think>")
    reasoned = thought.startswith("<think>") and bool(thought[len("<think>") :].strip())
    single = thought.find("<think>", 1) < 0 and "<think>" not in rest and "</think>" not in rest
    return reasoned and single, rest.lstrip()


_TAG = re.compile(r"</?(?:think|answer)>")
_OF_TEMPLATE = re.compile(r"\s*(?:<think>\s*</think>|<\|channel>thought\s*<channel\|>)")
"""An empty think block (Qwen3.5, GLM-4.5V, MiniCPM-V 4.5), or Gemma 4's empty thought channel:
ms-swift puts its template's prefix in front of each completion (swift/template/base.py,
decode_generate_ids).
"""


MAX_CACHED_CHARACTERS = 4_000_000
"""Some 40 MB: each text is counted with 400 more, and takes ten times its length when parsed."""

_lock = threading.Lock()
_cache: dict[str, Answer] = {}
_cached_characters = 0


def read(completion: Any) -> Answer:
    """Return the answer in ``completion``, from the cache if the text was read before."""
    global _cached_characters
    text = completion if type(completion) is str else text_of(completion)
    answer = _cache.get(text)
    if answer is None:
        answer = Answer(text)
        size = len(text) + 400
        with _lock:
            if _cached_characters + size > MAX_CACHED_CHARACTERS:
                forget()
            if size <= MAX_CACHED_CHARACTERS and _cache.setdefault(text, answer) is answer:
                _cached_characters += size
    return answer


def forget() -> None:
    """Empty the cache of ``read``."""
    global _cached_characters
    _cache.clear()
    _cached_characters = 0


def text_of(completion: Any) -> str:
    """Return a completion's text, whether a trainer passes a string or chat messages.

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
    converted = plain(completion)
    return "" if converted is completion else text_of(converted)


def with_prefix(completion: Any, prefix: Any) -> str:
    """Return the completion's text behind its template's prefix, if it lacks it."""
    text, before = text_of(completion), text_of(prefix)
    return text if text.lstrip().startswith(before.strip()) else before + text


def gold_text(solution: Any) -> str:
    """Return a gold solution without its tags: the answer block if it has one, else all of it.

    A value that is not text (a list, a number, a numpy or pyarrow value) is written as JSON; a
    missing value is the empty string.
    """
    if type(solution) is not str:
        solution = plain(solution)
        if not isinstance(solution, str):
            try:
                solution = "" if solution is None else json.dumps(solution, default=plain)
            except (TypeError, ValueError, RecursionError):  # keys or values that JSON lacks
                solution = str(solution)
    wrapped = answer_text(solution)
    return str(solution).strip() if wrapped is None else wrapped


def plain(value: Any) -> Any:
    """Return a value as a plain Python object: numpy, pandas, pyarrow and torch values converted,
    bytes and decimals as text, a missing value (NaN, NaT, NA) as None.
    """
    if isinstance(value, (str, Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    for name in ("tolist", "to_pylist", "as_py", "to_list"):
        if callable(convert := getattr(value, name, None)):
            value = convert()
            break
    if isinstance(value, float) and value != value:
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value
