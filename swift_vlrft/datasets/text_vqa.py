"""DocVQA, TextVQA and their like ask about text in images, and take several answers as right.

As pixparse/docvqa-single-page-questions and lmms-lab/DocVQA have it, Parquet:

    image     {"bytes": b"\\x89PNG...", "path": None}
    question  "what is the date mentioned in this letter?"
    answers   ["1/8/93"]
    question_id or questionId, data_split and others

As lmms-lab/textvqa has it, with the answers of ten people:

    image     {"bytes": b"\\xff\\xd8...", "path": None}
    question  "what is the brand of this camera?"
    answers   ["nous les gosses", "dakota", "dakota", "dakota digital", ...]
    question_id, image_id and others

As DocVQA's, InfographicsVQA's and TextVQA's own JSON has it, whose images lie in folders beside it:

    {"data": [{"questionId": 337, "question": "what is the date ...?", "answers": ["1/8/93"],
               "image": "documents/xnbl0037_1.png", "docId": 279, "data_split": "train"}]}
    {"data": [{"questionId": 65718, "image_local_name": "20471.jpeg", "answers": [...], ...}]}
    {"data": [{"question_id": 0, "image_id": "0054c91397f2fe05", "set_name": "train", ...}]}

The solution is the most frequent answer, the first of several; the others are its ``aliases``,
which count as right, too. A question without an answer, as in test splits, makes no row.

Columns and records are those of the dataset cards on Hugging Face (huggingface.co/datasets/
pixparse/docvqa-single-page-questions, lmms-lab/textvqa), of docvqa.org/datasets and of
textvqa.org/dataset; no published file was at hand to read.
"""

from __future__ import annotations

from collections import Counter
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
from swift_vlrft.parsing.texts import plain_text

PROMPT = "\nAnswer with the text in the image and nothing else. " + ANSWER_FORM.format("text")
IDS = ("question_id", "questionId")
NO_ANSWER = "a question without an answer makes no row"
FOLDERS = (
    *("images", "train_images", "test_images", "train_val_images/train_images"),
    *("spdocvqa_images", "infographicsvqa_images", "documents"),
)
"""Where people unpack the archives of images."""


def _matches(columns: set[str]) -> bool:
    of_others = {"problem", "solution"} <= columns or "answer" in columns
    has_image = {"image", "image_local_name", "image_id"} & columns
    test_split = {"questionId", "data_split"} <= columns or {"question_id", "set_name"} <= columns
    known = "question" in columns and ("answers" in columns or test_split)
    return bool(known and has_image and not of_others)


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    question, texts = text_in(record, "question"), record.get("answers")
    texts = [] if texts is None else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"answers is {str(texts)[:80]}; a list of texts is needed")
    answers = [text.strip() for text in texts if text.strip()]
    if not answers:
        context.leave_out(NO_ANSWER)
        return
    keys = [(plain_text(text) or "").casefold() for text in answers]
    solution = answers[keys.index(Counter(keys).most_common(1)[0][0])]
    if record.get("task") not in (None, "ocr"):
        raise ValueError(
            f"the task is {record['task']!r}, but rows of question and answers ask for the text "
            "in the image; for another task, store image, problem and solution"
        )
    number = next((record[name] for name in IDS if record.get(name) is not None), None)
    yield further(record, "question", "answers", "image_local_name", "image_id", "questionId") | {
        "image": _image(record, context),
        "problem": question + PROMPT,
        "solution": f"<answer>{solution}</answer>",
        "task": "ocr",
        "aliases": [text for text in dict.fromkeys(answers) if text != solution] or None,
        "question_id": None if number is None else str(number),
    }


def _image(record: Record, context: Context) -> Any:
    """The image that is stored, or the file that a record of the original JSON names."""
    names = [record.get("image") or record.get("image_local_name")]
    if names == [None] and "image" not in record and record.get("image_id") is not None:
        names = [f"{record['image_id']}.jpg"]
    if not isinstance(name := names[0], str) or name.startswith("data:"):
        return name
    return context.image_file([name, name.rpartition("/")[2]], FOLDERS)


TEXT_VQA_SCHEMA = RecordSchema("text-vqa", _matches, _rows, single=False)
