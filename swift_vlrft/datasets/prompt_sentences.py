"""Rewrite the sentence of a prompt that says in which numbers boxes are asked for.

    norm1000   "the bounding boxes (between 0 and 1000, integer) ... {'Position': [x1, y1, x2, y2]}"
    pixels     "the bounding boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."
    yx1000     "(between 0 and 1000, integer) ... {'box_2d': [y1, x1, y2, x2]}"

Only sentences of the table prompt_sentences.toml are understood. A prompt that holds none of them
gets one; where two numbers, a number in brackets or behind a name, or a word of the table's list
stand beside them, the prompt might contradict its gold boxes, and is refused.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from unicodedata import normalize

from swift_vlrft.geometry.box_format import Y_FIRST_KEY, BoxFormat, Size

KEYS = "Position|bbox_2d|box_2d|bbox|box"
"""Keys of a box, as a pattern."""
_POINT_KEYS = "point_2d|point|coordinate"
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
RANGES: list[dict[str, str]] = [of | {"yx1000": of["norm1000"]} for of in _TABLE["range"]]
"""Sentences by box format; the first is for a prompt that says nothing."""
SAME = 1024
"""Prompts of which the answer is kept: thousands of rows often ask the same."""


def _any_of(texts: list[str]) -> str:
    """A pattern of these texts; {width} and {height} are any number."""
    return re.sub(r"\\\{\w+\\\}", r"(\\d+)", "|".join(map(re.escape, texts)))


def _form(keys: str, forms: list[str]) -> re.Pattern[str]:
    """A box or point under a known key, or under none; under another key it is not understood."""
    keyed = rf"(?P<quote>[\"'])(?:{keys})(?P=quote): "
    return re.compile(rf"(?:{keyed}|(?<![\"'`]:)(?<![\"'`]: ))(?:{_any_of(forms)})")


_RANGE = [re.compile(_any_of(list(texts.values()))) for texts in RANGES]
_STATED = {name: re.compile(_any_of([texts[name] for texts in RANGES])) for name in RANGES[0]}
_BOX, _POINT = _form(KEYS, _TABLE["forms"]["box"]), _form(_POINT_KEYS, _TABLE["forms"]["point"])
_OTHER = re.compile(_any_of(_TABLE["other"]["sentences"]))
_WRITE = re.compile(r"\nWrite each (?:box|point) as \{.*\}\.$")
_QUESTION = re.compile(
    "|".join(
        rf"(?<={re.escape(start)})[^\n]*?(?={re.escape(end)})"
        for start, end in _TABLE["other"]["questions"]
    )
)

# ---- what may be of coordinates ------------------------------------------------------------------

_KNOWN = "\u01c2"
"""A rare letter stands for what is understood, so that no numbers meet across it."""
_N = r"(?<!\d)\d++(?:\.\d++|(?!\.\d))"
_NUMBERS = re.compile(
    rf"{_N}(?:[^\w:]{{1,6}}|\s*(?:x|to|by|and|到|至)\s*){_N}"  # 412, 88; 640x480; from 0 to 639
    r"|[\[({<]\s*\d|[a-z](?:[\"']\s?:|\s?=)\s?[\"']?\d",  # [412; "left": 5; h = 7
    re.IGNORECASE,
)
_WORDS = re.compile(rf"(?<![a-z])(?:{_any_of(_TABLE['unclear']['words'])})(?!\d)", re.IGNORECASE)


@lru_cache(SAME)
def said_of_coordinates(problem: str, *, points: bool = False) -> str | None:
    """Return the numbers or the unclear word of a prompt that no sentence of the table explains.

    A little of what stands around is returned, too; ``points``: it asks for points. None: nothing.
    """
    match = _NUMBERS.search(_unknown(problem, points))
    match = match or _WORDS.search(_unknown(_QUESTION.sub(_KNOWN, problem), points))
    if match is None:
        return None
    near = match.string[max(match.start() - 20, 0) : match.end() + 10]
    return near.replace(_KNOWN, "...").strip()


def _unknown(problem: str, points: bool) -> str:
    """The prompt with a mark in the place of all that is understood."""
    for known in (*_RANGE, _POINT if points else _BOX, _OTHER):
        problem = known.sub(f" {_KNOWN} ", problem)
    return normalize("NFKC", problem)


@lru_cache(SAME)
def contradiction(problem: str, of: BoxFormat) -> str | None:
    """Return the sentence of another format in a prompt that has none of this format."""
    if _STATED[of.name].search(problem):
        return None
    matches = [known.search(problem) for known in _STATED.values()]
    against = (_any_of(texts) for other, texts in _TABLE["against"].items() if other != of.name)
    matches += [re.search(texts, problem, re.IGNORECASE) for texts in against]
    return next((match[0] for match in matches if match), None)


def sentence(of: BoxFormat, size: Size, number: int = 0) -> str:
    """Return the format's sentence in the table's range of that number, for images of ``size``."""
    return RANGES[number][of.name].format(width=size[0], height=size[1])


@lru_cache(SAME)
def prompt_in(
    problem: str, after: BoxFormat, seen: Size, key: str | None, *, points: bool = False
) -> str:
    """Return the prompt with the sentences of another format.

    ``seen``: the size in which the model sees the image. Boxes, or points, are under ``key``, or
    the key of points that goes with it (None: as it says). What the prompt does not say is added at
    its end.
    """
    if not any(known.search(problem) for known in _RANGE):
        problem += f"\n{sentence(after, seen)}"
    for number, known in enumerate(_RANGE):
        problem = known.sub(sentence(after, seen, number), problem)
    if key is None:
        return problem
    y_first, form = key == Y_FIRST_KEY, _POINT if points else _BOX
    if points:
        key, order = ("point", "y, x") if y_first else ("point_2d", "x, y")
    else:
        order = "y1, x1, y2, x2" if y_first else "x1, y1, x2, y2"
    plain = f'{{"{key}": [{order}]}}'
    problem, count = form.subn(
        lambda m: f"{m['quote']}{key}{m['quote']}: [{order}]" if m["quote"] else plain, problem
    )
    return problem if count else f"{problem}\nWrite each {'point' if points else 'box'} as {plain}."


def without_box_format(problem: str) -> str:
    """Return the prompt without the table's sentences, forms and runs of blanks.

    To compare prompts across box formats.
    """
    problem = _WRITE.sub("", problem)
    for known in (*_RANGE, _BOX, _POINT):
        problem = re.sub(rf"\{{?(?:{known.pattern})\}}?", " ", problem)
    return " ".join(problem.split())
