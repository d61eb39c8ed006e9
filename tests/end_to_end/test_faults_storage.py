"""Files that change and go while `swift` trains on them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.swift_run import grpo_command, run_swift_unchecked

from swift_vlrft.demo.rows import Row, stored
from tests.support.parquet import write_parquet

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

FAULTS = Path(__file__).parent / "plugins" / "faults_storage.py"
LORA = ("--tuner_type", "lora", "--beta", "0")


def written(folder: Path, rows: list[Row]) -> Path:
    """Rows of JSON Lines with a file for each picture."""
    lines = []
    for n, row in enumerate(rows):
        row.image.save(folder / f"{n}.png")
        line = {"image": f"{n}.png", "problem": row.problem, "solution": row.solution}
        lines.append(json.dumps(line) + "\n")
    (folder / "rows.jsonl").write_text("".join(lines))
    return folder / "rows.jsonl"


def test_files_that_change_and_go_while_a_run_reads_them(tiny_qwen2_5_vl, rows, tmp_path):
    rows = rows[:12]
    write_parquet(rows, tmp_path / "parquet")
    sets = [str(tmp_path / "parquet"), str(written(tmp_path, rows))]
    (tmp_path / "other").mkdir()
    written(tmp_path / "other", [replace(row, image=row.image.rotate(90)) for row in rows])
    (tmp_path / "5.png").write_bytes(stored(rows[5])["image"]["bytes"][:60])
    command = grpo_command(
        tiny_qwen2_5_vl, sets[0], tmp_path / "out", [FAULTS], *LORA, "--callbacks", "fault"
    )
    command += ["--dataset", *sets, "--max_steps", "6"]
    ended = run_swift_unchecked(command, VLRFT_TEST_FAULT="files")
    assert "rows.jsonl, row 5: the image" in ended.stdout and "is broken" in ended.stdout
    # Other pictures are trained on; the Parquet shard that went ends the run.
    assert ended.returncode == 1
    assert f"FileError: {tmp_path}/parquet/" in ended.stdout and "cannot be read" in ended.stdout


def test_an_image_that_is_deleted_while_a_run_trains(tiny_qwen2_5_vl, rows, tmp_path):
    model, data = tiny_qwen2_5_vl, written(tmp_path, rows)
    command = grpo_command(model, data, tmp_path / "out", [FAULTS], *LORA, "--callbacks", "fault")
    ended = run_swift_unchecked(command, VLRFT_TEST_FAULT="image")
    assert ended.returncode == 1
    last = ended.stdout.strip().splitlines()[-1]
    assert f"DataError: {data}, row " in last and ".png does not exist" in last
