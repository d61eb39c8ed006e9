"""Questions about text in images, with several right answers (DocVQA, TextVQA and their like).

As lmms-lab/DocVQA has it, Parquet:

    image     {"bytes": b"\\x89PNG...", "path": None}
    question  "What is the name of the company?"
    answers   ["ITC Limited", "itc limited"]
    questionId, docId, question_types, data_split and others

As lmms-lab/textvqa has it, with the answers of ten people:

    image     {"bytes": b"\\xff\\xd8...", "path": None}
    question  "what is the brand of this camera?"
    answers   ["nous les gosses", "dakota", "dakota", "dakota digital", ...]
    question_id, image_id and others

The solution is the most frequent answer, the first of several; the others are its ``aliases``,
which ANLS takes as right, too. A question without an answer, as in test splits, makes no row. The
columns are written from knowledge of these sets; no published file was at hand to compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from swift_vlrft.datasets.schema import ANSWER_FORM, Context, RawExample, RecordSchema, text_in
from swift_vlrft.datasets.storage import Record
from swift_vlrft.parsing.texts import plain_text

PROMPT = "\nAnswer with the text in the image and nothing else. " + ANSWER_FORM.format("text")
IDS = ("question_id", "questionId")
NO_ANSWER = "a question without an answer makes no row"


def _matches(columns: set[str]) -> bool:
    of_others = {"problem", "solution"} <= columns or "answer" in columns
    return {"image", "question", "answers"} <= columns and not of_others


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    question, given = text_in(record, "question"), record["answers"]
    given = [] if given is None else given
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ValueError(f"answers is {str(given)[:80]}; a list of texts is needed")
    answers = [text.strip() for text in given if text.strip()]
    if not answers:
        context.leave_out(NO_ANSWER)
        return
    keys = [(plain_text(text) or "").casefold() for text in answers]
    solution = answers[keys.index(Counter(keys).most_common(1)[0][0])]
    number = next((record[name] for name in IDS if record.get(name) is not None), None)
    yield {
        "image": record["image"],
        "problem": question + PROMPT,
        "solution": f"<answer>{solution}</answer>",
        "task": "ocr",
        "aliases": [text for text in dict.fromkeys(answers) if text != solution] or None,
        "question_id": None if number is None else str(number),
    }


TEXT_VQA_SCHEMA = RecordSchema("text-vqa", _matches, _rows, single=False)
