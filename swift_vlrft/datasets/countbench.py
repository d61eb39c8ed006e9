"""CountBench (arXiv 2302.12066) asks how many objects of a kind an image shows, 2 to 10.

As vikhyatk/CountBenchQA has it, Parquet:

    image     {"bytes": b"\\xff\\xd8...", "path": None}
    question  "How many headsets are there in the image?"
    number    10

As nielsr/countbench has it, with the image's caption in place of a question:

    image     {"bytes": b"\\xff\\xd8...", "path": None}
    text      "A set of ten wooden spoons on a table"
    number    10
    image_url

The caption is asked for with a gap where it says the number. Some rows of it have no image.

The columns are those of the dataset cards on Hugging Face and of google-research/big_vision's
countbenchqa.py; no published file was at hand to read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    Context,
    RawExample,
    RecordSchema,
    further,
    text_in,
)
from swift_vlrft.datasets.storage import Record

OF_CAPTION = "Which number belongs in the gap of this caption of the image: {}"
PROMPT = "\nAnswer with a whole number. " + ANSWER_FORM.format("number")
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def _matches(columns: set[str]) -> bool:
    known = {"image", "number"} <= columns and {"question", "text"} & columns
    return bool(known)


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    number = _whole(record["number"])
    if "question" in record:
        question = text_in(record, "question")
    else:
        question = OF_CAPTION.format(_with_gap(text_in(record, "text"), number))
    yield further(record) | {
        "problem": question + PROMPT,
        "solution": f"<answer>{number}</answer>",
        "task": "counting",
    }


def _whole(number: Any) -> int:
    """A whole number from 0 up, also if it is stored as 6.0; ValueError for all else."""
    numeric = isinstance(number, int | float) and not isinstance(number, bool)
    if not numeric or not 0 <= number < math.inf or number != int(number):
        raise ValueError(f"the number is {str(number)[:80]}; a whole number from 0 up is needed")
    return int(number)


def _with_gap(caption: str, number: int) -> str:
    """The caption with ___ for the number, in digits or as a word."""
    names = [str(number), *WORDS[number : number + 1]]
    text, count = re.subn(rf"\b({'|'.join(names)})\b", "___", caption, flags=re.IGNORECASE)
    if not count:
        raise ValueError(f"the text {caption[:80]!r} does not say the number {number}")
    return text


COUNTBENCH_SCHEMA = RecordSchema("countbench", _matches, _rows)
