"""Files that go while `swift` trains on them."""

import re
from pathlib import Path

import pytest
from support.swift_run import grpo_command, run_command
from support.written_sets import write_rows

from swift_vlrft.demo.rows import stored
from tests.support.parquet import write_parquet

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

PLUGINS = [Path(__file__).parent / "plugins" / "faults_storage.py"]
FLAGS = ("--tuner_type", "lora", "--beta", "0", "--callbacks", "fault", "--max_steps", "12")


@pytest.mark.parametrize(
    ("going", "said"),
    [
        ("parquet/*", "FileError: {}/parquet/.*cannot be read"),
        ("*.png", r"DataError: {}/rows.jsonl, row .*\.png does not exist.*$"),
    ],
)
def test_files_that_go_while_a_run_reads_them(going, said, tiny_qwen2_5_vl, rows, tmp_path):
    """And one picture that is cut off before."""
    lines = []
    for n, row in enumerate(rows[:12]):
        row.image.save(tmp_path / f"{n}.png")
        lines.append({"image": f"{n}.png", "problem": row.problem, "solution": row.solution})
    write_rows(tmp_path / "rows.jsonl", *lines)
    (tmp_path / "5.png").write_bytes(stored(rows[5])["image"]["bytes"][:60])
    write_parquet(rows[:12], tmp_path / "parquet")
    sets = f"{tmp_path}/rows.jsonl", f"{tmp_path}/parquet"
    flags = (*FLAGS, "--dataset", *sets)
    command = grpo_command(tiny_qwen2_5_vl, sets[0], tmp_path / "out", *flags, plugins=PLUGINS)
    ended = run_command(command, VLRFT_TEST_FAULT=going)
    assert "rows.jsonl, row 5: the image" in ended.stdout and "is broken" in ended.stdout
    assert ended.returncode == 1
    assert re.search(said.format(tmp_path), ended.stdout.strip())
