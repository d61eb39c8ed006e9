"""ms-swift's other engines, as far as a machine without a GPU goes: `swift sft` on Ray with two
workers, the driver of Megatron on Ray, and `megatron rlhf` in two processes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from support.own import free_port
from support.swift_run import ON_CPU, REPOSITORY

from swift_vlrft.recipe import facts as shipped
from swift_vlrft.rewards import REWARDS

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly]

# What ms-swift's extras [ray] and [megatron] ask for, beside what is installed.
PACKAGES = ("ray==2.60.0", "megatron-core==0.16.1", "mcore-bridge==1.6.5")
HERE = Path(__file__).parent
PLUGIN = REPOSITORY / "plugins" / "vlrft.py"
NAMES = ("vlrft_classification", "vlrft_format")

CLUSTER = """
set -e
ip link set lo up && ip addr add 10.9.0.1/32 dev lo
ray() { python -m ray.scripts.scripts "$@"; }
trap 'ray stop --force' EXIT
ray start --head --num-gpus=2 --num-cpus=8 --node-ip-address=10.9.0.1 --port=6379 \
  --include-dashboard=false --temp-dir="$1" --object-store-memory=100000000
RAY_ADDRESS=10.9.0.1:6379 "${@:2}"
"""
"""A cluster of two GPUs that are not there, in a network of its own."""


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


def ran(command, packages: Path, timeout: int = 900, answers: str = "", **variables: str):
    """To its end, whatever that is; its processes end with it."""
    paths = [str(HERE / "megatron_site"), str(REPOSITORY), str(packages)]
    environment = os.environ | ON_CPU | {"MASTER_PORT": free_port()} | variables
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(word) for word in command],
        input=answers,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def alone() -> list[str]:
    """A network and processes of its own; the latter end with the first of them."""
    words = ["unshare", *["--map-root-user"] * (os.geteuid() != 0), "--net", "--pid", "--fork"]
    words += ["--kill-child", "--mount-proc"]
    if not shutil.which("ip") or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    return words


def test_supervised_on_ray_with_two_workers(tiny_qwen2_5_vl, shapes, packages, tmp_path):
    """Their command line is not the driver's: before, they read a local set as ms-swift does."""
    group = {"device": "GPU", "ranks": 2, "workers": ["default"]}
    out = tmp_path / "out"
    command = [
        *("swift", "sft", "--use_ray", "true"),
        *("--device_groups", json.dumps({"nproc_per_node": 2, "default": group})),
        *("--model", tiny_qwen2_5_vl, "--external_plugins", PLUGIN),
        *("--dataset", f"{shapes}:pixels", "--val_dataset", f"{shapes}:pixels#4"),
        *("--output_dir", out, "--add_version", "false", "--save_strategy", "no"),
        *("--tuner_type", "full", "--torch_dtype", "float32", "--use_cpu", "true"),
        *("--per_device_train_batch_size", 2, "--gradient_accumulation_steps", 1),
        *("--max_steps", 2, "--logging_steps", 1, "--dataloader_num_workers", 0),
        *("--eval_strategy", "steps", "--eval_steps", 2, "--predict_with_generate", "true"),
        *("--max_new_tokens", 4, "--eval_metric", NAMES[0], "--metric_for_best_model", NAMES[0]),
        *("--report_to", "none"),
    ]
    space = alone()
    folder = tempfile.mkdtemp(prefix="ray-")  # short: the paths of its sockets are
    given = {"CUDA_VISIBLE_DEVICES": "0,1", "RAY_memory_monitor_refresh_ms": "0"}
    given |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}
    try:
        done = ran([*space, "bash", "-c", CLUSTER, "ray", folder, *command], packages, **given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    workers = set(re.findall(r"\(SwiftSft pid=(\d+)\)", said))
    assert len(workers) == 2
    assert "(SwiftSft pid" in next(line for line in said.splitlines() if "16 rows train" in line)
    rows = [json.loads(line) for line in (out / "logging.jsonl").read_text().splitlines()]
    (measured,) = [row for row in rows if f"eval_{NAMES[0]}" in row]
    assert measured["epoch"] == 0.5  # 2 steps of 2 workers with 2 rows, of 16
    answers = [json.loads(line) for line in (out / "predict.jsonl").read_text().splitlines()]
    assert {row["labels"] for row in answers} <= {row["solution"] for row in answers}
    scores = [REWARDS[NAMES[0]]([row["response"]], [row["solution"]])[0] for row in answers]
    assert float(measured[f"eval_{NAMES[0]}"]) == pytest.approx(sum(scores) / len(scores))


CONFIGURATION = {
    "rlhf_type": "grpo",
    "reward_funcs": [*NAMES],
    "micro_batch_size": 1,
    "global_batch_size": 8,
    "num_generations": 4,
    "num_train_epochs": 1,
    "max_length": 512,
    "max_completion_length": 8,
    "torch_dtype": "float32",
    "colocate_groups": [["train", "rollout"]],
    "train": {"gpus": 2, "tuner_type": "full"},
    "rollout": {"gpus": 2, "vllm_tensor_parallel_size": 1},
}


def test_megatron_on_ray_scores_our_rows(tiny_qwen2_5_vl, shapes, packages, tmp_path, rows):
    """The driver loads the rows and scores the answers; its flags are in the configuration."""
    path = tmp_path / "cfg.yaml"
    ours = {"external_plugins": str(PLUGIN), "model": str(tiny_qwen2_5_vl)}
    ours |= {"dataset": f"{shapes}:pixels", "output_dir": str(tmp_path / "out")}
    path.write_text(yaml.safe_dump({**CONFIGURATION, **ours}))
    answers = [f"<think>t</think>{row.solution}" for row in rows]
    answers[:3] = ["<answer>black</answer>", "", rows[2].solution]
    script = HERE / "ray_driver.py"
    done = ran([sys.executable, script, "--config", path], packages, answers=json.dumps(answers))
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["names"] == [*NAMES]
    scores = [REWARDS[name](answers, found["solutions"]) for name in NAMES]
    assert found["scores"] == [list(pair) for pair in zip(*scores, strict=True)]
    assert {*scores[0]} == {0.0, 1.0}
    assert found["iterations"] == 16 * 4 // 8


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
