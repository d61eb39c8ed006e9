"""What is read from a text, case by case: contract.jsonl beside this file."""

import json
from pathlib import Path

import pytest

from swift_vlrft.parsing import short_answers
from swift_vlrft.parsing.answers import normalise, read, read_boxes

CASES = list(map(json.loads, Path(__file__).with_name("contract.jsonl").open()))
READERS = {
    "answer": lambda text: read(text).text,
    "boxes": lambda text: None if (found := read_boxes(text)) is None else found.boxes,
    "count": lambda text: len(read_boxes(text)),
    "confidences": lambda text: read_boxes(text).confidences,
    "labels": lambda text: read_boxes(text).labels,
    "points": lambda text: sorted(read(text).points),
    "same name": lambda names: normalise(names[0]) == normalise(names[1]),
    "well formed": lambda text: read(text).well_formed,
    "number": short_answers.number,
    "none or -4": lambda text: short_answers.number(text) in (None, -4),
    "choice": short_answers.choice,
    "yes_no": short_answers.yes_no,
}


def as_lists(value):
    return [as_lists(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("reader", READERS)
def test_every_case_of_the_contract(reader):
    cases = [case for case in CASES if case["reader"] == reader]
    found = [as_lists(READERS[reader](case["text"])) for case in cases]
    wrong = [
        (value, case) for value, case in zip(found, cases, strict=True) if value != case["reads"]
    ]
    assert wrong == []
    assert cases and {case["reader"] for case in CASES} == READERS.keys()
