"""A second plugin that does to a run what VLRFT_TEST_FAULT says, after the step it says."""

import os
from pathlib import Path

from swift.callbacks import TrainerCallback, callbacks_map


def files(output: Path) -> None:
    """The Parquet shards go, and the images become others."""
    folder = output.parent
    for shard in (folder / "parquet").iterdir():
        shard.unlink()
    for image in folder.glob("*.png"):
        image.write_bytes((folder / "other" / image.name).read_bytes())


def image(output: Path) -> None:
    for one in output.parent.glob("*.png"):
        one.unlink()


FAULTS = {one.__name__: one for one in (files, image)}


class Fault(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        self._strike(args)

    def on_log(self, args, state, control, **kwargs):
        if args.save_strategy == "no":
            self._strike(args)

    def _strike(self, args):
        if fault := os.environ.get("VLRFT_TEST_FAULT"):
            FAULTS[fault](Path(args.output_dir))


callbacks_map["fault"] = Fault  # --callbacks fault
