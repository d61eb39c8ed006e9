"""A second plugin that does to a run what VLRFT_TEST_FAULT says, after the step it says."""

import os
import resource
import time
from pathlib import Path

from swift.callbacks import TrainerCallback, callbacks_map

from swift_vlrft.swift_plugin.callbacks import add_callback


def full_disk(output: Path) -> None:
    """After checkpoint-1 the clock is set back a day; after checkpoint-2 there is no room."""
    if not (output / "checkpoint-2").exists():
        os.utime(output / "checkpoint-1", (time.time() + 86400,) * 2)
    elif "VLRFT_TEST_DISK" in os.environ:
        disk = os.statvfs(output)
        with open(Path(os.environ["VLRFT_TEST_DISK"]) / "filler", "wb") as filler:
            filler.write(bytes(disk.f_bavail * disk.f_frsize - 200_000))
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def files(output: Path) -> None:
    """The Parquet shards and the images go, then the Arrow file loses its end."""
    folder = output.parent
    if (folder / "arrow").exists() and not list((folder / "parquet").iterdir()):
        (arrow,) = (folder / "arrow").glob("*.arrow")
        os.truncate(arrow, 4096)
        return
    for shard in (folder / "parquet").iterdir():
        shard.unlink()
    for image in folder.glob("*.png"):
        image.write_bytes((folder / "other" / image.name).read_bytes())


def image(output: Path) -> None:
    for one in output.parent.glob("*.png"):
        one.unlink()


def stream(output: Path) -> None:
    (output.parent / "stream" / "train-00001-of-00002.parquet").unlink(missing_ok=True)


FAULTS = {one.__name__: one for one in (full_disk, files, image, stream)}


class Fault(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        self._strike(args)

    def on_log(self, args, state, control, **kwargs):
        if args.save_strategy == "no":
            self._strike(args)

    def _strike(self, args):
        if fault := os.environ.get("VLRFT_TEST_FAULT"):
            FAULTS[fault](Path(args.output_dir))


callbacks_map["fault"] = Fault
add_callback("fault", Fault)
