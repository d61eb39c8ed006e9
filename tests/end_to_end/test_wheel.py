"""What a person has after `pip install` of the wheel: outside the repository, in any folder."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.swift_run import REPOSITORY

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel, made of the sdist and unpacked; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(REPOSITORY)], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:  # what pip does with a pure-Python wheel
        archive.extractall(folder / "site")
    return folder / "site"


def vlrft(installed: Path, cwd: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from swift_vlrft.cli import app; app()", *arguments],
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_archives_hold(installed):
    """What PyPI and pip object to is asked by `make dist`."""
    (sdist,) = installed.parent.glob("*.tar.gz")
    assert (installed / "swift_vlrft" / "py.typed").exists()
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "Makefile", "tests/conftest.py", "requirements/cpu.txt"} <= names


def test_the_plugin_path_works_from_any_folder(installed, tmp_path):
    plugin = Path(vlrft(installed, tmp_path, "plugin").strip())
    assert plugin.is_file() and installed in plugin.parents
    code = (
        "from swift.utils import import_external_file; from swift.rewards import orms;"
        f"import_external_file({str(plugin)!r}); import swift_vlrft;"
        "print(swift_vlrft.__file__); print('vlrft_detection_iou' in orms)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    where, known = done.stdout.strip().splitlines()[-2:]
    assert known == "True" and str(installed) in where
