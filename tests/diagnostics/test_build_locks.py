"""What a killed build leaves is taken over in time, and what a living one holds is not."""

import inspect
import os
import subprocess
import sys
import threading

import pytest
from support.killed_build import killed_builder
from torch.utils import file_baton

from swift_vlrft.diagnostics import build_locks, doctor
from swift_vlrft.diagnostics.build_locks import LONGEST, left_locks, take_turns

HOLD = """
import sys, time
from torch.utils.file_baton import FileBaton
assert FileBaton(sys.argv[1]).try_acquire()
print("held", flush=True)
time.sleep(600)
"""
BUILD = """
import sys
from swift_vlrft.diagnostics.build_locks import take_turns
take_turns(print)
from torch.utils.cpp_extension import load
load("cpu_adam", [sys.argv[1]], is_python_module=False)
print("built")
"""


@pytest.fixture
def said(monkeypatch):
    """What was said since torch takes turns, in this test."""
    for name in ("try_acquire", "release"):
        torchs = inspect.unwrap(getattr(file_baton.FileBaton, name))
        monkeypatch.setattr(file_baton.FileBaton, name, torchs)
    said = []
    take_turns(said.append)
    take_turns(pytest.fail)
    return said


@pytest.fixture
def lock(monkeypatch, tmp_path):
    folder = tmp_path / "with a space" / "cpu_adam"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder.parent))
    folder.mkdir(parents=True)
    return folder / "lock"


def acquire(lock):
    """In time: torch's own wait has no bound."""
    baton, done = file_baton.FileBaton(str(lock)), []
    thread = threading.Thread(target=lambda: done.append(baton.try_acquire()), daemon=True)
    thread.start()
    thread.join(300)
    assert done == [True]
    return baton


@pytest.fixture
def builder(lock):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()


def test_the_lock_of_a_build_that_was_killed_is_taken_over(lock, said):
    killed_builder(lock, age=LONGEST - 5)
    baton = acquire(lock)
    assert "it is removed in 3 s" in said[0] and said[0].endswith(f"rm '{lock}'")
    assert said[1].startswith(f"{lock} was removed") and len(said) == 2
    baton.release()
    assert not lock.exists()


def test_a_build_that_goes_on_is_waited_for_until_it_is_killed(lock, builder, said):
    os.utime(lock, (0, 0))
    threading.Timer(4, builder.kill).start()
    baton = acquire(lock)
    assert builder.poll() is not None
    assert f"waits for process {builder.pid}" in said[0] and "was removed" in said[-1]
    baton.release()


def test_a_build_that_ends_is_followed_by_the_next_one(lock, said):
    first = file_baton.FileBaton(str(lock))
    assert first.try_acquire()
    threading.Timer(0.5, first.release).start()
    acquire(lock).release()
    assert said == []


def test_a_later_build_keeps_its_lock(lock, said):
    """Also where it is taken between the look and the removal, and has the number of the first."""
    killed_builder(lock, age=LONGEST)
    left = lock.stat()
    lock.unlink()
    lock.touch()
    build_locks._remove(lock, left, said.append)
    assert lock.exists() and said == []


def test_a_build_whose_lock_was_taken_away_goes_on(lock, said):
    baton = acquire(lock)
    lock.unlink()
    baton.release()


def test_who_waited_builds_what_was_not_built(lock, tmp_path):
    """torch itself would load a library that is not there."""
    (tmp_path / "op.cpp").write_text('extern "C" int answer() { return 42; }')
    killed_builder(lock, age=LONGEST)
    command = [sys.executable, "-c", BUILD, str(tmp_path / "op.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.endswith("built\n"), done.stderr
    assert "was removed" in done.stdout


def test_the_default_folder_is_that_of_torch(monkeypatch, tmp_path):
    from torch.utils.cpp_extension import _get_build_directory

    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = _get_build_directory("fused_adam", verbose=False)
    with open(os.path.join(folder, "lock"), "w") as held:
        assert left_locks() == []
    assert [str(lock) for lock in left_locks()] == [held.name]


def test_only_what_torch_made_is_called_left(lock, monkeypatch):
    lock.write_text("another program's")
    assert left_locks() == []
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(lock))
    assert left_locks() == []


def test_doctor_names_it(lock):
    assert list(doctor._build_locks()) == []
    killed_builder(lock, age=0)
    (found,) = doctor._build_locks()
    assert found.state == doctor.PROBLEM and found.remedy.endswith(f"rm '{lock}'")
