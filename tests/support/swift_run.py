"""A way to run the real `swift rlhf` in a test, and to read what it logged."""

import json
import math
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SUPPORT = REPOSITORY / "tests" / "support"

# vLLM's CPU build; compiling two small functions of it would take longer than the few steps.
VLLM_ON_CPU = {
    "VLRFT_TEST_VLLM": "1",
    "VLLM_CPU_SGL_KERNEL": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


@dataclass
class Run:
    output: str
    folder: Path

    @property
    def steps(self) -> list[dict]:
        """The logged metrics of every training step."""
        return [row for row in self.rows if "reward" in row]

    @property
    def rows(self) -> list[dict]:
        """Everything that the trainer logged."""
        lines = (self.folder / "logging.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def metric(self, name: str) -> list[float]:
        return [float(step[name]) for step in self.steps]


def grpo_command(
    model: Path, dataset: str | Path, folder: Path, plugins: list[Path], *flags: str
) -> list[str]:
    return [
        *("swift", "rlhf", "--rlhf_type", "grpo", "--model", str(model), "--dataset", str(dataset)),
        *("--output_dir", str(folder), "--add_version", "false"),
        *("--external_plugins", str(REPOSITORY / "plugins" / "vlrft.py"), *map(str, plugins)),
        *("--reward_funcs", "vlrft_classification", "vlrft_format"),
        *(
            "--tuner_type",
            "full",
            "--torch_dtype",
            "float32",
            "--use_vllm",
            "false",
            "--use_cpu",
            "true",
        ),
        *(
            "--per_device_train_batch_size",
            "4",
            "--num_generations",
            "4",
            "--max_completion_length",
            "8",
        ),
        *(
            "--max_steps",
            "3",
            "--logging_steps",
            "1",
            "--learning_rate",
            "1e-3",
            "--max_length",
            "512",
        ),
        *(
            "--lr_scheduler_type",
            "constant",
            "--warmup_ratio",
            "0",
            "--beta",
            "0.04",
            "--top_k",
            "-1",
        ),
        *("--save_strategy", "no", "--report_to", "none", "--log_completions", "true"),
        *flags,
    ]


def run_swift(command: list[str], folder: Path, timeout: int = 900, **variables: str) -> Run:
    """Run to the end; fail with the output's tail where it ends with an error."""
    done = run_swift_unchecked(command, timeout, **variables)
    assert done.returncode == 0, done.stdout[-6000:]
    return Run(done.stdout, folder)


def run_swift_unchecked(
    command: list[str], timeout: int = 900, **variables: str
) -> subprocess.CompletedProcess:
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **variables,
    }
    if "NPROC_PER_NODE" in environment:  # two tests may run at a time
        environment = {"MASTER_PORT": free_port()} | environment
    return subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
    )


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def assert_trained(run: Run, steps: int) -> None:
    """Every step logged, rewards finite under their own names, and weights that moved."""
    assert len(run.steps) == steps
    for name in ("vlrft_classification", "vlrft_format"):
        assert all(0 <= value <= 1 for value in run.metric(f"rewards/{name}/mean"))
    assert all(math.isfinite(value) for value in run.metric("loss"))
    assert all(math.isfinite(value) and value > 0 for value in run.metric("grad_norm"))
