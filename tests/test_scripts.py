"""Every script of benchmarks/ and dev/ starts; what needs a GPU is rehearsed on a CPU."""

import json
import os
import subprocess
import sys

import pytest
from support.swift_run import HANGS, ON_CPU, REPOSITORY, forking

SCRIPTS = [*REPOSITORY.glob("benchmarks/*.py"), *REPOSITORY.glob("dev/*.py")]
ASKED = sorted(script for script in SCRIPTS if "argparse.Arg" in script.read_text())
pytestmark = pytest.mark.nightly


def run(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("script", ASKED, ids=lambda script: script.stem)
def test_a_script_says_what_it_takes(script):
    assert "--help" in run(script, "--help")


def test_what_a_card_is_asked_runs_on_a_cpu(tmp_path):
    """docs/project/on_a_card.md: "bash benchmarks/on_a_card.sh" """
    command = ["bash", str(REPOSITORY / "benchmarks" / "on_a_card.sh"), "--tiny"]
    variables = os.environ | ON_CPU | forking() | {"OUT": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, env=variables)
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
