"""Read completions from disk, one at a time: ms-swift's ``completions.jsonl`` has no other reader.

{"step": ["1", "1"], "completion": ["..", ".."], "solution": ["..", ".."], "vlrft_format": [1, 0]}
{"completion": "..", "solution": "..", "task": "detection"}

The first is a line of ms-swift's log (``--log_completions true``): a list per column, an item per
completion. The second is one completion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.files.jsonl import LineError, finite, json_objects


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion's ``place`` is line "3", or line and item "3[0]"; ``row`` has every column."""

    place: str
    row: dict[str, Any]
    file: Path | None = None

    def __str__(self) -> str:
        return f"{self.file}, line {self.place}" if self.file else f"line {self.place}"

    @property
    def step(self) -> float:
        return finite(self.row.get("step")) or 0.0

    def logged(self, reward: str) -> float | None:
        """Return the score in the log; None if there is none, which ms-swift writes as NaN."""
        return finite(self.row.get(reward))


def read_completions(path: Path, notes: list[str]) -> Iterator[Completion]:
    """Yield completions. LineError names the unusable line; ``notes`` report half a line at the
    end. A table that ms-swift wrote again (GRPOTrainer.log does when training ends) is read once.
    """
    last = None
    for number, record in json_objects(path, notes):
        place = f"{path}, line {number}"
        completions = record.get("completion")
        if not isinstance(completions, list) or (completions and isinstance(completions[0], dict)):
            yield Completion(str(number), record, path)  # one completion: a text, or chat messages
            continue
        table = record.get("step"), record.get("prompt"), completions
        if table == last:
            continue
        last = table
        count = len(completions)
        columns = {k: v for k, v in record.items() if isinstance(v, list) and len(v) == count}
        for key in ("id", "solution", "prompt", "task"):
            if key in record and key not in columns:
                raise LineError(
                    place,
                    f"{count} completions, but another number in {key!r}; write one completion a "
                    "line, or a value for each",
                )
        for n in range(count):
            row = {key: values[n] for key, values in columns.items()}
            yield Completion(f"{number}[{n}]", row, path)
