"""A tiny checkpoint and a tiny data set, made once for all end-to-end tests."""

import random
from pathlib import Path

import pytest
from support.raised_row import raise_row
from support.swift_run import run_environment

from swift_vlrft.demo.rows import Row, colour_rows
from swift_vlrft.tiny.checkpoint import write_tiny
from tests.support.parquet import write_parquet

# Two run at a time: the longest first, so that none is left alone at the end.
LONGEST = (
    *("test_a_rollout_server_is_killed", "test_the_notebook_runs"),
    *("test_the_demo_learns", "test_server_and_trainer", "test_own_coco_data"),
    *("test_a_server_that_sees", "reward hang"),
    *("detection_4x80g", "detection_8x24g", "test_two_nodes", "test_the_readme_command_trains"),
    *("test_turns_and_pictures", "test_the_trainer_sees", "test_three_tasks_in_three_forms"),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        found = [n for n, name in enumerate(LONGEST) if name in item.name]
        return found[0] if found else len(LONGEST)

    items.sort(key=place)


@pytest.fixture
def forked_runs(monkeypatch):
    """What this process starts has the environment of a run."""
    for name, value in run_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def tiny_qwen2_5_vl(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "qwen2_5_vl"
    write_tiny("qwen2_5_vl", folder)
    return folder


@pytest.fixture(scope="session")
def writing_images(tiny_qwen2_5_vl, tmp_path_factory) -> Path:
    """The same model, which writes tokens of images."""
    folder = tmp_path_factory.mktemp("tiny") / "writing_images"
    return raise_row(tiny_qwen2_5_vl, folder, "<|image_pad|>", 6.0)


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    return colour_rows(random.Random(0), 16)


@pytest.fixture(scope="session")
def shapes(tmp_path_factory, rows) -> Path:
    folder = tmp_path_factory.mktemp("data") / "any name at all"
    write_parquet(rows, folder)
    return folder
