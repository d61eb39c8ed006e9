"""`vlrft try` with somebody's COCO file, as a newcomer runs it."""

import json
import shlex
import subprocess
import sys

import pytest
import torch
from end_to_end.recipe_run import CPU, CPU_VLLM, SUPPORT
from support.command_line import vlrft
from support.swift_run import DEEPSPEED_ON_CPU, VLLM_ON_CPU, run_environment

from swift_vlrft.demo import card, training, trial, warm_start
from swift_vlrft.files.environment import BARS
from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.tiny.compact import SIZE
from tests.support.drawn_rows import write_coco

pytestmark = pytest.mark.end_to_end

SHORT = """
from msgspec.structs import replace
from swift_vlrft.cli import app
from swift_vlrft.demo import trial
run = trial.run_trial
trial.run_trial = lambda config, *more: run(replace(config, warm_steps=120), *more)
app()
"""


def test_own_coco_data_go_the_whole_road(tmp_path, monkeypatch):
    """README: "vlrft try instances_train.json --family qwen2_5_vl"."""
    write_coco(tmp_path, 60)
    (tmp_path / "7.png").write_bytes(b"broken")
    monkeypatch.chdir(tmp_path)
    command = ["try", "instances_train.json", "--family", "qwen2_5_vl", "--steps", "6"]
    # A process that imports all itself: whether libraries draw bars is settled then. What it runs
    # is forked. The start model learns no more than the format: test_the_demo_learns.
    short = [sys.executable, "-c", SHORT]
    environment = {n: v for n, v in run_environment().items() if n not in BARS}
    done = subprocess.run([*short, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = " ".join((done.stderr + done.stdout).split())
    assert not any(noise in out for noise in ("WARNING", "Loading weights", "Generating train"))
    assert "left out: 1, such as" in out and "7.png" in out
    assert "vlrft_detection_iou_soft 0." in out and "6 steps" in out
    assert any(f"detection: {word}:" in out for word in ("better", "not proven", "worse"))
    assert "rows): AP 0." in out and "rows): vlrft_detection_iou_soft 0." in out
    assert "--model Qwen/Qwen2.5-VL-3B-Instruct --task detection" in out
    folder = tmp_path / "runs" / "try" / "instances_train"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["train"] == {"detection": 47} and summary["test"] == {"detection": 12}
    assert summary["format"]["first"] > 0.8, "the start model writes the format"
    assert "generation<td>" in (folder / "report.html").read_text(), "seconds of a step by part"
    # The last line is a command that works.
    last = vlrft(*shlex.split(out.split("A script for real GPUs: vlrft ")[1]))
    assert last.exit_code == 0 and "written: run.sh" in last.output, last.output
    # The same command again goes on behind the last whole stage.
    log = (folder / "grpo" / "logging.jsonl").stat().st_mtime_ns
    (folder / "summary.json").unlink()
    assert subprocess.run([*short, *command], env=environment).returncode == 0
    assert (folder / "grpo" / "logging.jsonl").stat().st_mtime_ns == log
    again = json.loads((folder / "summary.json").read_text())
    assert again["tasks"] == summary["tasks"]


@pytest.mark.nightly
def test_the_road_on_a_card_with_the_engines_of_a_cpu(forked_runs, tmp_path, monkeypatch):
    """All but sleep: nvidia-smi and sizes are made up, and flags say what a CPU cannot do."""
    write_coco(tmp_path, 60)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(card, "ask_gpus", lambda *_: [["0", "H100", "81559", "4", "9.0"]])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(card, "SIZES", (SIZE,))
    monkeypatch.setattr(card, "WARM_STEPS", 40)
    plugins = (str(shipped_file("plugins", "vlrft.py")), str(SUPPORT / "cpu_engines.py"))
    hidden = DEEPSPEED_ON_CPU | VLLM_ON_CPU | {"CUDA_VISIBLE_DEVICES": ""}

    def on_cpu(command, out, **variables):
        flags = [*CPU, "--external_plugins", *plugins, *CPU_VLLM * (out.name == "grpo")]
        return training.training([*command, *flags], out, **variables | hidden)

    for module in (trial, warm_start):
        monkeypatch.setattr(module, "training", on_cpu)
    command = "try instances_train.json --family qwen2_5_vl --steps 2 --device cuda"
    done = vlrft(*command.split())
    assert done.exit_code == 0, done.output
    folder = tmp_path / "runs" / "try" / "instances_train"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["device"] == "H100" and summary["tasks"]["detection"]["held_out"]
    args = json.loads((folder / "grpo" / "args.json").read_text())
    assert args["vllm_mode"] == "colocate" and args["deepspeed"] and args["offload_optimizer"]
    page = (folder / "report.html").read_text()
    assert all(f"<th>{part}<td>" in page for part in ("generation", "weight sync", "backward"))
