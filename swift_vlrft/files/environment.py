"""One table holds the environment variables of this package; their switches are read here.

VLRFT_SHARED_PREFIX=1    VLRFT_TRACK_MEMORY=yes    on: what transformers takes as true, and `on`
VLRFT_TRACK_MEMORY=no    or unset                  off
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

TRUE, FALSE = ("true", "1", "yes", "t", "y"), ("false", "0", "no", "f", "n")
"""Words that transformers' argument parser takes (hf_argparser.py: string_to_bool)."""


@dataclass(frozen=True, slots=True)
class Variable:
    kind: Literal["switch", "number"]
    default: str
    meaning: str


VARIABLES = {
    "VLRFT_SHARED_PREFIX": Variable(
        "switch", "0", "compute each prompt and image of a micro-batch once"
    ),
    "VLRFT_SHARED_PREFIX_CACHE": Variable(
        "number", "512", "MiB of image features to keep; 512 is the default, 0 keeps none"
    ),
    "VLRFT_TRACK_MEMORY": Variable("switch", "0", "log the peak memory of every phase"),
}


def truth(text: str) -> bool | None:
    """Tell whether a switch is on; None for text that is neither on nor off."""
    word = text.strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def text_of(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the variable without outer blanks, or its default if it is empty or not set."""
    text = (os.environ if environment is None else environment).get(name, "").strip()
    return text or VARIABLES[name].default


def is_on(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether a switch is on; ValueError for a value that is neither on nor off."""
    text = text_of(name, environment)
    state = {"on": True, "off": False}.get(text.lower(), truth(text))
    if state is None:
        raise ValueError(f"{name}={text}: neither on nor off. Set it to 1 or to 0.")
    return state


def number(name: str, environment: Mapping[str, str] | None = None) -> int:
    """Return a variable's number; ValueError if it is not a whole number of 0 or more."""
    text = text_of(name, environment)
    if not text.isdecimal():
        raise ValueError(f"{name}={text}: not a whole number ({VARIABLES[name].meaning})")
    return int(text)


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
