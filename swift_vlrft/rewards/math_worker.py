r"""Compare by math-verify in a process that mathematics.py starts: ``python -P math_worker.py``.

stdin   a line of one or two texts, parted by NUL     \sqrt{8} NUL 2\sqrt{2}
stdout  "r" when it is ready, then for each line "1" if the texts are equal, or the one text can be
        read; else "0"

It ends with its stdin, and by itself when a line takes too much of the processor's time.
"""

import logging
import resource
import signal
import sys

MEMORY = 4 << 30
"""Bytes of address space: a tower of powers takes all that it gets."""
SECONDS = 2.0
"""Processor time of a line."""


def main() -> None:
    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def read(text: str) -> list[object]:
        config = (LatexExtractionConfig(),)
        written = text if "$" in text or "\\(" in text else f"\\boxed{{{text}}}"
        values: list[object] = parse(written, config, parsing_timeout=None)
        return values

    def equal(texts: list[str]) -> bool:
        values = [read(text) for text in texts]
        if not all(values):
            return False
        return len(values) == 1 or bool(verify(*values, timeout_seconds=None))

    equal([r"\sqrt{8}", r"2\sqrt{2}"])  # which imports the rest
    out = sys.stdout.buffer
    out.write(b"r")
    out.flush()
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            same = equal(line.decode("utf-8", "replace").rstrip("\n").split("\0"))
        except Exception:  # whatever sympy raises, MemoryError and RecursionError among it
            same = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write(b"1" if same else b"0")
        out.flush()


if __name__ == "__main__":
    main()
