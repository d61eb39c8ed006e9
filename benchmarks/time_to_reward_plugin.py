"""In the training process of benchmarks/time_to_reward.py, as its second plugin: Visual-RFT's
rewards as released, and one line for each rollout, with those that dynamic sampling adds.

    {"reward": 0.41, "tokens": 1024, "seconds": 12.3, "cpu": 11.9, "step": 4}

``reward`` is the mean of the reward that all variants are measured by; ``tokens`` were generated
since the training began; ``seconds`` and ``cpu`` (of this process) are counted from there, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from peers import visual_rft_classification
from swift.rewards import orms
from swift.rlhf_trainers import GRPOTrainer

MEASURED, LOG, PEERS = (os.environ[f"TIME_TO_REWARD_{n}"] for n in ("MEASURED", "LOG", "PEERS"))


def of_peer(name: str, function: Callable[..., list[float]]) -> Any:
    """The peer's function, called with conversations as its own trainer does."""

    def reward(completions: list[str], solution: list[str], **columns: Any) -> list[float]:
        return function([[{"content": text}] for text in completions], solution=solution)

    reward.__name__ = name
    return lambda args=None, **_: reward


def register_peers(folder: Path) -> None:
    for name, function in (visual_rft_classification(folder) or {}).items():
        orms[f"visual_rft_{name}"] = of_peer(f"visual_rft_{name}", function)


def measure() -> None:
    score, train = GRPOTrainer._compute_rewards_per_func, GRPOTrainer.train
    tokens, begin = 0, (0.0, 0.0)

    def trained(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal begin
        begin = time.perf_counter(), time.process_time()
        return train(self, *args, **kwargs)

    def scored(self: Any, samples: Any) -> Any:
        nonlocal tokens
        rewards = score(self, samples)
        tokens += sum(len(one.response_token_ids) for one in samples)
        column = rewards[:, self.reward_func_names.index(MEASURED)]
        record = {
            "reward": column.nanmean().item(),
            "tokens": tokens,
            "seconds": time.perf_counter() - begin[0],
            "cpu": time.process_time() - begin[1],
            "step": self.state.global_step,
        }
        with open(LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return rewards

    GRPOTrainer._compute_rewards_per_func, GRPOTrainer.train = scored, trained


if PEERS:
    register_peers(Path(PEERS))
measure()
