"""What is said before a checkpoint is saved; tests/end_to_end/test_faults_storage.py has a run."""

import logging
import os
from types import SimpleNamespace

import torch
from files.test_checkpoints import KINDS, write

from swift_vlrft.swift_plugin import watch_disk


def test_the_checkpoint_to_go_on_from_is_a_whole_one(tmp_path):
    good = write(tmp_path / "checkpoint-2", KINDS["lora"])
    with (good / "optimizer.pt").open("wb") as file:  # which no disk has room for
        file.write(b"\x80")
        file.truncate(1 << 42)
    half = write(tmp_path / "checkpoint-4", {"adapter_model.safetensors": b"half"})
    merged = write(tmp_path / "checkpoint-2-merged", {"model.safetensors": b"`swift export`"})
    for later, folder in enumerate((half, merged), 1):
        os.utime(folder, (good.stat().st_mtime + later,) * 2)
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    watch_disk.logger.addHandler(handler)
    try:
        args = SimpleNamespace(output_dir=str(tmp_path), should_save=True, save_only_model=False)
        state, control = SimpleNamespace(global_step=6), SimpleNamespace(should_save=True)
        watching = watch_disk.WatchDisk(args, SimpleNamespace())
        watching.on_step_end(args, state, control, model=torch.nn.Linear(2, 2))
    finally:
        watch_disk.logger.removeHandler(handler)
    assert "checkpoint-6 takes about 43980" in said[0]
    assert f"--resume_from_checkpoint {good} goes on from there" in said[0]
