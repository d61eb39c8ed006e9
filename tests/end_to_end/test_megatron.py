"""Megatron, as far as a machine without a GPU goes: `megatron rlhf` in two processes, and the flags
that `vlrft check` knows of it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.swift_run import ON_CPU, REPOSITORY, free_port

from swift_vlrft.recipe import facts as shipped

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

# What ms-swift's extra [megatron] asks for, beside what is installed.
PACKAGES = ("megatron-core==0.16.1", "mcore-bridge==1.6.5")
HERE = Path(__file__).parent
PLUGIN = REPOSITORY / "plugins" / "vlrft.py"
NAMES = ("vlrft_classification", "vlrft_format")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    uv = shutil.which("uv") or REPOSITORY / ".uv" / "bin" / "uv"
    if not Path(uv).is_file():
        pytest.skip("uv is not installed: make env gets it")
    folder = tmp_path_factory.mktemp("packages")
    install = [uv, "pip", "install", "-q", "--python", sys.executable, "--no-deps"]
    done = subprocess.run([*install, "--target", folder, *PACKAGES], capture_output=True, text=True)
    if "error sending request" in done.stderr:
        pytest.skip(f"no package index: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    yield folder
    shutil.rmtree(folder)  # 200 MB


def ran(command, packages: Path, **variables: str):
    """To its end, whatever that is; its processes end with it."""
    paths = [str(HERE / "megatron_site"), str(REPOSITORY), str(packages)]
    environment = os.environ | ON_CPU | {"MASTER_PORT": free_port()} | variables
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=900,
    )


def test_megatron_loads_our_plugin_and_rows(tiny_qwen2_5_vl, shapes, packages, tmp_path):
    """Two processes get as far as the model, whose layers are TransformerEngine's."""
    command = [
        *("megatron", "rlhf", "--rlhf_type", "grpo", "--model", tiny_qwen2_5_vl),
        *("--dataset", f"{shapes}:pixels", "--external_plugins", PLUGIN, "--reward_funcs", *NAMES),
        *("--output_dir", tmp_path / "out", "--add_version", "false", "--report_to", "none"),
        *("--micro_batch_size", 1, "--global_batch_size", 8, "--num_generations", 4),
        *("--train_iters", 1, "--vllm_mode", "colocate", "--ddp_backend", "gloo"),
        *("--max_length", 512, "--max_completion_length", 8, "--torch_dtype", "float32"),
    ]
    done = ran(command, packages, NPROC_PER_NODE="2")
    said = done.stdout + done.stderr
    assert "TP: 1, PP: 1" in said, said[-5000:]
    assert "16 of 16 rows train (16 classification)" in said
    assert "in get_gpt_layer_with_transformer_engine_spec" in said, said[-5000:]


def test_the_shipped_flags_of_megatron_are_ms_swifts(packages):
    done = ran([sys.executable, "-m", "swift_vlrft.swift_plugin.facts"], packages)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)["commands"]
    assert found == json.loads(shipped.SHIPPED.read_text())["commands"]
