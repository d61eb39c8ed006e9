"""The scoring contract, sentence by sentence: contract.jsonl beside this file.

Every line has ``sentence``, ``reward``, ``answer`` (put between answer tags) or ``completion``,
``gold``, further ``columns`` and ``score``, which was derived from the contract's text.
"""

import json
from pathlib import Path

import pytest
from support.hostile import answered

from swift_vlrft.rewards import REWARDS

ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "contract.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "math"))  # waits for what explodes
        for name in dict.fromkeys(row["sentence"] for row in ROWS)
    ],
)
def test_every_sentence_of_the_contract(sentence):
    wrong = []
    for row in (row for row in ROWS if row["sentence"] == sentence):
        text = row["completion"] if "completion" in row else answered(row["answer"])
        columns = {key: [value] for key, value in row.get("columns", {}).items()}
        (score,) = REWARDS[row["reward"]]([text], [row["gold"]], **columns)
        right = score is None if row["score"] is None else score == pytest.approx(row["score"])
        if not right:
            wrong.append((row["reward"], text, row["gold"], f"{score}, not {row['score']}"))
    assert wrong == []
