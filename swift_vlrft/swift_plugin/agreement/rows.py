"""Choose the rows of the set that are compared."""

from __future__ import annotations

import re
from itertools import cycle, islice

from swift.utils import remove_response

from swift_vlrft.swift_plugin.agreement.comparison import ComparisonMixin, NumberedRow

MAX_SCANNED = 1000
"""The rows of the set among which the compared ones are chosen."""

NO_ROWS = "the data set has no rows: give another with --dataset"


def choose_rows(trainer: ComparisonMixin, wanted: int) -> tuple[list[NumberedRow], list[str]]:
    """Return this process's share of the rows to compare, and notes on the choice.

    Half of them have no image if there are such rows. ValueError if no row can be compared.
    """
    kinds: dict[bool, list[NumberedRow]] = {True: [], False: []}
    left, answer = [], trainer.request_config.max_tokens
    limit = trainer.engine.engine.model_config.max_model_len if trainer.colocated else None
    for number, row in enumerate(islice(trainer.train_dataset, MAX_SCANNED), 1):
        kind = kinds[bool(row.get("images") or row.get("videos"))]
        if len(kind) == wanted:
            continue
        try:
            (sample,) = trainer.to_samples([row])
            remove_response(sample.messages)
            with trainer._template_context(trainer.template):
                tokens = len(trainer.template.encode(sample.to_template_dict())["input_ids"])
        except Exception as error:  # of ms-swift's template, Pillow, the model's processor
            # Without Python's names of objects.
            text = re.sub(r"<[\w.]+ object at 0x\w+>", "", str(error)) or type(error).__name__
            left.append(f"row {number}: {' '.join(text.split())[:200]}")
            continue
        if limit and tokens + answer > limit:
            long = f"{tokens} tokens and {answer} of the answer, --vllm_max_model_len is {limit}"
            left.append(f"row {number}: {long}")
            continue
        kind.append((number, row))
        if all(len(kind) >= wanted for kind in kinds.values()):
            break
    texts = kinds[False][: wanted // 2 if kinds[True] else wanted]
    chosen = kinds[True][: wanted - len(texts)] + texts
    if not chosen:
        raise ValueError(f"no row can be compared: {left[0]}" if left else NO_ROWS)
    notes = [f"left out: {len(left)} of the rows ({left[0]})"] if left else []
    if not kinds[True]:
        notes.append("no row has an image or a video: only text was compared")
    share = -(-len(chosen) // trainer.accelerator.num_processes)
    first = trainer.accelerator.process_index * share
    return list(islice(cycle(chosen), first, first + share)), notes
