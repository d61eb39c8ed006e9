"""From a Parquet set to the first training row: swift-vlrft beside ms-swift's own preprocessor.

    python benchmarks/first_row.py --rows 1000 --more-rows 6000

Both read the same Parquet through ms-swift's ``load_dataset``, each in a process of its own with
an empty cache: rows of 640 x 480 RGBA PNG, about 800 KB each. Measured after the imports: seconds
until the first row is at hand, bytes written, the peak of private memory, and the time to
read a row at random. The larger set is read by swift-vlrft only, to see whether memory grows;
everything is written to a temporary folder and deleted. The first line is what the machine takes
to copy the files, in turn with the others: swift-vlrft writes the images once.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SHARD_ROWS = 500
GOLD = "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"


def made_images(count: int, seed: int) -> list[bytes]:
    """PNGs that do not compress, as photographs do not."""
    from PIL import Image

    rng = random.Random(seed)
    made = []
    for _ in range(count):
        image = Image.new("RGBA", (640, 480), (9, 9, 9, 255))
        noise = Image.frombytes("RGBA", (640, 320), rng.randbytes(640 * 320 * 4))
        image.paste(noise, (0, 0))
        buffer = io.BytesIO()
        image.save(buffer, "PNG", compress_level=1)
        made.append(buffer.getvalue())
    return made


def write_set(folder: Path, rows: int) -> int:
    """ViRFT's columns in shards, row groups of 100; returns the bytes of all images."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    base = made_images(40, 0)
    total = 0
    shards = (rows + SHARD_ROWS - 1) // SHARD_ROWS
    schema = pa.schema(
        [
            ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
            ("problem", pa.string()),
            ("solution", pa.string()),
        ]
    )
    for shard in range(shards):
        name = folder / f"train-{shard:05d}-of-{shards:05d}.parquet"
        with pq.ParquetWriter(name, schema, use_dictionary=False) as writer:
            for start in range(shard * SHARD_ROWS, min(rows, (shard + 1) * SHARD_ROWS), 100):
                # A few bytes behind the image's end make each another file.
                numbers = range(start, min(rows, start + 100))
                images = [base[n % 40] + n.to_bytes(8, "little") for n in numbers]
                total += sum(map(len, images))
                columns = {
                    "image": [
                        {"bytes": b, "path": f"{n}.png"}
                        for n, b in zip(numbers, images, strict=True)
                    ],
                    "problem": [
                        f"Detect all dogs (between 0 and 1000) in <answer>. {n}" for n in numbers
                    ],
                    "solution": [GOLD for _ in numbers],
                }
                writer.write_table(pa.table(columns, schema=schema))
    return total


class PrivateMemory:
    """The most private memory (mapped files do not count) while the block runs, in bytes."""

    def __enter__(self) -> PrivateMemory:
        self.peak, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.ended.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            (held,) = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
            self.peak = max(self.peak, held * 1024)

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


def measure(kind: str, path: str, cache: str) -> dict[str, float]:
    """In a process of its own: load, first row, random rows."""
    from swift.dataset import load_dataset

    if kind == "swift-vlrft":
        from swift_vlrft import register

        sys.argv = ["swift", "--dataset", path]
    with PrivateMemory() as memory:
        start = time.perf_counter()
        if kind == "swift-vlrft":
            register()
        rows = load_dataset([path], load_from_cache_file=False, remove_unused_columns=False)[0]
        first = rows[0]
        seconds = time.perf_counter() - start
    assert first["messages"] and first["images"][0]["bytes"] and first["solution"] == GOLD
    order = random.Random(0).sample(range(len(rows)), min(200, len(rows)))
    times = []
    for i in order:
        begin = time.perf_counter()
        rows[i]
        times.append(time.perf_counter() - begin)
    written = sum(f.stat().st_size for f in Path(cache).rglob("*") if f.is_file())
    return {
        "seconds": seconds,
        "written": written,
        "peak": memory.peak,
        "row_ms": statistics.median(times) * 1000,
        "rows": len(rows),
    }


def copy_seconds(path: Path) -> float:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        start = time.perf_counter()
        for file in path.iterdir():
            shutil.copyfile(file, Path(folder) / file.name)
        return time.perf_counter() - start


def in_process(kind: str, path: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=path.parent) as cache:
        environment = os.environ | {
            "MODELSCOPE_CACHE": cache, "HF_HOME": cache, "HF_DATASETS_CACHE": f"{cache}/datasets",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, __file__, "--measure", kind, str(path), cache],
            env=environment, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--more-rows", type=int, default=6000, help="0 = leave this out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    print("| | rows | images | first row | written / images | private memory | random row |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for rows, kinds in (
        (options.rows, ("ms-swift", "swift-vlrft")),
        (options.more_rows, ("swift-vlrft",)),
    ):
        if not rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "set"
            path.mkdir()
            total = write_set(path, rows)
            # Side by side: one of each in turn, so that a busy machine is busy for both.
            repeats = options.repeats if rows == options.rows else 1
            runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
            copied = []
            for _ in range(repeats):
                copied.append(copy_seconds(path))
                for kind in kinds:
                    runs[kind].append(in_process(kind, path))
        print(
            f"| a copy of the files | {rows} | {total / 2**30:.2f} GiB "
            f"| {statistics.median(copied):.1f} s | 1.00 | | |"
        )
        for kind, found in runs.items():
            middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
            print(
                f"| {kind} | {rows} | {total / 2**30:.2f} GiB | {middle['seconds']:.1f} s "
                f"| {middle['written'] / total:.2f} | {middle['peak'] / 2**20:.0f} MiB "
                f"| {middle['row_ms']:.2f} ms |",
                flush=True,
            )


if __name__ == "__main__":
    main()
