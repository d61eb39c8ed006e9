"""What a person has after `pip install` of the wheel: outside the repository, in any folder."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.swift_run import REPOSITORY

pytestmark = pytest.mark.end_to_end


def test_the_archives_and_the_plugin_path_work_from_any_folder(tmp_path):
    """The wheel is made of the sdist; its dependencies are this environment's. What PyPI and pip
    object to is asked by `make dist`.
    """
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, REPOSITORY]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "Makefile", "tests/conftest.py", "requirements/cpu.txt"} <= names
    site, here = tmp_path / "site", tmp_path / "here"
    with zipfile.ZipFile(wheel) as archive:  # what pip does with a pure-Python wheel
        archive.extractall(site)
    assert (site / "swift_vlrft" / "py.typed").exists()
    here.mkdir()

    def last_lines(code: str, *arguments: str) -> list[str]:
        environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(here)}
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip().splitlines()[-2:]

    (said,) = last_lines("from swift_vlrft.cli import app; app()", "plugin")
    plugin = Path(said)
    assert plugin.is_file() and site in plugin.parents
    where, known = last_lines(
        "from swift.utils import import_external_file; from swift.rewards import orms;"
        f"import_external_file({said!r}); import swift_vlrft;"
        "print(swift_vlrft.__file__); print('vlrft_detection_iou' in orms)"
    )
    assert known == "True" and str(site) in where
