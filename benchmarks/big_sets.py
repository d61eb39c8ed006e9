"""Sets larger than memory and disk: rows/s and memory of a process that streams 10 million rows.

    python benchmarks/big_sets.py make FOLDER                the set: 2,000 shards of 5,000 rows
    python benchmarks/big_sets.py measure FOLDER             what the table in docs/data.md says
    python benchmarks/big_sets.py measure s3://BUCKET/SET    the same from an object store
    python benchmarks/big_sets.py measure FOLDER --s3        from a server here that speaks S3

The images repeat (300 of 64 x 48), so that the set fits a disk; every row has a number of its
own, by which a pass is proven complete. One row in 1,000 is broken: an image cut off, a box
outside, a problem that is empty. `make` goes on where it was stopped. Each measurement runs in a
process of its own; results/big_sets.jsonl keeps them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# This file's folder comes first on the path, where it would be taken for the library `datasets`.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]

RESULTS = Path(__file__).parent / "results" / "big_sets.jsonl"
SHARDS, ROWS, GROUP, IMAGES = 2000, 5000, 100, 300
GOLD = '<answer>[{"Position": [%d, %d, %d, %d], "Confidence": 1}]</answer>'
BROKEN = 1000


def images() -> list[bytes]:
    """JPEGs of noise and a box, each about 1.5 KB."""
    from PIL import Image, ImageDraw

    rng = random.Random(0)
    made = []
    for number in range(IMAGES):
        image = Image.frombytes("RGB", (16, 12), rng.randbytes(16 * 12 * 3)).resize((64, 48))
        ImageDraw.Draw(image).rectangle((8, 8, 40, 30), outline=(255, number % 255, 0))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=80)
        made.append(buffer.getvalue())
    return made


def write_shard(file: Path, first: int, rows: int, group: int, pictures: list[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = range(first, first + rows)
    # Ten of them to a row group, which stores each once.
    contents = [pictures[(n // group * 10 + n % 10) % len(pictures)] for n in numbers]
    problems = [f"Detect all boxes. Answer in thousandths, 0 to 1000. Row {n}." for n in numbers]
    golds = [GOLD % (n % 400, n % 300, 500 + n % 499, 400 + n % 599) for n in numbers]
    for at, n in enumerate(numbers):
        if n % BROKEN == 500:
            kind = n // BROKEN % 3
            if kind == 0:
                contents[at] = contents[at][: len(contents[at]) // 2]
            elif kind == 1:
                golds[at] = GOLD % (1, 1, 5000, 5000)
            else:
                problems[at] = " "
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [{"bytes": c, "path": None} for c in contents]
    columns = {
        "image": pa.array(cells, kind),
        "problem": problems,
        "solution": golds,
        "task": ["detection"] * rows,
        "number": pa.array(numbers, pa.int64()),
    }
    half = file.with_suffix(".half")
    pq.write_table(
        pa.table(columns),
        half,
        row_group_size=group,
        compression="zstd",
        write_statistics=["number"],
    )
    half.rename(file)


def make(folder: Path, shards: int, rows: int, group: int = GROUP) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = images()
    for shard in range(shards):
        file = folder / f"train-{shard:05d}-of-{shards:05d}.parquet"
        if not file.exists():
            write_shard(file, shard * rows, rows, group, pictures)


def peak() -> int:
    """MiB of memory that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def read_so_far() -> int:
    """Bytes that this process asked the system for."""
    return int(
        dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())["rchar"]
    )


# ---- measurements, each in a process of its own ----------------------------------------------


def opened(source: str) -> Any:
    from swift_vlrft.datasets.opening import open_set

    return open_set(source, keep_going=True)


def options() -> Any:
    from swift_vlrft.datasets.training import LoadOptions

    return LoadOptions(cache=Path("unused"), rewards=("vlrft_detection_iou",))


def measure_open(source: str) -> dict[str, Any]:
    start = time.monotonic()
    stored = opened(source)
    seconds = time.monotonic() - start
    from swift_vlrft.datasets.sharded_set import first_report
    from swift_vlrft.datasets.shards import Shards

    shards = Shards(stored)
    start = time.monotonic()
    report = first_report(stored, ("vlrft_detection_iou",))
    return {
        "files": len(stored.files),
        "rows": len(shards),
        "footers_s": round(seconds, 1),
        "first_rows_s": round(time.monotonic() - start, 1),
        "checked": report.rows,
    }


def measure_order(source: str) -> dict[str, Any]:
    """Every row's number read in shuffled order, with all columns: is each there once?"""
    import numpy as np

    from swift_vlrft.datasets.shards import Shards

    shards = Shards(opened(source))
    seen = np.zeros(len(shards), bool)
    names = ["image", "problem", "solution", "task", "number"]
    start, busy, jumps, last = time.monotonic(), time.process_time(), 0, 0
    for window in shards.order([42, 0]):
        shards.prepare(window, names)
        for number in window:
            row = shards.read(int(number), names)["number"]
            assert not seen[row], f"row {row} came twice"
            seen[row] = True
            jumps += abs(row - last) > 100
            last = row
    seconds, busy = time.monotonic() - start, time.process_time() - busy
    assert seen.all(), f"{(~seen).sum()} rows did not come"
    return {
        "rows": len(seen),
        "rows_per_s": round(len(seen) / seconds),
        "rows_per_cpu_s": round(len(seen) / busy),
        "seconds": round(seconds),
        "bytes_read": shards.bytes_read,
        "from_another_group": round(jumps / len(seen), 3),
    }


def measure_stream(source: str, workers: int, rows: int) -> dict[str, Any]:
    """Rows as they train, images looked at, through `datasets` and torch's DataLoader, as ms-swift
    reads a stream for supervised training.
    """
    from torch.utils.data import DataLoader

    from swift_vlrft.swift_plugin.streaming import shuffled, streamed

    told: list[str] = []
    data = streamed(opened(source), options(), told.append, lambda report: None)
    data = shuffled(data, seed=42, buffer_size=1000)
    loader: Any = iter(DataLoader(data, batch_size=None, num_workers=workers) if workers else data)
    next(loader)
    start, busy = time.monotonic(), time.process_time()
    for _ in range(rows):
        next(loader)
    seconds, busy = time.monotonic() - start, time.process_time() - busy
    most = peak()
    if workers:
        for process in loader._workers:
            status = Path(f"/proc/{process.pid}/status").read_text()
            most = max(most, int(status.split("VmHWM:")[1].split()[0]) // 1024)
    found = {"workers": workers, "rows": rows, "rows_per_s": round(rows / seconds)}
    # Of this process: where workers read, it is theirs that matters.
    cpu = {} if workers else {"rows_per_cpu_s": round(rows / busy)}
    return found | cpu | {"most_mib": most}


def measure_grpo(source: str, rows: int) -> dict[str, Any]:
    """Rows by number in the order of GRPO's sampler, eight to a batch."""
    from swift_vlrft.datasets.sharded_set import ShardedSet

    told: list[str] = []
    data = ShardedSet(opened(source), options(), told.append)
    start, busy, done = time.monotonic(), time.process_time(), 0
    for window in data.shards.order([42, 0]):
        for at in range(0, len(window), 8):
            done += len(data.__getitems__([int(n) for n in window[at : at + 8]]))
        if done >= rows:
            break
    seconds, busy = time.monotonic() - start, time.process_time() - busy
    rates = {"rows_per_s": round(done / seconds), "rows_per_cpu_s": round(done / busy)}
    return {"rows": done, **rates, "bad": data.bad}


def measure_resume(source: str, rows: int) -> dict[str, Any]:
    """Going on in the middle: bytes read until the next row comes, beside reading all again."""
    from swift_vlrft.swift_plugin.streaming import shuffled, streamed

    def fresh() -> Any:
        data = streamed(opened(source), options(), lambda text: None, lambda report: None)
        return shuffled(data, seed=42, buffer_size=1000)

    data = fresh()
    stream = iter(data)
    before = read_so_far()
    for _ in range(rows):
        next(stream)
    again = read_so_far() - before
    state, expected = data.state_dict(), [next(stream)["number"] for _ in range(100)]
    other = fresh()
    other.load_state_dict(state)
    before, start = read_so_far(), time.monotonic()
    stream = iter(other)
    found = [next(stream)["number"] for _ in range(100)]
    assert found == expected, (found[:5], expected[:5])
    return {
        "rows": rows,
        "mib_of_reading_again": again >> 20,
        "mib_of_going_on": (read_so_far() - before) >> 20,
        "seconds": round(time.monotonic() - start, 2),
    }


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "open": measure_open,
    "order": measure_order,
    "stream": measure_stream,
    "grpo": measure_grpo,
    "resume": measure_resume,
}


def run(name: str, source: str, **arguments: Any) -> None:
    """A measurement in a process of its own, whose result is kept."""
    command = [sys.executable, __file__, "one", source, "--name", name]
    command += ["--arguments", json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found), flush=True)
    about: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
    }
    about["where"] = source.partition("://")[0] if "://" in source else "disk"
    # How many processes wanted a core: rows/s are those of a shared machine.
    about["load"] = round(os.getloadavg()[0], 1)
    with RESULTS.open("a") as file:
        file.write(json.dumps(about | found) + "\n")


def serve(folder: Path) -> str:
    """The address of a folder's set, in a server that is a thread of this process."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from support.s3_server import S3Server

    server = S3Server(folder.parent)
    server.page = 1000  # as Amazon's
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= server.environment
    return f"s3://{folder.name}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["make", "measure", "one"])
    parser.add_argument("source", help="folder of the set, or its address in a store")
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a shard")
    parser.add_argument("--streamed", type=int, default=200_000, help="rows to measure a rate on")
    parser.add_argument("--names", choices=MEASURES, nargs="*", default=[*MEASURES])
    parser.add_argument("--s3", action="store_true", help="through a server on 127.0.0.1")
    parser.add_argument("--name", choices=MEASURES, help="of one measurement")
    parser.add_argument("--arguments", type=json.loads, default={})
    given = parser.parse_args()
    if given.what == "make":
        make(Path(given.source), given.shards, given.rows)
        return
    if given.what == "one":
        found = MEASURES[given.name](given.source, **given.arguments)
        print(json.dumps({"what": given.name} | found | {"peak_mib": peak()}))
        return
    if given.s3:
        given.source = serve(Path(given.source).resolve())
    for name in given.names:
        for workers in (0, 1, 2) if name == "stream" else (None,):
            more = {} if workers is None else {"workers": workers}
            more |= {} if name in ("open", "order") else {"rows": given.streamed}
            run(name, given.source, **more)


if __name__ == "__main__":
    main()
