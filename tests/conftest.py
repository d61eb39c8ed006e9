"""Tests run in random order, each with folders of its own. Property tests try the same examples at
every run.
"""

import os
import re
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from support.own import own_folders

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
NUMBERS = count()
TOGETHER = tuple(f"test_{name}.py" for name in ("hub", "model_evaluation", "glm_4v", "wheel"))
UNTIL = float(os.environ.get("NIGHTLY_UNTIL", "inf"))


def pytest_ignore_collect(collection_path, config):
    """A file whose tests are all left out is not imported: many import ms-swift."""
    wanted = config.option.markexpr
    if not wanted or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text()
    (of_the_file,) = re.findall("^pytestmark = (.*)", text, re.M) or [""]
    left_out = any(f"not {mark}" in wanted for mark in re.findall(r"mark\.(\w+)", of_the_file))
    first = wanted.split()[0]
    return left_out or (first in ("end_to_end", "nightly") and first not in text) or None


def pytest_xdist_make_scheduler(config, log):
    """Files whose tests share what takes long to make stay with one worker.

    xdist 3.8 writes its groups into a field that pytest 9.2 no longer reads: none of them held.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return file if file.endswith(TOGETHER) else nodeid

    config.option.loadscopereorder = False  # the longest first
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_runtest_setup(item):
    if item.get_closest_marker("nightly") and time.time() > UNTIL:
        pytest.skip("not begun: the machine is slow, and the time for nightly tests is over")


def pytest_terminal_summary(terminalreporter):
    """The header, which says it, too, is not there with -q."""
    seed = terminalreporter.config.option.random_order_seed.removeprefix("default:")
    terminalreporter.write_line(f"in random order; again: --random-order-seed {seed}")


@pytest.fixture(autouse=True, scope="session")
def worker_folders(tmp_path_factory, request):
    """Folders for the fixtures that several tests share. What uv has downloaded stays."""
    os.environ.setdefault("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    os.environ.update(own_folders(tmp_path_factory.getbasetemp() / "own"))
    yield
    quick = "not slow" in request.config.option.markexpr
    assert not (quick and "torch" in sys.modules), "a test that imports torch is a slow one"


@pytest.fixture(autouse=True)
def own_environment(tmp_path_factory):
    """Folders of the test's own, and no variable of the test before it: a command that is run in
    this process sets LOG_LEVEL, say.
    """
    before = dict(os.environ)
    os.environ.update(own_folders(tmp_path_factory.getbasetemp() / f"own{next(NUMBERS)}"))
    if "datasets" in sys.modules:  # which reads its variable once
        sys.modules["datasets"].config.HF_DATASETS_CACHE = Path(os.environ["HF_DATASETS_CACHE"])
    yield
    os.environ.clear()
    os.environ.update(before)
