"""The lock of an extension build, as torch makes it in a process of its own."""

import subprocess
import sys
from pathlib import Path

import torch.utils

HOLD = f"""
import sys, time
sys.path.append({torch.utils.__path__[0]!r})
from file_baton import FileBaton  # alone: importing torch takes seconds
assert FileBaton(sys.argv[1]).try_acquire()
print("held", flush=True)
time.sleep(6000)
"""


def builder(lock: Path) -> subprocess.Popen:
    """A process that holds ``lock``, and goes on."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


def killed_builder(lock: Path) -> None:
    """``lock`` of a process that was killed."""
    with builder(lock) as process:
        process.kill()
