"""A limit that catches what hangs, on a busy machine too."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TooSlow(BaseException):
    """Not an Exception: no reader may swallow it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TooSlow after so much CPU time of this process, whatever else the machine does, and after 20
    times that on the clock: it may wait for something.
    """

    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {seconds:g} s of CPU time, or {20 * seconds:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timers = {signal.ITIMER_VIRTUAL: signal.SIGVTALRM, signal.ITIMER_REAL: signal.SIGALRM}
    before = {number: signal.signal(number, stop) for number in timers.values()}
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 20 * seconds)
    try:
        yield
    finally:
        for timer, number in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
