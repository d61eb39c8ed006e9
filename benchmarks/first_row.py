"""From a Parquet set to the first training row: swift-vlrft beside ms-swift's own preprocessor.

    python benchmarks/first_row.py --rows 1000 --coco-rows 5000

Both read the same Parquet through ms-swift's ``load_dataset``, each in a process of its own with
an empty cache: ViRFT's rows of 640 x 480 RGBA PNG, about 800 KB each, and COCO's in Parquet, JPEGs
of 640 x 480 with two categories each, of which stock ms-swift makes rows by a preprocessor such as
a user would write. Measured after the imports: seconds until the first row is at hand, bytes
written, the peak of private memory, and the time to read a row at random. Everything is written to
a temporary folder and deleted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SHARD_ROWS, SIZE = 500, (640, 480)
ASKED = "Detect all dogs (between 0 and 1000) in <answer>."
GOLD = "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"


def made_images(count: int, form: str) -> list[bytes]:
    """PNGs that do not compress, as photographs do not, or JPEGs of COCO's size, about 160 KB."""
    from PIL import Image

    rng = random.Random(0)
    made = []
    for _ in range(count):
        image = Image.new("RGBA", (640, 480), (9, 9, 9, 255))
        noise = Image.frombytes("RGBA", (640, 320), rng.randbytes(640 * 320 * 4))
        image.paste(noise, (0, 0))
        buffer = io.BytesIO()
        image.convert("RGBA" if form == "PNG" else "RGB").save(buffer, form, compress_level=1)
        made.append(buffer.getvalue())
    return made


def columns_of(form: str, numbers: range) -> dict[str, list[Any]]:
    """What lies beside the images."""
    if form == "coco":
        boxes = [[9.5, 9.0, 200.0, 300.0], [300.0, 9.0, 630.0, 470.0]]
        objects = {"bbox": boxes, "category": ["dog", "cat"]}
        row = {"width": SIZE[0], "height": SIZE[1], "objects": objects}
        return {name: [value for _ in numbers] for name, value in row.items()}
    return {"problem": [f"{ASKED} {n}" for n in numbers], "solution": [GOLD for _ in numbers]}


def write_set(folder: Path, rows: int, form: str) -> int:
    """A set in shards, row groups of 100; returns the bytes of all images."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    base = made_images(40, "JPEG" if form == "coco" else "PNG")
    total = 0
    shards = (rows + SHARD_ROWS - 1) // SHARD_ROWS
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for shard in range(shards):
        name = folder / f"train-{shard:05d}-of-{shards:05d}.parquet"
        writer: Any = None
        for start in range(shard * SHARD_ROWS, min(rows, (shard + 1) * SHARD_ROWS), 100):
            # A few bytes behind the image's end make each another file.
            numbers = range(start, min(rows, start + 100))
            images = [base[n % 40] + n.to_bytes(8, "little") for n in numbers]
            total += sum(map(len, images))
            column = pa.array([{"bytes": image, "path": "1.png"} for image in images], kind)
            part = pa.table({"image": column, **columns_of(form, numbers)})
            writer = writer or pq.ParquetWriter(name, part.schema, use_dictionary=False)
            writer.write_table(part)
        writer.close()
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


def register_stock(path: str) -> None:
    """What a user of ms-swift writes for COCO in Parquet: a row for each category of an image."""
    from swift.dataset import DatasetMeta, RowPreprocessor, register_dataset

    from swift_vlrft.datasets.build import detection_row

    class Rows(RowPreprocessor):  # type: ignore[misc]
        def preprocess(self, row: dict[str, Any]) -> list[dict[str, Any]]:
            made = []
            for box, name in zip(*(row["objects"][k] for k in ("bbox", "category")), strict=True):
                gold = [round(1000 * n / side) for n, side in zip(box, SIZE * 2, strict=True)]
                one = detection_row(row["images"], name, [tuple(gold)])
                asked = [{"role": "user", "content": "<image>" + one["problem"]}]
                made.append({**one, "messages": asked, "images": one["image"]})
            return made

    register_dataset(DatasetMeta(dataset_path=path, preprocess_func=Rows()))


def measure(kind: str, path: str, cache: str) -> dict[str, float]:
    """In a process of its own: load, first row, random rows."""
    from swift.dataset import load_dataset

    if kind == "ms-swift" and path.endswith("coco"):
        register_stock(path)
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
    assert first["messages"] and first["images"][0]["bytes"] and "Position" in first["solution"]
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
    for name, count in (("--rows", 1000), ("--coco-rows", 5000)):
        parser.add_argument(name, type=int, default=count, help="0 = leave this out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return
    print("| | set | images | first row | written | private memory | random row |")
    print("|---|---|---|---|---|---|---|")
    asked = {"virft": options.rows, "coco": options.coco_rows}
    for form, rows in ((form, rows) for form, rows in asked.items() if rows):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / form
            path.mkdir()
            total = write_set(path, rows, form)
            # Side by side: one of each in turn, so that a busy machine is busy for both.
            runs: dict[str, list[dict[str, float]]] = {"ms-swift": [], "swift-vlrft": []}
            for _ in range(options.repeats):
                for kind, found in runs.items():
                    found.append(in_process(kind, path))
        for kind, found in runs.items():
            middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
            print(
                f"| {kind} | {form}, {rows} pictures | {total / 2**30:.2f} GiB "
                f"| {middle['seconds']:.1f} s | {middle['written'] / 2**20:.0f} MiB "
                f"| {middle['peak'] / 2**20:.0f} MiB | {middle['row_ms']:.2f} ms |"
            )


if __name__ == "__main__":
    main()
