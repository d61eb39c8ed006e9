"""CountBench (arXiv 2302.12066): how many objects of a kind an image shows, 2 to 10.

As vikhyatk/CountBenchQA has it, Parquet:

    image     {"bytes": b"\\xff\\xd8...", "path": None}
    question  "How many headsets are there in the image?"
    number    10

As nielsr/countbench has it, with the image's caption in place of a question:

    image     {"bytes": b"\\xff\\xd8...", "path": None}
    text      "A set of ten wooden spoons on a table"
    number    10
    image_url

The caption is asked for with a gap where it says the number. The columns are written from
knowledge of these sets; no published file was at hand to compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from swift_vlrft.datasets.schema import ANSWER_FORM, Context, RawExample, RecordSchema, text_in
from swift_vlrft.datasets.storage import Record

OF_CAPTION = "Which number belongs in the gap of this caption of the image: {}"
PROMPT = "\nAnswer with a whole number. " + ANSWER_FORM.format("number")
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def _matches(columns: set[str]) -> bool:
    known = {"image", "number"} <= columns and {"question", "text"} & columns
    return bool(known) and not {"problem", "solution"} <= columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    number = record["number"]
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
        raise ValueError(f"the number is {str(number)[:80]!r}; a whole number is needed")
    if "question" in record:
        question = text_in(record, "question")
    else:
        question = OF_CAPTION.format(_with_gap(text_in(record, "text"), int(number)))
    yield {
        "image": record["image"],
        "problem": question + PROMPT,
        "solution": f"<answer>{int(number)}</answer>",
        "task": "counting",
    }


def _with_gap(caption: str, number: int) -> str:
    """The caption with ___ for the number, in digits or as a word."""
    names = [str(number), *(WORDS[number : number + 1] if number >= 0 else ())]
    made, count = re.subn(rf"\b({'|'.join(names)})\b", "___", caption, flags=re.IGNORECASE)
    if not count:
        raise ValueError(f"the text {caption[:80]!r} does not say the number {number}")
    return made


COUNTBENCH_SCHEMA = RecordSchema("countbench", _matches, _rows)
