"""`vlrft agree` on what cannot be compared: one line that says where, or what to give."""

import json
from pathlib import Path

import pytest
from support.command_line import vlrft

CASES = list(map(json.loads, Path(__file__).with_name("refused.jsonl").open()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_bad_input_is_said_in_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("no command\n")
    (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    result = vlrft("agree", *case["words"], COLUMNS="200")
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert sum(case["said"] in line for line in result.output.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
