"""Before a checkpoint is saved: is there room for it, and has the clock been set back?

    WARNING swift_vlrft: checkpoint-40 takes about 120 MB, and the disk of output/v0-... has 3 MB
    free: saving it may fail, and end the run. Make room now. ...

With --save_total_limit, transformers removes checkpoints by the time when their folders changed:
one from before the clock was set back would be the newest, and the one just saved be removed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from swift.callbacks import TrainerCallback
from swift.utils import get_logger

from swift_vlrft.files.checkpoints import good_checkpoints

logger = get_logger()


class WatchDisk(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if control.should_save and args.should_save:  # the second: the process that writes
            folder = Path(args.output_dir)
            with suppress(OSError):  # saving says what is wrong with the folder
                self._look(folder, args, state, kwargs["model"])
            with suppress(OSError):
                date_back(folder)

    on_epoch_end = on_step_end

    def _look(self, folder: Path, args: Any, state: Any, model: Any) -> None:
        # Not checkpoint-20-merged of `swift export`, and not half a checkpoint.
        earlier = max(good_checkpoints(folder), key=lambda one: one.stat().st_mtime, default=None)
        needed = size_of(earlier) if earlier else first_size(model, args.save_only_model)
        if (free := shutil.disk_usage(folder).free) >= needed:
            return
        resume = f"; --resume_from_checkpoint {earlier} goes on from there" if earlier else ""
        logger.warning(
            f"swift_vlrft: checkpoint-{state.global_step} takes about {needed / 1e6:.0f} MB, and "
            f"the disk of {folder} has {free / 1e6:.0f} MB free: saving it may fail, and end the "
            f"run. Make room now. Earlier checkpoints stay as they are{resume}."
        )


def date_back(folder: Path) -> None:
    """Checkpoints of the future are dated to now, in their order."""
    with NamedTemporaryFile(dir=folder) as file:
        now = os.stat(file.name).st_mtime  # by the clock of the disk, which may be another machine
    dates = {one: one.stat().st_mtime for one in folder.glob("checkpoint-*") if one.is_dir()}
    latest = max(dates.values(), default=now)
    for one, date in dates.items():
        if date > now:
            os.utime(one, (now, now - 1 - (latest - date)))


def size_of(checkpoint: Path) -> int:
    return sum(one.stat().st_size for one in checkpoint.rglob("*") if one.is_file())


def first_size(model: Any, save_only_model: bool) -> int:
    """The weights that are trained, and Adam's two moments of them."""
    trained = (one for one in model.parameters() if one.requires_grad)
    size: int = sum(getattr(one, "ds_numel", one.numel()) * one.element_size() for one in trained)
    return size if save_only_model else 3 * size
