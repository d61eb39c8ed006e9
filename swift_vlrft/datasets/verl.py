"""verl and EasyR1 store rows of one image in Parquet or JSON. A row of verl's:

    images        [{"bytes": b"\\x89PNG...", "path": None}]
    prompt        [{"role": "system", "content": "Think first."},
                   {"role": "user", "content": "<image>How many dogs?"}]
    reward_model  {"style": "rule", "ground_truth": "4"}
    data_source   "hiyouga/geometry3k", and ability, extra_info {"split": "train", "index": 0}

and as EasyR1's:

    images        [{"bytes": b"\\x89PNG...", "path": None}]
    problem       "<image>How many dogs?"
    answer        "4"

A row of verl's is as its examples/data_preprocess/geo3k.py makes it, one of EasyR1's has the
columns of hiyouga/geometry3k's card. All other columns are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swift_vlrft.datasets.schema import Context, RawExample, RecordSchema, further, turns_of
from swift_vlrft.datasets.storage import Record


def _matches(columns: set[str]) -> bool:
    asked, answered = {"prompt", "problem"} & columns, {"reward_model", "answer"} & columns
    return "images" in columns and bool(asked and answered) and not {"image", "solution"} & columns


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    stated = record.get("reward_model")
    if stated is not None and (not isinstance(stated, dict) or "ground_truth" not in stated):
        raise ValueError(f"the reward_model is {str(stated)[:80]}; it needs a ground_truth")
    golds = {"answer": record.get("answer")}
    golds |= {"reward_model.ground_truth": stated["ground_truth"]} if stated is not None else {}
    system, prompt = record.get("system"), record.get("prompt")
    if isinstance(prompt, list):
        system, prompt = turns_of(record, "prompt", ("system", "user"))
    example = further(record, "images", "prompt", "problem", "answer", "reward_model")
    example |= {"image": record["images"], "solution": _stated(golds), "system": system}
    yield example | {"problem": _stated({"prompt": prompt, "problem": record.get("problem")})}


def _stated(columns: dict[str, Any]) -> Any:
    """The value of the one column that states it; ValueError if several do."""
    stated = {name: value for name, value in columns.items() if value is not None}
    if len(stated) > 1:
        raise ValueError(f"the row has {' and '.join(stated)}; leave out the one that is not meant")
    return next(iter(stated.values()), None)


VERL_SCHEMA = RecordSchema("verl", _matches, _rows, image="images")
