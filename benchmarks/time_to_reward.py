"""How long until the reward is reached: ms-swift as it comes, with our rewards, with measures.

    python benchmarks/time_to_reward.py PEERS           # everything; hours, goes on where it was
    python benchmarks/time_to_reward.py PEERS --variant together --seeds 2
    python benchmarks/time_to_reward.py --table         # of what is measured, as Markdown

PEERS is a folder with a checkout of Visual-RFT; without it, its rewards are left out. Each run
starts from the demo's warm-started tiny model (one a seed, the same for all variants) and is a real
`swift rlhf` on the CPU. It is over when the mean reward of the last 5 rollouts is 0.8 (of 1.0, the
most that can be reached), or after twice the demo's steps. What is counted: tokens generated,
dynamic sampling's included, processor seconds of the training process and wall seconds, all from
the begin of the training. Results are kept in benchmarks/results/time_to_reward.jsonl, a line a
run; a run that is there is not repeated, but for our rewards' own where a variant has none of the
same start to be compared with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.demo.rows import TRIAL, write_drawn

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "time_to_reward.jsonl"
ENOUGH, LAST = 0.8, 5
TASKS = ("colours", "detection", "digits")
"""Of the table; the demo has the first alone now, and the others were measured at 6f52f50."""
PEER = ("visual_rft_accuracy_reward", "visual_rft_format_reward")


@dataclass(frozen=True)
class Variant:
    flags: Sequence[str] = ()
    beta: float = 0.04  # ms-swift's default; the recipe of the demo trains with 0
    updates: int = 1  # of each rollout
    shared_prefix: bool = False


DAPO = ("--loss_type", "dapo", "--epsilon_high", "0.28")
OURS = "ms-swift, our rewards"
VARIANTS = {
    "ms-swift, Visual-RFT's rewards": Variant(),
    OURS: Variant(),
    "beta 0": Variant(beta=0),
    "dynamic_sample": Variant(("--dynamic_sample", "true", "--max_resample_times", "2")),
    "dr_grpo": Variant(("--loss_type", "dr_grpo", "--scale_rewards", "none")),
    "dapo": Variant(DAPO),
    "gspo": Variant(("--importance_sampling_level", "sequence")),
    "cispo": Variant(("--loss_type", "cispo", "--epsilon_high", "5")),
    "entropy mask": Variant(("--top_entropy_quantile", "0.2")),
    "overlong_filter": Variant(("--overlong_filter", "true")),
    "16 generations": Variant(("--num_generations", "16")),
    "dapo, beta 0": Variant(DAPO, beta=0),
    "num_iterations 2": Variant(updates=2),
    "shared prefix": Variant(shared_prefix=True),
    "together": Variant(DAPO, beta=0, updates=2, shared_prefix=True),
}


REWARD = "vlrft_classification"
LONGEST, STEPS, RATE = 12, 100, 5e-4
"""Tokens of an answer, steps and learning rate of the task."""


def prepared(task: str, seed: int, work: Path) -> Path:
    """The folder with the warm-started model and the training data."""
    folder = work / f"{task}-{seed}"
    if not (folder / "start" / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_drawn(folder / "train", seed)
        from swift_vlrft.demo.warm_start import write_warm_start

        size = {"steps": TRIAL["warm_steps"], "rate": TRIAL["warm_rate"], "side": TRIAL["side"]}
        write_warm_start("internvl", folder / "train", folder / "making", seed=seed, **size)
        (folder / "making").rename(folder / "start")
    return folder


def digest(model: Path) -> str:
    """Of its weights: another processor rounds otherwise, and makes another start of the seed."""
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()[:12]


def environment(**more: Any) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path} | {name: str(value) for name, value in more.items()}


def measured(task: str, name: str, seed: int, peers: str, work: Path) -> dict[str, Any]:
    folder, variant = prepared(task, seed, work), VARIANTS[name]
    names = [*PEER, REWARD] if "Visual-RFT" in name else [REWARD, "vlrft_format"]
    weights = ["0" if one == REWARD and len(names) > 2 else "1" for one in names]
    steps = 2 * STEPS * variant.updates
    log, out = folder / "rollouts.jsonl", folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    log.unlink(missing_ok=True)
    command = ["bash", str(HERE.parent / "recipes" / "demo_cpu.sh"), "--max_steps", str(steps)]
    command += ["--max_completion_length", str(LONGEST)]
    command += ["--learning_rate", str(RATE), "--seed", str(seed)]
    command += ["--save_strategy", "no"]
    command += ["--reward_funcs", *names, "--reward_weights", *weights, *variant.flags]
    command += ["--beta", str(variant.beta), "--num_iterations", str(variant.updates)]
    command += ["--external_plugins", str(HERE.parent / "plugins" / "vlrft.py")]
    command += [str(HERE / "time_to_reward_plugin.py")]
    variables = environment(
        MODEL=folder / "start",
        DATASET=folder / "train",
        OUTPUT_DIR=out,
        VLRFT_SHARED_PREFIX=int(variant.shared_prefix),
        TIME_TO_REWARD_MEASURED=REWARD,
        TIME_TO_REWARD_LOG=log,
        TIME_TO_REWARD_PEERS=peers,
    )
    with (folder / "out.log").open("w") as said:
        process = subprocess.Popen(
            command, env=variables, stdout=said, stderr=said, start_new_session=True
        )
        try:
            found = _reached(process, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    if found is None and process.returncode != 0:
        text = (folder / "out.log").read_text(errors="replace")
        raise ChildProcessError("\n".join(text.splitlines()[-20:]))
    last = found or _rollouts(log)[-1]
    run = {"task": task, "variant": name, "seed": seed, "start": digest(folder / "start")}
    run |= {"reached": found is not None, "step": last["step"]}
    return run | {unit: last[unit] for unit in ("tokens", "seconds", "cpu")}


def _reached(process: subprocess.Popen[bytes], log: Path) -> dict[str, Any] | None:
    """The rollout by which the reward is reached; None if the run ends without."""
    while True:
        ended = process.poll() is not None
        rollouts = _rollouts(log)
        for n in range(LAST, len(rollouts) + 1):
            if statistics.fmean(one["reward"] for one in rollouts[n - LAST : n]) >= ENOUGH:
                return rollouts[n - 1]
        if ended:
            return None
        time.sleep(0.5)


def _rollouts(log: Path) -> list[dict[str, Any]]:
    if not log.exists():
        return []
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def kept() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines() if line.strip()]


def interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """Of the median: 95 % by bootstrap."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def tables() -> str:
    """As Markdown: what was needed, and its ratio to our rewards' run of the same start."""
    rows = kept()
    times, ratios = [], []
    for variant in VARIANTS:
        runs = [[r for r in rows if r["task"] == t and r["variant"] == variant] for t in TASKS]
        times.append([variant, *map(_times, runs)])
        ratios.append([variant, *(_ratios(of, rows) for of in runs)])
    return f"{_markdown(times)}\n\n{_markdown([row for row in ratios if row[0] != OURS])}"


def _needed(run: dict[str, Any], unit: str) -> float:
    """A run that did not reach it took longer than all of its steps."""
    return float(run[unit]) if run["reached"] else float("inf")


def _times(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return "-"
    cells = []
    for unit, divisor in (("tokens", 1000), ("cpu", 1)):
        values = [_needed(run, unit) / divisor for run in runs]
        middle, *ends = (
            "never" if value == float("inf") else f"{value:.0f}"
            for value in (statistics.median(values), *interval(values))
        )
        cells.append(f"{middle} ({ends[0]} to {ends[1]})")
    text = "; ".join(cells) if "never" not in cells[0].split(" ")[0] else "not reached"
    return f"{text} [{len(runs)}]"


def _begin(run: dict[str, Any]) -> tuple[str, int, str | None]:
    return run["task"], run["seed"], run.get("start")  # none: all of one machine


def _ratios(runs: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    found: dict[str, list[float]] = {"tokens": [], "cpu": []}
    for run in runs:
        for ours in rows:
            if ours["variant"] == OURS and _begin(ours) == _begin(run):
                for unit, values in found.items():
                    values.append(_needed(run, unit) / _needed(ours, unit))
    if not found["tokens"]:
        return "-"
    middle = [statistics.median(values) for values in found.values()]
    return "not reached" if middle[0] == float("inf") else "; ".join(f"{m:.2f}" for m in middle)


def _markdown(rows: list[list[str]]) -> str:
    head = ["", *(f"`{task}`" for task in TASKS)]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    done = {(row["task"], row["seed"], row["variant"]) for row in kept()}
    for seed in range(options.seeds):
        for variant in options.variant or VARIANTS:
            if "Visual-RFT" in variant and not options.peers:
                continue
            if (TASKS[0], seed, variant) not in done:
                yield TASKS[0], seed, variant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("peers", nargs="?", default="")
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="print what is measured, run nothing")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "time_to_reward")
    options = parser.parse_args()
    for task, seed, variant in [] if options.table else list(wanted(options)):
        start = digest(prepared(task, seed, options.work) / "start")
        beside = any(r["variant"] == OURS and _begin(r) == (task, seed, start) for r in kept())
        for one in [variant] if beside or variant == OURS else [OURS, variant]:
            run = measured(task, one, seed, options.peers, options.work)
            print(json.dumps(run), flush=True)
            RESULTS.parent.mkdir(exist_ok=True)
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
    print(tables())


if __name__ == "__main__":
    main()
