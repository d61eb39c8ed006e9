"""What a killed build leaves is taken over in time, and what a living one holds is not."""

import inspect
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.killed_build import builder, killed_builder
from torch.utils import file_baton
from torch.utils.cpp_extension import _get_build_directory, load

from swift_vlrft.diagnostics import build_locks, doctor
from swift_vlrft.diagnostics.build_locks import LONGEST, left_locks, take_turns


class Said(list):
    """What was said since torch takes turns, in this test; ``then`` is done after the first."""

    then: Callable[[], None] | None = None

    def __call__(self, text: str) -> None:
        self.append(text)
        if self.then is not None and len(self) == 1:
            self.then()


@pytest.fixture
def said(monkeypatch):
    for name in ("try_acquire", "release"):
        torchs = inspect.unwrap(getattr(file_baton.FileBaton, name))
        monkeypatch.setattr(file_baton.FileBaton, name, torchs)
    monkeypatch.setattr(build_locks, "INTERVAL", 0.01)
    said = Said()
    take_turns(said)
    take_turns(pytest.fail)
    return said


@pytest.fixture
def lock(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "with a space" / "cpu_adam"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder.parent))
    folder.mkdir(parents=True)
    return folder / "lock"


def in_time(wait: Callable[[], object]) -> None:
    """torch's own wait has no bound."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()


def acquired(lock: Path) -> file_baton.FileBaton:
    baton = file_baton.FileBaton(str(lock))
    in_time(baton.try_acquire)
    assert lock.exists()
    return baton


def test_the_lock_of_a_build_that_was_killed_is_taken_over(lock, said):
    killed_builder(lock, age=LONGEST - 100)
    said.then = lambda: os.utime(lock, (0, 0))  # its time is over
    baton = acquired(lock)
    assert 0 < int(re.search(r"removed in (\d+) s", said[0])[1]) <= 100
    assert said[0].endswith(f"rm '{lock}'") and said[1].startswith(f"{lock} ") and len(said) == 2
    baton.release()
    assert not lock.exists()


def test_a_build_that_goes_on_is_waited_for_until_it_is_killed(lock, said):
    with builder(lock) as process:
        os.utime(lock, (0, 0))
        said.then = process.kill
        acquired(lock).release()
        assert process.wait() == -9
    assert f"process {process.pid}," in said[0] and said[-1].startswith(f"{lock} ")


def test_a_build_that_ends_is_followed_by_the_next_one(lock, said):
    first = acquired(lock)
    threading.Timer(0.05, first.release).start()
    acquired(lock).release()
    assert said == []


def test_a_later_build_keeps_its_lock(lock, said):
    """Also where it is taken between the look and the removal, and has the number of the first."""
    lock.touch()
    left = lock.stat()
    time.sleep(0.05)  # a tick of the file system's clock, and many more
    lock.unlink()
    lock.touch()
    build_locks._remove(lock, left, said)
    assert lock.exists() and said == []


def test_a_build_whose_lock_was_taken_away_goes_on(lock, said):
    baton = acquired(lock)
    lock.unlink()
    baton.release()


@pytest.mark.slow
def test_who_waited_builds_what_was_not_built(lock, said, tmp_path):
    """torch itself would load a library that is not there."""
    (tmp_path / "op.cpp").write_text('extern "C" int answer() { return 42; }')
    killed_builder(lock, age=LONGEST)
    in_time(lambda: load("cpu_adam", [str(tmp_path / "op.cpp")], is_python_module=False))
    assert len(said) == 1 and list(lock.parent.glob("cpu_adam*.so"))


def test_the_default_folder_is_that_of_torch(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lock = Path(_get_build_directory("fused_adam", verbose=False), "lock")
    with lock.open("w"):
        assert left_locks() == []
    assert left_locks() == [lock]


def test_only_what_torch_made_is_called_left_and_doctor_names_it(lock, monkeypatch):
    assert list(doctor._build_locks()) == []
    lock.write_text("another program's")
    assert left_locks() == []
    lock.unlink()
    killed_builder(lock, age=0)
    (check,) = doctor._build_locks()
    assert check.state == doctor.PROBLEM and check.remedy.endswith(f"rm '{lock}'")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(lock))
    assert left_locks() == []
