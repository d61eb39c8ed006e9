"""CountBench (arXiv 2302.12066) asks how many objects of a kind an image shows, 2 to 10.

    vikhyatk/CountBenchQA  {"image": ..., "question": "How many headsets are there?", "number": 10}
    nielsr/countbench      {"image": ..., "text": "A set of ten wooden spoons", "number": 10}

    vlrft data convert countbench.parquet data/countbench \\
        --external-plugins examples/datasets/countbench.py

The columns are those of the cards on Hugging Face; no published file was at hand to read. A caption
is asked for with a gap where it says the number.
"""

import re

from swift_vlrft.datasets.schemas import ANSWER_FORM, SCHEMAS, RecordSchema, further, text_in

GAP = "Which number belongs in the gap of this caption of the image: {}"
PROMPT = "\nAnswer with a whole number. " + ANSWER_FORM.format("number")
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def matches(columns):
    return {"image", "number"} <= columns and bool({"question", "text"} & columns)


def rows(record, context):
    number = record["number"]
    if not isinstance(number, int | float) or not 0 <= number < 1000 or number != int(number):
        raise ValueError(f"the number is {str(number)[:80]}; a whole number from 0 up is needed")
    number = int(number)
    if "question" in record:
        question = text_in(record, "question")
    else:
        words = "|".join([str(number), *WORDS[number : number + 1]])
        caption, count = re.subn(rf"(?i)\b({words})\b", "___", text_in(record, "text"))
        if not count:
            raise ValueError(f"the text {caption[:80]!r} does not say the number {number}")
        question = GAP.format(caption)
    yield further(record) | {
        "problem": question + PROMPT,
        "solution": f"<answer>{number}</answer>",
        "task": "counting",
    }


SCHEMAS.insert(0, RecordSchema("countbench", matches, rows))
