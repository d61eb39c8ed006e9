"""The `swift rlhf` command of the README as it stands, on CPU engines and a tiny model."""

import random
import re
import shlex

import pytest
from support.drawn_rows import boxed_rows
from support.swift_run import (
    DEEPSPEED_ON_CPU,
    REPOSITORY,
    SUPPORT,
    VLLM_ON_CPU,
    Run,
    run_swift_unchecked,
)

from tests.support.parquet import write_parquet

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]


def test_the_readme_command_trains(tiny_qwen2_5_vl, tmp_path):
    blocks = re.findall(r"```bash\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)
    (shown,) = [block for block in blocks if block.startswith("swift rlhf")]
    plugins = f"{REPOSITORY / 'plugins' / 'vlrft.py'} {SUPPORT / 'cpu_engines.py'}"
    write_parquet(boxed_rows(random.Random(0), 16), tmp_path / "boxes")
    # Later flags win: what follows is only what a CPU without a network cannot do.
    overrides = {
        "model": tiny_qwen2_5_vl,
        "dataset": tmp_path / "boxes",
        "use_hf": "false",
        "output_dir": tmp_path / "run",
        "add_version": "false",
        "use_cpu": "true",
        "vllm_enforce_eager": "true",
        "dataloader_num_workers": 0,  # see tests/support/swift_run.py
        "vllm_max_model_len": 512,
        "max_completion_length": 8,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
    }
    command = shown.replace("\\\n", " ").strip()
    command += "".join(f" --{name} {shlex.quote(str(value))}" for name, value in overrides.items())
    command += f" --external_plugins {plugins}"
    done = run_swift_unchecked(
        ["bash", "-euo", "pipefail", "-c", command],
        plain=True,  # the one colocated run under ZeRO-3 that starts every process anew
        NPROC_PER_NODE="2",
        MAX_PIXELS="401408",
        **DEEPSPEED_ON_CPU,
        **VLLM_ON_CPU,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    run = Run(done.stdout, tmp_path / "run")
    assert len(run.steps) == 2
    assert all(0 <= value <= 1 for value in run.metric("rewards/vlrft_format/mean"))
