"""Ways to run the real `swift rlhf` and `vlrft` in a test, and to read what a run logged."""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.own import free_port

from swift_vlrft.files.environment import BARS

HANGS = 1800  # seconds: beside eight busy loops a run of 300 takes five times as long
VLRFT = str(Path(sys.executable).with_name("vlrft"))
REPOSITORY = Path(__file__).resolve().parents[2]
SUPPORT = REPOSITORY / "tests" / "support"
# For a run's Python: sitecustomize.py, and `support` for the plugins there.
TRAINER_PATH = os.pathsep.join(
    [str(SUPPORT / "trainer_site"), str(SUPPORT.parent), os.environ.get("PYTHONPATH", "")]
).rstrip(os.pathsep)

# For every run alike, so that one fork server will do: what imports read.
ON_CPU = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Compiling two small functions of vLLM would take longer than the few steps.
    "TORCH_COMPILE_DISABLE": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    # What importing cv2 and torch's inductor sets, as it was before.
    "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    **dict.fromkeys(BARS, "1"),  # as `vlrft` hides them
    # The models and the data are files. ms-swift asks ModelScope for news of them all the same:
    # without a network it would go on asking for 22 seconds, in every process.
    "USE_HF": "1",
    "HF_HUB_OFFLINE": "1",
    "API_HTTP_CLIENT_MAX_RETRIES": "0",
    "MODELSCOPE_API_MAX_RETRIES": "1",
    "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1",
}
COLOCATED = (
    *("--use_vllm", "true", "--vllm_mode", "colocate", "--vllm_max_model_len", "512"),
    *("--vllm_enforce_eager", "true"),
)
# A random model earns nothing: every second completion earns the coin (`cpu_engines.py`).
COIN = ("--reward_funcs", "vlrft_classification", "vlrft_format", "coin")
# Which of `cpu_engines.py` is wanted.
VLLM_ON_CPU = {"VLRFT_TEST_VLLM": "1"}
DEEPSPEED_ON_CPU = {"VLRFT_TEST_DEEPSPEED": "1"}


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
    model: Path, dataset: str | Path, folder: Path, *flags: str, plugins: Sequence[Path] = ()
) -> list[str]:
    """With cpu_engines.py, and ``plugins`` beside it."""
    ours = (REPOSITORY / "plugins" / "vlrft.py", SUPPORT / "cpu_engines.py")
    return [
        *("swift", "rlhf", "--rlhf_type", "grpo", "--model", str(model), "--dataset", str(dataset)),
        *("--output_dir", str(folder), "--add_version", "false"),
        *("--external_plugins", *map(str, (*ours, *plugins))),
        *("--reward_funcs", "vlrft_classification", "vlrft_format"),
        *("--tuner_type", "full", "--torch_dtype", "float32", "--use_cpu", "true"),
        *("--use_vllm", "false", "--beta", "0.04", "--top_k", "-1", "--max_length", "512"),
        *("--per_device_train_batch_size", "4", "--num_generations", "4", "--max_steps", "3"),
        *("--max_completion_length", "8", "--logging_steps", "1", "--learning_rate", "1e-3"),
        *("--lr_scheduler_type", "constant", "--warmup_ratio", "0"),
        # No worker of a data loader: a fork of a process in which vLLM's threads run may hang.
        *("--dataloader_num_workers", "0"),
        *("--save_strategy", "no", "--report_to", "none", "--log_completions", "true"),
        *flags,
    ]


def run_grpo(model: Path, dataset: str | Path, folder: Path, *flags: str, **more: Any) -> Run:
    """The run of ``grpo_command``, to the end; ``more``: its ``plugins``, and variables."""
    command = grpo_command(model, dataset, folder, *flags, plugins=more.pop("plugins", ()))
    return run_swift(command, folder, **more)


def run_swift(command: list[str], folder: Path, *, plain: bool = False, **variables: str) -> Run:
    """Run to the end; fail with the output's tail where it ends with an error."""
    done = run_command(command, plain=plain, **variables)
    assert done.returncode == 0, done.stdout[-6000:]
    return Run(done.stdout, folder)


def run_command(
    command: Sequence[object], *, apart: bool = False, plain: bool = False, **variables: str
) -> subprocess.CompletedProcess:
    """``apart``: errors are not in the output."""
    return subprocess.run(
        [*map(str, command)],
        env=run_environment(plain=plain, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=HANGS,
    )


def run_python(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """``code`` in a process of its own in which torch, ms-swift and vLLM are imported already."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "forked.py"
        script.write_text(code)
        return run_command([sys.executable, script, *arguments], apart=True, **variables)


def run_environment(*, plain: bool = False, **variables: str) -> dict[str, str]:
    """``plain``: no process is forked from one that has the imports done."""
    # Two tests may run at a time, and with vLLM one process opens a port, too.
    own = {"MASTER_PORT": free_port()} | dict(os.environ) | ON_CPU
    return own | ({} if plain else forking()) | variables


def forking() -> dict[str, str]:
    """What makes Python processes forks of one that has the imports done (fork_server.py)."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = Path(tempfile.gettempdir()) / f"vlrft-forks-{owner}"  # the servers end with the owner
    folder.mkdir(exist_ok=True)
    return {"VLRFT_TEST_FORKS": str(folder), "PYTHONPATH": TRAINER_PATH}


def assert_trained(run: Run, steps: int) -> None:
    """Every step logged, rewards finite under their own names, and weights that moved."""
    assert len(run.steps) == steps
    for name in ("vlrft_classification", "vlrft_format"):
        assert all(0 <= value <= 1 for value in run.metric(f"rewards/{name}/mean"))
    assert all(math.isfinite(value) for value in run.metric("loss"))
    assert all(math.isfinite(value) and value > 0 for value in run.metric("grad_norm"))
