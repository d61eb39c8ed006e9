"""The oldest and the newest packages that the metadata allows, each in its own environment."""

import math
import os
import shutil
import sys

import pytest
from support.swift_run import REPOSITORY, Run, grpo_command, run_command

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

RECIPE = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_lora_1x24g.sh"


@pytest.mark.parametrize("versions", ["lowest-direct", "highest"])
def test_oldest_and_newest_packages(versions, shapes, tmp_path):
    """Without vLLM and DeepSpeed, which stay the user's choice: `vlrft tiny`, `check`, `plan`, and
    a step of `swift rlhf` with the plugin of the installed package.
    """
    uv = shutil.which("uv") or str(REPOSITORY / ".uv" / "bin" / "uv")
    programs = tmp_path / "environment" / "bin"
    own = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "DS_BUILD_OPS": "0"}

    def done(*command, code=0):
        ended = run_command(command, plain=True, **own)
        assert ended.returncode == code, ended.stdout[-6000:]
        return ended.stdout

    python = ("--python", programs / "python")
    try:
        done(uv, "venv", "-q", "--python", sys.executable, programs.parent)
        done(uv, "pip", "install", *python, "--resolution", versions, f"{REPOSITORY}[swift]")
        model, plugin = tmp_path / "model", done(programs / "vlrft", "plugin").split()[-1]
        done(programs / "vlrft", "tiny", "qwen2_5_vl", model)
        problems = done(programs / "vlrft", "check", RECIPE, code=1)
        assert problems.count("problem  ") == 1 and "needs vllm" in problems
        assert "fits" in done(programs / "vlrft", "plan", RECIPE, "--gpus", "1x24")
        command = grpo_command(model, shapes, tmp_path / "out", "--max_steps", "1")
        done(programs / "swift", *command[1:], "--external_plugins", plugin)
    finally:
        shutil.rmtree(programs.parent, ignore_errors=True)
    (step,) = Run("", tmp_path / "out").steps
    assert math.isfinite(step["loss"]) and "rewards/vlrft_format/mean" in step
