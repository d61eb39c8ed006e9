"""What a killed build leaves is removed in time, and what a living one holds is not."""

import os
import time

import pytest
from support.killed_build import killed_builder
from torch.utils.file_baton import FileBaton

from swift_vlrft.diagnostics import build_locks, doctor
from swift_vlrft.diagnostics.build_locks import LONGEST, left_locks, remove_left_locks


@pytest.fixture
def lock(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(build_locks, "INTERVAL", 0.1)
    (tmp_path / "cpu_adam").mkdir()
    return tmp_path / "cpu_adam" / "lock"


def test_torch_waits_no_longer_for_a_build_that_was_killed(lock):
    killed_builder(lock, age=LONGEST - 2)
    said = []
    remover = remove_left_locks(said.append)
    FileBaton(str(lock)).wait()
    remover.join(10)
    assert f"rm {lock}" in said[0] and "is removed in 2 s" in said[0]
    assert said[1:] == [f"{lock} was removed: nothing had held it for {LONGEST} seconds"]
    assert not remover.is_alive()


def test_a_build_that_goes_on_keeps_its_lock(lock):
    builder = FileBaton(str(lock))
    assert builder.try_acquire()
    os.utime(lock, (0, 0))
    assert left_locks() == [] and remove_left_locks(print) is None and lock.exists()
    builder.release()


@pytest.mark.parametrize("later", ["made again", "held"])
def test_the_lock_of_a_later_build_is_another_one(later, lock):
    """Also where the file system gives it the same number."""
    killed_builder(lock, age=LONGEST - 2)
    said = []
    remover = remove_left_locks(said.append)
    lock.unlink()
    if later == "made again":
        lock.touch()
        os.utime(lock, (0, 0))
    else:
        builder = FileBaton(str(lock))
        assert builder.try_acquire()
    remover.join(10)
    assert not remover.is_alive() and lock.exists() and len(said) == 1
    if later == "held":
        builder.release()


def test_a_clock_that_was_set_back_costs_the_whole_time_and_no_more(lock):
    killed_builder(lock, age=-7200)
    said = []
    assert remove_left_locks(said.append).daemon
    assert f"in {LONGEST} s" in said[0]
    lock.unlink()


def test_the_default_folder_is_that_of_torch(monkeypatch, tmp_path):
    from torch.utils.cpp_extension import _get_build_directory

    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = _get_build_directory("fused_adam", verbose=False)
    with open(os.path.join(folder, "lock"), "w") as held:
        assert left_locks() == []
    assert [str(lock) for lock in left_locks()] == [held.name]


def test_doctor_names_it(lock):
    assert list(doctor._build_locks()) == []
    killed_builder(lock, age=0)
    (found,) = doctor._build_locks()
    assert found.state == doctor.PROBLEM and found.remedy.endswith(f"rm {lock}")


def test_a_run_without_left_locks_starts_no_thread(lock):
    started = time.monotonic()
    assert remove_left_locks(print) is None
    assert time.monotonic() - started < 5
