"""What a killed build of torch's extensions leaves is named, and what a living one holds is not."""

from pathlib import Path

import pytest
from support.killed_build import builder, killed_builder
from torch.utils.cpp_extension import _get_build_directory

from swift_vlrft.diagnostics import doctor
from swift_vlrft.diagnostics.build_locks import left_locks


@pytest.fixture
def lock(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "with a space" / "cpu_adam"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder.parent))
    folder.mkdir(parents=True)
    return folder / "lock"


def test_a_build_that_goes_on_is_not_called_left_until_it_is_killed(lock):
    with builder(lock) as process:
        assert left_locks() == []
        process.kill()
    assert left_locks() == [lock]


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
    killed_builder(lock)
    (check,) = doctor._build_locks()
    assert check.state == doctor.PROBLEM and check.remedy.endswith(f"rm '{lock}'")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(lock))
    assert left_locks() == []
