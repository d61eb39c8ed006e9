"""What is known of a published data set before it is read."""

from __future__ import annotations

from dataclasses import dataclass


class DataError(ValueError):
    """Something is wrong with a data set: the message says what, where (file, row), and what to
    do.
    """


@dataclass(frozen=True)
class Source:
    """A set on a hub: the task of its rows, and the frame that its boxes are measured in."""

    hub_id: str
    task: str
    frame: str | None = None
