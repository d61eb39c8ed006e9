"""The `swift rlhf` command of the README as it stands, on CPU engines and a tiny model."""

import random
import re
import shlex

import pytest
from end_to_end.recipe_run import CPU, CPU_VLLM
from support.drawn_rows import boxed_rows
from support.swift_run import DEEPSPEED_ON_CPU, REPOSITORY, SUPPORT, VLLM_ON_CPU, run_swift

from tests.support.parquet import write_parquet

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]


def test_the_readme_command_trains(tiny_qwen2_5_vl, tmp_path):
    blocks = re.findall(r"```bash\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)
    (shown,) = [block for block in blocks if block.startswith("swift rlhf")]
    write_parquet(boxed_rows(random.Random(0), 16), tmp_path / "boxes")
    # Later flags win: what follows is only what a CPU without a network cannot do.
    overrides = [
        *(*CPU, *CPU_VLLM, "--vllm_max_model_len", "512", "--max_completion_length", "8"),
        *("--model", tiny_qwen2_5_vl, "--dataset", tmp_path / "boxes", "--use_hf", "false"),
        *("--output_dir", tmp_path / "run", "--add_version", "false", "--max_steps", "2"),
        *("--logging_steps", "1", "--save_strategy", "no", "--report_to", "none"),
        *("--external_plugins", REPOSITORY / "plugins" / "vlrft.py", SUPPORT / "cpu_engines.py"),
    ]
    command = f"{shown.strip()} {shlex.join(map(str, overrides))}"
    run = run_swift(
        ["bash", "-euo", "pipefail", "-c", command],
        tmp_path / "run",
        plain=True,  # the one colocated run under ZeRO-3 that starts every process anew
        NPROC_PER_NODE="2",
        MAX_PIXELS="401408",
        **DEEPSPEED_ON_CPU | VLLM_ON_CPU,
    )
    assert len(run.steps) == 2
    assert all(0 <= value <= 1 for value in run.metric("rewards/vlrft_format/mean"))
