"""One table holds the environment variables of this package; their switches are read here.

VLRFT_SHARED_PREFIX=1    VLRFT_TRACK_MEMORY=yes    on: what transformers takes as true, and `on`
VLRFT_TRACK_MEMORY=no    or unset                  off
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TRUE, FALSE = ("true", "1", "yes", "t", "y"), ("false", "0", "no", "f", "n")
"""Words that transformers' argument parser takes (hf_argparser.py: string_to_bool)."""
VARIABLES = {
    "VLRFT_SHARED_PREFIX": "compute each prompt and image of a micro-batch once",
    "VLRFT_TRACK_MEMORY": "log the peak memory of every phase",
}
"""Switches, and what they do."""


def truth(text: str) -> bool | None:
    """Tell whether a switch is on; None for text that is neither on nor off."""
    word = text.strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def is_on(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether a switch is on; ValueError for a value that is neither on nor off."""
    text = (os.environ if environment is None else environment).get(name, "").strip()
    state = {"on": True, "off": False, "": False}.get(text.lower(), truth(text))
    if state is None:
        raise ValueError(f"{name}={text}: neither on nor off. Set it to 1 or to 0.")
    return state


QUIET = {"LOG_LEVEL": "ERROR", "TRANSFORMERS_VERBOSITY": "error", "VLLM_LOGGING_LEVEL": "ERROR"}
"""Variables that ms-swift, transformers and vLLM read when they are first imported."""
BARS = ("HF_DATASETS_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_PROGRESS_BARS")


@contextmanager
def errors_only() -> Iterator[None]:
    """Have libraries log nothing but errors, unless LOG_LEVEL says what they are to log."""
    if "LOG_LEVEL" in os.environ:
        yield
        return
    disabled = logging.root.manager.disable
    added = {name: value for name, value in QUIET.items() if name not in os.environ}
    os.environ.update(added)
    logging.disable(logging.WARNING)  # some set a level of their own
    try:
        yield
    finally:
        logging.disable(disabled)
        for name in added:
            os.environ.pop(name, None)


def hide_bars() -> None:
    """Have libraries draw no progress bars, here and in what is started: those of a command stand
    alone, and a tiny model is read and written in no time.
    """
    for name in BARS:
        os.environ.setdefault(name, "1")
