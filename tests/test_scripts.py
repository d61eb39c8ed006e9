"""Every script of benchmarks/ and dev/ starts; what needs a GPU is rehearsed on a CPU."""

import json
import sys

import pytest
from support.swift_run import REPOSITORY, run_command

SCRIPTS = [*REPOSITORY.glob("benchmarks/*.py"), *REPOSITORY.glob("dev/*.py")]
ASKED = sorted(script for script in SCRIPTS if "argparse.Arg" in script.read_text())
pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("script", ASKED, ids=lambda script: script.stem)
def test_a_script_says_what_it_takes(script):
    done = run_command([sys.executable, script, "--help"], apart=True, plain=True)
    assert done.returncode == 0 and "--help" in done.stdout, done.stderr[-3000:]


def test_what_a_card_is_asked_runs_on_a_cpu(tmp_path):
    """docs/project/on_a_card.md: "bash benchmarks/on_a_card.sh" """
    script = REPOSITORY / "benchmarks" / "on_a_card.sh"
    done = run_command(["bash", script, "--tiny"], apart=True, OUT=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    seeds = (tmp_path / "seeds.md").read_text()
    assert "| drawn | 0 | cpu | 0." in seeds and "| coins | 0 | cpu | 0." in seeds
    assert "vlrft_detection_iou_soft" in (tmp_path / "curve.svg").read_text()
    lines = (tmp_path / "parts.jsonl").read_text().splitlines()
    ours, stock, ratios = map(json.loads, lines)
    for result in (ours, stock):
        assert len(result["step_seconds"]) == 3 and set(result["completion_tokens"]) == {8}
        assert result["measured"]["backward_seconds"] > 0 and result["compared"] == []
    assert "ms-swift" in stock["recipe"] and "ms-swift" not in ours["recipe"]
    assert ratios["stock / ours"]["forward"] > 0
