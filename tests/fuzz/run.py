"""Fuzz the readers of what strangers write: rewards, completions, data.

    python tests/fuzz/run.py --seconds 300
    python tests/fuzz/run.py --seconds 60 --only data --seed 7
    python tests/fuzz/run.py --only data --file runs/fuzz/data-7-123/rows.jsonl     one case again

Each reader has a file here. Its ``make`` changes real good examples into a case, a file's name and
bytes; its ``check`` says what must hold, and how many inputs the case held: no exception but an
error of our own that names the place; scores finite and in [0, 1]; bounded CPU time and memory;
read twice, the same; no row lost. ``SECONDS`` is the CPU time that a case may take, ``SHARE`` its
part of all seconds. A case that fails is written to runs/fuzz/ with the command that checks it
again.
"""

import argparse
import faulthandler
import itertools
import math
import random
import resource
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.limits import TooSlow, time_limit  # noqa: E402

NAMES = ("rewards", "completions", "data")
MOST_MEMORY = 1 << 30
"""Bytes by which one case may raise the process's peak."""
MOST_FAILURES = 20


def reader(name: str) -> ModuleType:
    return import_module(f"fuzz.{name}")


def checked(name: str, file: str, content: bytes, folder: Path) -> int:
    """How many inputs the case holds. Any exception is a failure."""
    folder.mkdir(parents=True, exist_ok=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with time_limit(reader(name).SECONDS):
        inputs: int = reader(name).check(file, content, folder)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_MEMORY, f"it took {grown >> 20} MiB"
    return inputs


def fuzz(
    name: str,
    seed: int,
    folder: Path,
    kept: Path = ROOT / "runs" / "fuzz",
    *,
    seconds: float = math.inf,
    most: float = math.inf,
) -> tuple[int, list[Path]]:
    """How many inputs were tried until the time was over or ``most`` were reached; the files of the
    cases that failed.
    """
    rng, end = random.Random(f"{seed} {name}"), time.monotonic() + seconds
    inputs, failures = 0, list[Path]()
    for number in itertools.count():
        file, content = reader(name).make(rng)
        try:
            inputs += checked(name, file, content, folder)
        except (Exception, TooSlow):
            place = kept / f"{name}-{seed}-{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(content)
            (place / "error.txt").write_text(traceback.format_exc(), errors="backslashreplace")
            failures.append(place / file)
            last = traceback.format_exc(limit=-3).splitlines()[-9:]
            print(*(ascii(line)[:300] for line in last), sep="\n", file=sys.stderr)
            again = f"python tests/fuzz/run.py --only {name} --file {place / file}"
            print(f"FAILED: {again}", file=sys.stderr, flush=True)
        if inputs >= most or time.monotonic() >= end or len(failures) >= MOST_FAILURES:
            return inputs, failures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--only", choices=NAMES, action="append", help="repeat for several")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--file", type=Path, default=None, help="check this saved case again")
    asked = parser.parse_args()
    names = asked.only or list(NAMES)
    if asked.file is not None and len(names) != 1:
        parser.error("--file needs --only READER")
    faulthandler.enable()
    failed, shares = 0, sum(reader(name).SHARE for name in names)
    with tempfile.TemporaryDirectory(prefix="vlrft-fuzz-") as folder:
        if asked.file is not None:
            count = checked(names[0], asked.file.name, asked.file.read_bytes(), Path(folder))
            print(f"{asked.file}: {count} inputs, nothing is wrong")
            return 0
        for name in names:
            seconds = asked.seconds * reader(name).SHARE / shares
            inputs, failures = fuzz(name, asked.seed, Path(folder, name), seconds=seconds)
            print(f"{name:12} {inputs:>10} inputs, {len(failures)} failed; seed {asked.seed}")
            failed += len(failures)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
