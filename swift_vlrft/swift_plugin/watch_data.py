"""While a run reads Arrow where it lies: has a file lost its end?

    swift_vlrft: data/my_set/data-00000-of-00002.arrow had 812345 bytes when it was opened, and has
    4096 now: ...

The system kills a process that reads what is no longer there (SIGBUS), and torch then speaks of
shared memory. So the files are looked at after every step, and once more when a run ends with an
error, for a data worker reads ahead.
"""

from __future__ import annotations

import sys
from typing import Any

from swift.callbacks import TrainerCallback

from swift_vlrft.datasets.cache import shortened
from swift_vlrft.datasets.source import DataError


class WatchData(TrainerCallback):
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        usual = sys.excepthook

        def told(kind: Any, error: Any, trace: Any) -> None:
            usual(kind, error, trace)
            if not isinstance(error, DataError) and (problem := shortened()):
                print(f"swift_vlrft: {problem}", file=sys.stderr)

        sys.excepthook = told

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if problem := shortened():
            raise DataError(problem)
