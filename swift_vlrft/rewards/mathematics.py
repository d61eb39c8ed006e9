r"""Score mathematics: roots, fractions, intervals and sets, compared by math-verify.

math-verify runs in a process of its own, which is ended when a pair takes too long and replaced:
its own timeouts are signals, which reach the main thread only, and sympy may compute for hours.
"""

import atexit
import os
import re
import socket
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.mathematics import mathematics
from swift_vlrft.rewards.contract import BOXED, Stated, Task, reward

SECONDS = 20.0
"""A pair scores 0 after two seconds of processor time (math_worker.py), or so many in all: on a
busy machine a gold answer is not to become unreadable."""
START_SECONDS = 120.0
"""The worker imports sympy before its first pair."""
MAX_MATH = 2_000
"""A longer answer, in characters, is not read."""
PROGRAM = Path(__file__).with_name("math_worker.py")

# math-verify takes the letters of a word for factors.
_WORD = re.compile(r"(?<![A-Za-z])(?!(?:sin|cos|tan|log|exp)\b)[A-Za-z]{3,}")


class Worker:
    """Runs math-verify in a process: started when first needed, one pair at a time; a fork of this
    process starts its own.
    """

    _line: socket.socket

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def asks(self, *texts: str) -> bool:
        """Return whether two texts are mathematically equal, or one is readable, within
        ``SECONDS``. RuntimeError if the process does not start.
        """
        lines = [re.sub(r"[\n\0]", " ", text).encode("utf-8", "replace") for text in texts]
        with self._lock:
            self._start()
            answer = self._answer(b"\0".join(lines) + b"\n", SECONDS)
            if not answer:
                self.end()
        return answer == b"1"

    def _start(self) -> None:
        if self._process is not None:
            return
        self._line, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", str(PROGRAM)]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
            )
        if not self._answer(b"", START_SECONDS):
            self.end()
            raise RuntimeError(
                "vlrft_math: the process that runs math-verify did not start. "
                'Try `python -c "import math_verify"`.'
            )

    def _answer(self, line: bytes, seconds: float) -> bytes:
        """One byte, none if the process ends or takes too long."""
        try:
            self._line.settimeout(seconds)
            self._line.sendall(line)
            return self._line.recv(1)
        except OSError:
            return b""

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._line.close()
            self._process = None


WORKER = Worker()
atexit.register(WORKER.end)
os.register_at_fork(after_in_child=WORKER.__init__)  # type: ignore[misc]


def read_mathematics(text: str) -> str | None:
    """Return the gold as it is compared; None if math-verify cannot read it, or if it is words."""
    text = mathematics(text)
    of_words = _WORD.search(text) and not re.search(r"[\d\\]", text)
    if len(text) > MAX_MATH or of_words:
        return None
    return text if _equal(text) else None


@lru_cache(maxsize=8192)
def _equal(*texts: str) -> bool:
    return WORKER.asks(*texts)


MATH = Task(
    "math",
    read_mathematics,
    "mathematics",
    reads_most=True,
    states=Stated("mathematics", "text", "answer is empty"),
    format_reward="vlrft_boxed_format",
    completion_tokens=1024,
)


@reward(MATH)
def vlrft_math(answer: Answer, gold: str) -> float:
    r"""1 if math-verify finds answer and solution equal within two seconds, else 0.
    Source: math-verify, as EasyR1, verl and NeMo use it.

    >>> vlrft_math([r"So it is $\boxed{2\sqrt{2}}$.", "<answer>3</answer>"], [r"\sqrt{8}"] * 2)
    [1.0, 0.0]
    """
    text = answer.mathematics
    if not text or len(text) > MAX_MATH:
        return 0.0
    return 1.0 if text == gold or _equal(gold, text) else 0.0


@reward(needs=(), asks=(BOXED,), scores_format=True)
def vlrft_boxed_format(answer: Answer) -> float:
    r"""1 if it is one non-empty think block, then text with one non-empty ``\boxed{}``; else 0.
    Source: EasyR1's format reward.

    >>> text = r"<think>t</think>\boxed{4}"
    >>> vlrft_boxed_format([text, text + r" or \boxed{5}"])
    [1.0, 0.0]
    """
    return 1.0 if answer.well_boxed else 0.0
