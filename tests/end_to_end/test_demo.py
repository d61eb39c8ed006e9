"""`make demo`, as a newcomer runs it."""

import json
import re

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app

pytestmark = pytest.mark.end_to_end


def test_the_demo_learns(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert re.search(r"reward 0\.\d\d -> [01]\.\d\d in \d+ steps, \d+ s", result.output)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["reward_first"] <= 0.4
    assert summary["reward_last"] >= 0.8
    assert summary["held_out_after"] >= max(0.8, summary["held_out_before"] + 0.2)
    # The evaluation through ms-swift's engine ends the demo, and says the same.
    assert re.search(r"evaluation: accuracy 0\.\d\d -> [01]\.\d\d, difference \+", result.output)
    assert summary["metric_after"] == pytest.approx(summary["held_out_after"])
    assert summary["difference_95"][0] > 0
    page = (tmp_path / "report.html").read_text()
    assert f"report: {tmp_path}/report.html" in result.output
    assert "data:image/png;base64," in page and "Largest gain" in page
    # README: "vlrft eval compare runs/demo/eval/before runs/demo/eval/after" and the report
    before, after = (str(tmp_path / "eval" / name) for name in ("before", "after"))
    compared = CliRunner().invoke(app, ["eval", "compare", before, after])
    assert compared.exit_code == 0 and "became right" in compared.output
    again = ["report", str(tmp_path / "grpo"), "--eval", before, "--eval", after]
    assert CliRunner().invoke(app, again).exit_code == 0
    for picture in ("reward.png", "answers.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    # README: "vlrft score runs/demo/grpo/completions.jsonl --show 3"
    log = tmp_path / "grpo" / "completions.jsonl"
    scored = CliRunner().invoke(app, ["score", str(log), "--show", "3"])
    assert scored.exit_code in (0, 1) and "vlrft_classification" in scored.output
