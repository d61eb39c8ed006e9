"""Choose a GPU for a trial, and by the memory planner the size of its model.

card = free_card("internvl", side=112)
card.name, card.size        "NVIDIA H100 80GB HBM3", TinySize(hidden=2048, layers=8, ...)

NoCard says why there is none: taken, too small, or of a kind that vLLM does not support.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from swift_vlrft.families import known_family
from swift_vlrft.families.family import TinySize
from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.from_recipe import settings_of
from swift_vlrft.memory.settings import USABLE, Gpus
from swift_vlrft.recipe.gpus import ask_gpus
from swift_vlrft.recipe.run import read_run
from swift_vlrft.tiny.compact import SIZE, compact

SIZES = tuple(
    TinySize(hidden=2048, layers=layers, vision_hidden=1024, vision_layers=4)
    for layers in (8, 6, 4, 2)
)
"""The sizes that are tried, the largest first: wide and of few layers, as a GPU computes a small
layer in less time than its launch takes.
"""
MOST = 450e6
"""The most parameters: with more, minutes do not suffice."""
WARM_STEPS = 800  # of the warm start: twice as many as on a CPU, in a fraction of the time
VOCABULARY = 4096
"""More tokens than the texts of a trial have."""
FREE = 0.1
"""The share of a card's memory above which what others hold of it makes it taken."""
CAPABILITY = 8.0
"""The least compute capability: bfloat16 in vLLM begins with Ampere."""


class NoCard(ValueError):
    """There is no GPU for a trial; the message says why."""


@dataclass(frozen=True)
class Card:
    index: str
    """As nvidia-smi counts, which is CUDA's order under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    name: str
    size: TinySize

    @property
    def rate(self) -> float:
        """Return the factor of the learning rates, which go down as the width goes up."""
        return SIZE.hidden / self.size.hidden

    @property
    def variables(self) -> dict[str, str]:
        """Return what lets a process see this GPU alone."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": self.index}


def free_card(family: str, side: int) -> Card:
    """Return the first GPU that is free for a trial of this family."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    refused = []
    try:
        rows = ask_gpus("index", "name", "memory.total", "memory.used", "compute_cap")
    except OSError as error:
        raise NoCard(str(error)) from None
    if not rows:
        raise NoCard("nvidia-smi is missing or lists no GPU")
    if missing := [name for name in ("vllm", "deepspeed") if find_spec(name) is None]:
        raise NoCard(f"{' and '.join(missing)} not installed")
    if torch.version.cuda is None:
        raise NoCard(f"torch {torch.__version__} has no CUDA: install requirements/gpu.txt")
    for index, name, total, used, capability in rows:
        if visible is not None and index not in visible.split(","):
            continue
        if not (total.isdigit() and used.isdigit() and capability[:1].isdigit()):
            why = "nvidia-smi does not say how much memory and which compute capability it has"
        elif float(capability) < CAPABILITY:
            why = f"compute capability {capability}, and bfloat16 in vLLM needs {CAPABILITY}"
        elif int(used) > FREE * int(total):
            why = f"taken: {used} of {total} MiB are in use"
        elif size := fitting_size(family, side, int(total) / 1024 * USABLE):
            return Card(index, name, size)
        else:
            why = f"too small: {total} MiB do not hold the smallest model"
        refused.append(f"GPU {index} ({name}): {why}")
    raise NoCard("; ".join(refused) or f"no GPU's number is in CUDA_VISIBLE_DEVICES={visible}")


def fitting_size(family: str, side: int, gib: float) -> TinySize | None:
    """Return the largest size whose GRPO run fits into a card, None if there is none."""
    config = compact(known_family(family), side).config
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json")
        variables = {"MODEL": str(file), "DATASET": folder, "MAX_PIXELS": str(side**2)}
        run = read_run(shipped_file("recipes", "demo_gpu.sh"), {**os.environ, **variables})
        for size in SIZES:
            file.write_text(json.dumps(config(size, VOCABULARY)))
            settings = settings_of(run, Gpus(1, gib, ""))
            few = settings.model.parameters.total <= MOST
            if few and estimate(settings).verdict == "fits":
                return size
    return None
