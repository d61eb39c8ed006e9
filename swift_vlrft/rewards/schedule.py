"""How strict "found" is, as training goes on.

VLRFT_IOU_SCHEDULE=0:0.5,0.1:0.75,0.25:0.9      step 30 of 100: progress 0.3, threshold 0.9
"""

import os
from functools import lru_cache
from typing import Any

DEFAULT_SCHEDULE = "0:0.5,0.1:0.75,0.25:0.9"
VARIABLE = "VLRFT_IOU_SCHEDULE"


def threshold_at(trainer_state: Any) -> float:
    """IoU threshold for the trainer's ``global_step / max_steps``; its first value where there is
    no trainer.
    """
    max_steps = getattr(trainer_state, "max_steps", None) or 0
    step = getattr(trainer_state, "global_step", None) or 0
    progress = step / max_steps if max_steps > 0 else 0.0
    steps = schedule(os.environ.get(VARIABLE) or DEFAULT_SCHEDULE)
    return [threshold for start, threshold in steps if start <= progress][-1]


@lru_cache(maxsize=8)
def schedule(text: str) -> tuple[tuple[float, float], ...]:
    """``((start, threshold), ...)`` of "start:threshold,..."; ValueError names the variable and
    the text.
    """
    try:
        steps = tuple(
            (float(start), float(threshold))
            for start, threshold in (part.split(":") for part in text.split(","))
        )
    except ValueError:
        steps = ()
    starts = [start for start, _ in steps]
    if (
        not steps
        or starts[0] != 0.0
        or starts != sorted(set(starts))
        or not all(start < 1.0 and 0.0 < threshold <= 1.0 for start, threshold in steps)
    ):
        raise ValueError(
            f"{VARIABLE}={text!r}: expected progress:threshold pairs that start at 0 and rise, "
            f"with thresholds in (0, 1], such as {DEFAULT_SCHEDULE!r}."
        )
    return steps
