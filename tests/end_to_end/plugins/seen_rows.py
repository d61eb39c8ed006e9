"""A second plugin that registers the reward ``seen``: the row's number, and a line for each call.

VLRFT_TEST_SEEN names the file: of every call the process, the step and the rows' numbers.
"""

import json
import os

from swift.rewards import orms


def seen(completions, number, trainer_state=None, **_):
    line = {"rank": int(os.environ.get("RANK", "0")), "numbers": [int(n) for n in number]}
    line["step"] = trainer_state.global_step if trainer_state is not None else None
    with open(os.environ["VLRFT_TEST_SEEN"], "a") as file:
        file.write(json.dumps(line) + "\n")
    return [float(n) for n in number]


orms["seen"] = lambda args=None, **_: seen
