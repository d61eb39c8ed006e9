"""Seconds until a command answers, beside `python -c pass` and `swift rlhf --help` in one run.

    python benchmarks/startup.py              all; seconds of wall time, the median of 3 runs
    python benchmarks/startup.py --runs 5 check plan

Each first run is thrown away (bytecode and the disk's cache). What is called cold finds the folder
in which answers are kept empty at every run.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
RECIPE = str(RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh")
LARGE = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-72B-Instruct --deepspeed zero3"
HELPS = ["", "demo", "doctor", "plugin", "recipe", "check", "plan", "data", "data check", "score"]
HELPS += ["report", "eval", "compare", "tiny"]


def commands(large: str) -> dict[str, tuple[list[str], bool]]:
    """Name -> command, and whether it is cold."""
    python = [sys.executable, "-c"]
    plan = ["vlrft", "plan", RECIPE, "--gpus", "4x80"]
    return {
        "python -c pass": ([*python, "pass"], False),
        "python -c 'import torch'": ([*python, "import torch"], False),
        "swift rlhf --help": (["swift", "rlhf", "--help"], False),
        **{f"vlrft {h} --help": (["vlrft", *h.split(), "--help"], False) for h in HELPS},
        "vlrft check RECIPE": (["vlrft", "check", RECIPE], False),
        "vlrft check RECIPE (cold)": (["vlrft", "check", RECIPE], True),
        "vlrft doctor": (["vlrft", "doctor"], False),
        "vlrft plan 3B": (plan, False),
        "vlrft plan 3B (cold)": (plan, True),
        "vlrft plan 72B": (["vlrft", "plan", large, "--gpus", "8x80"], False),
        "vlrft plan 72B (cold)": (["vlrft", "plan", large, "--gpus", "8x80"], True),
    }


def seconds(command: list[str], cold: bool, environment: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as empty:
        environment = environment | ({"XDG_CACHE_HOME": empty} if cold else {})
        started = time.perf_counter()
        subprocess.run(command, env=environment, capture_output=True)
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="names that hold one of these words")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.sh"
        large.write_text(LARGE + "\n")
        for name, (command, cold) in commands(str(large)).items():
            if arguments.only and not any(word in name for word in arguments.only):
                continue
            seconds(command, False, environment)
            taken = [seconds(command, cold, environment) for _ in range(arguments.runs)]
            print(f"{statistics.median(taken):8.2f} s  {name}", flush=True)


if __name__ == "__main__":
    main()
