"""Property tests try the same examples at every run: `make fuzz` is where luck is wanted."""

import os
import time

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


UNTIL = float(os.environ.get("NIGHTLY_UNTIL", "inf"))


def pytest_runtest_setup(item):
    if item.get_closest_marker("nightly") and time.time() > UNTIL:
        pytest.skip("not begun: the machine is slow, and the time for nightly tests is over")


@pytest.fixture(autouse=True)
def environment_restored():
    """A command that is run in this process sets LOG_LEVEL, say: not for the tests after it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
