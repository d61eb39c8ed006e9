"""The documentation site is built without a warning: mkdocs follows every link and anchor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]


def test_it_is_built_without_a_warning_and_fetches_nothing_from_another_host(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    assert 'lang="en"' in (tmp_path / "index.html").read_text()
    assert 'lang="zh-CN"' in (tmp_path / "README_CN" / "index.html").read_text()
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert ' src="http' not in text and 'rel="stylesheet" href="http' not in text, page
