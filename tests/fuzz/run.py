"""Fuzz every reader of what strangers write: rewards, completions, predictions, data, images,
recipes.

    python tests/fuzz/run.py --seconds 300
    python tests/fuzz/run.py --seconds 60 --only recipes --seed 7
    python tests/fuzz/run.py --only data --file runs/fuzz/data-7-123/rows.jsonl     one case again

Each reader has a file here, which makes cases from real good examples and says what must hold of
each: no exception but an error of our own that names the place; scores finite and in [0, 1];
bounded CPU time and memory; read twice, the same; no row lost. A case that fails is written to
runs/fuzz/ with the command that checks it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzz.target import Target  # noqa: E402
from support.limits import TooSlow, time_limit  # noqa: E402

NAMES = ("rewards", "completions", "predictions", "data", "images", "recipes")
SLICE = 10.0
"""Seconds for which one target runs before the next one has its turn."""
MOST_MEMORY = 1 << 30
"""Bytes by which one case may raise the process's peak."""
MOST_FAILURES = 20


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass
class Fuzzer:
    """One target with its random numbers and its counts."""

    target: Target
    seed: int
    folder: Path
    failed_to: Path = ROOT / "runs" / "fuzz"
    inputs: int = 0
    cases: int = 0
    seconds: float = 0.0
    failures: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed} {self.target.name}")
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, seconds: float, most: int | None = None) -> None:
        """Cases until the time is over, or ``most`` inputs were tried; at least one."""
        start = time.monotonic()
        limit = None if most is None else self.inputs + most
        while True:
            self._one()
            over = time.monotonic() - start >= seconds
            if over or (limit is not None and self.inputs >= limit):
                break
            if len(self.failures) >= MOST_FAILURES:
                break
        self.seconds += time.monotonic() - start

    def _one(self) -> None:
        case = self.target.make(self.rng, self.folder)
        number, self.cases, before = self.cases, self.cases + 1, _peak()
        try:
            with time_limit(self.target.seconds):
                self.inputs += self.target.check(case, self.folder)
            grown = _peak() - before
            assert grown < MOST_MEMORY, f"it took {grown >> 20} MiB"
        except (Exception, TooSlow):
            kept = self.failed_to / f"{self.target.name}-{self.seed}-{number}"
            file = self.target.save(case, kept)
            self.failures.append(file)
            (kept / "error.txt").write_text(traceback.format_exc(), errors="backslashreplace")
            again = f"python tests/fuzz/run.py --only {self.target.name} --file {file}"
            last = traceback.format_exc(limit=-3)
            print(*(ascii(one)[:300] for one in last.splitlines()[-9:]), sep="\n", file=sys.stderr)
            print(f"FAILED: {again}", file=sys.stderr, flush=True)


def target(name: str) -> Target:
    found: Target = import_module(f"fuzz.{name}").TARGET
    return found


def fuzz(names: Sequence[str], seconds: float, seed: int, folder: Path) -> list[Fuzzer]:
    """Every target in turn, until ``seconds`` are over."""
    fuzzers = [Fuzzer(target(name), seed, folder / name) for name in names]
    end = time.monotonic() + seconds
    slice = min(SLICE, seconds / sum(one.target.share for one in fuzzers))
    try:
        while True:
            for one in fuzzers:
                if len(one.failures) < MOST_FAILURES:
                    one.run(slice * one.target.share)
            if time.monotonic() >= end:
                break
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return fuzzers


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--only", choices=NAMES, action="append", help="repeat for several")
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    parser.add_argument("--file", type=Path, default=None, help="check this saved case again")
    given = parser.parse_args()
    names = given.only or list(NAMES)
    if given.file is not None and len(names) != 1:
        parser.error("--file needs --only TARGET")
    faulthandler.enable()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="vlrft-fuzz-"))
    try:
        if given.file is not None:
            one = target(names[0])
            (folder / one.name).mkdir()
            with time_limit(one.seconds):
                count = one.check(one.load(given.file), folder / one.name)
            print(f"{given.file}: {count} inputs, nothing is wrong")
            return 0
        seed = given.seed if given.seed is not None else time.time_ns() % 1_000_000
        fuzzers = fuzz(names, given.seconds, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for one in fuzzers:
        print(f"{one.target.name:12} {one.inputs:>10} inputs  {len(one.failures)} failed", end="")
        print(f"  {one.seconds:.0f} s  ({one.target.one_input})")
    total, failed = sum(f.inputs for f in fuzzers), sum(len(f.failures) for f in fuzzers)
    print(f"{total} inputs, {failed or 'none'} failed; seed {seed}")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
