"""Answers without an answer block are counted in words, whatever else is wrong with them."""

import json

import pytest

from swift_vlrft.evaluation.predictions import read_predictions
from swift_vlrft.evaluation.summary import summarise

BOX = "[[102, 104, 395, 590]]"


@pytest.mark.parametrize(("bare", "said"), [(40, "40 of 40"), (30, "30 of 40"), (20, None)])
def test_answers_without_tags_are_counted_where_most_have_none(bare, said, tmp_path):
    texts = [BOX] * bare + [f"<answer>{BOX}</answer>"] * (40 - bare)
    rows = [
        {"id": str(n), "completion": text, "solution": BOX, "task": "detection", "image_id": n}
        for n, text in enumerate(texts)
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = summarise(read_predictions(tmp_path / "p.jsonl"), bootstrap=0).notes
    found = [note for note in notes if "have no answer block" in note]
    assert [note[: len(said)] for note in found] == [said] if said else not found
