"""What the page takes, and what it says of anything larger."""

from __future__ import annotations

SCRIPT = 100_000
COMPLETION = 200_000
SOLUTION = 50_000
GPUS = 40
COLUMNS = 10_000
"""Characters."""
IMAGE = 10 * 2**20
"""Bytes of an image's file."""
PIXELS = 40_000_000
SIDE = 1024
"""Pixels of the longer side of the image that is shown."""
BODY = 32 * 2**20
"""Bytes of one request; an image is sent as text, a third longer."""
SHOWN = 10_000
"""Characters shown of one text."""
FINDINGS = 200
"""Findings shown."""


class TooMuch(ValueError):
    """Something pasted or chosen is larger than the page takes."""


def refuse_long(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise TooMuch(f"{what} has {len(text):,} characters; this page takes {most:,}")
