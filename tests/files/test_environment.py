"""What libraries may say between a command's own lines."""

import logging
import os

import pytest

from swift_vlrft.files.environment import QUIET, errors_only


@pytest.mark.parametrize("told", [None, "INFO"])
def test_libraries_log_errors_alone_unless_more_is_asked_for(monkeypatch, caplog, told):
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    if told:
        monkeypatch.setenv("LOG_LEVEL", told)
    library = logging.getLogger("a library")
    library.setLevel(logging.INFO)  # its own level, set when it is imported
    before = dict(os.environ)
    with errors_only():
        library.warning("trust nobody")
        library.error("no such file")
        assert os.environ["LOG_LEVEL"] == (told or "ERROR")
    library.warning("after it")
    said = ["no such file", "after it"]
    assert caplog.messages == (["trust nobody", *said] if told else said)
    assert os.environ == before
