"""Every script of benchmarks/ and dev/ starts; what needs a GPU is rehearsed on a CPU."""

import json
import subprocess
import sys

import pytest
from support.swift_run import REPOSITORY

SCRIPTS = [*REPOSITORY.glob("benchmarks/*.py"), *REPOSITORY.glob("dev/*.py")]
ASKED = sorted(script for script in SCRIPTS if "argparse.Arg" in script.read_text())
pytestmark = pytest.mark.nightly


def run(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("script", ASKED, ids=lambda script: script.stem)
def test_a_script_says_what_it_takes(script):
    assert "--help" in run(script, "--help")


def test_a_recipe_runs_beside_its_plan(tmp_path):
    recipe = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_lora_1x24g.sh"
    script = REPOSITORY / "benchmarks" / "gpu_recipe.py"
    asked = ("--tiny", "--steps", "2", "--out", tmp_path, "--num_iterations", "1")
    result = json.loads(run(script, recipe, *asked).splitlines()[-1])
    assert len(result["step_seconds"]) == 2 and result["flags"] == ["--num_iterations", "1"]
    assert result["measured"]["backward_seconds"] > 0 and result["compared"] == []
