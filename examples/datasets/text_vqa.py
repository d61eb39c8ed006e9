"""DocVQA, TextVQA and their like ask about text in images, and take several answers as right.

    pixparse/docvqa-single-page-questions   {"image": ..., "question": "...", "answers": ["1/8/93"]}
    lmms-lab/textvqa                        the same, with the answers of ten people
    docvqa.org's JSON                       {"data": [{"questionId": 337, "question": "...",
                                             "image": "documents/xnbl0037_1.png", ...}]}
    textvqa.org's JSON                      {"data": [{"image_id": "0054c91397f2fe05", ...}]}

    vlrft data convert TextVQA_0.5.1_train.json data/textvqa --root train_images \\
        --external-plugins examples/datasets/text_vqa.py

The solution is the most frequent answer; the others are its ``aliases``, which count as right, too.
A question without an answer, as in test splits, makes no row. The columns are those of the cards on
Hugging Face, of docvqa.org and of textvqa.org; no published file was at hand to read.
"""

from collections import Counter

from swift_vlrft.datasets.schemas import ANSWER_FORM, SCHEMAS, RecordSchema, further, text_in

PROMPT = "\nAnswer with the text in the image and nothing else. " + ANSWER_FORM.format("text")
NO_ANSWER = "a question without an answer makes no row"
IMAGES = ("image", "image_local_name", "image_id")
IDS = ("question_id", "questionId")


def matches(columns):
    asked = "question" in columns and bool({"answers", *IDS} & columns)
    return asked and bool(columns & {*IMAGES}) and not {"answer", "solution"} & columns


def rows(record, context):
    question, texts = text_in(record, "question"), record.get("answers") or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"answers is {str(texts)[:80]}; a list of texts is needed")
    answers = [text.strip() for text in texts if text.strip()]
    if not answers:
        context.leave_out(NO_ANSWER)
        return
    keys = [" ".join(text.casefold().split()) for text in answers]
    solution = answers[keys.index(Counter(keys).most_common(1)[0][0])]
    image = record.get("image") or record.get("image_local_name") or f"{record['image_id']}.jpg"
    number = next((record[name] for name in IDS if record.get(name) is not None), None)
    yield further(record, "question", "answers", "questionId", *IMAGES) | {
        "image": image,
        "problem": question + PROMPT,
        "solution": f"<answer>{solution}</answer>",
        "task": "ocr",
        "aliases": [text for text in dict.fromkeys(answers) if text != solution] or None,
        "question_id": None if number is None else str(number),
    }


SCHEMAS.insert(0, RecordSchema("text-vqa", matches, rows, single=False))
