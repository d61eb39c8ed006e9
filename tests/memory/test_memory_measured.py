"""The planner's bytes against the real allocator: a training step of a small model on CPU."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.nightly import first_now

from swift_vlrft.families import FAMILIES
from swift_vlrft.families.family import TinySize
from swift_vlrft.memory.estimate import estimate
from swift_vlrft.memory.models import Model, count_parameters
from swift_vlrft.memory.phases import CONTEXT
from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.stages import Activations, BatchShape, batch_shape
from swift_vlrft.memory.tracing import trace

pytestmark = pytest.mark.slow

SIZE = TinySize(hidden=128, layers=3, vision_layers=3)
SMALL = FAMILIES["qwen2_5_vl"].tiny.config(SIZE, 1200) | {"image_token_id": 3}
PATCHES = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
SMALL["vision_config"] |= {**PATCHES, "window_size": 112}
TOKENS = {"pad_token_id": 3, "boi_token_id": 4, "eoi_token_id": 5, "eos_token_id": 3}
SQUARE = FAMILIES["chatglm4v"].tiny.config(SIZE, 1200) | TOKENS
SQUARE["vision_config"] |= {"image_size": 224, "num_positions": 257}
"""GLM-4v, which is not one of transformers' classes."""

MODELS = {"qwen2_5_vl": SMALL, "glm_4v": SQUARE}

OPEN = {"checkpoint_llm": False, "checkpoint_vit": False}
CASES = {
    "full, checkpointed": {},
    "full, ViT trains, nothing checkpointed": {"train_vit": True, "train_aligner": True} | OPEN,
    "LoRA, nothing checkpointed": {"tuning": "lora"} | OPEN,
    "LoRA, longer, larger batch": {"tuning": "lora", "batch": 4, "prompt": 400},
}
# Each model and each case in `make test`, all pairs in `make nightly`.
PAIRS = [
    pytest.param(model, case, marks=[pytest.mark.nightly] * ((n + m) % 2))
    for n, model in enumerate(MODELS)
    for m, case in enumerate(CASES)
]


def small_settings(config, **values):
    return Settings(
        model=Model("small", config, "test", count_parameters(config)),
        gpu_bytes=2**40,
        rollout="none",
        attention="sdpa",
        accumulation=2,
        completion=60,
        grids=((1, 16, 16),),
        **{"batch": 2, "prompt": 150, "tuning": "full", **values},
    )


def cpu(model: Model, shape: BatchShape) -> Activations:
    """As a plain loop on CPU runs it: no accelerate around the model, no CUDA kernels."""
    plain = replace(shape, cuda=False, logits_float32=False, lora_float32=False)
    return Activations(trace(model.config, plain), "traced")


def planned_bytes(settings: Settings) -> int:
    phases = estimate(settings, cpu).phases
    return max(phase.total - phase.parts.get(CONTEXT, 0) for phase in phases)


def assert_near(planned, measured):
    print(f"planned {planned / 2**20:.1f} MiB, measured {measured / 2**20:.1f} MiB")
    assert planned == pytest.approx(measured, rel=0.10)


def measured_bytes(settings: Settings, tmp_path: Path, *launcher: str) -> int:
    file = tmp_path / "case.json"
    case = {"config": settings.model.config, "shape": asdict(batch_shape(settings))}
    file.write_text(json.dumps(case))
    script = Path(__file__).parents[1] / "support" / "real_memory.py"
    done = subprocess.run(
        [sys.executable, *launcher, str(script), str(file)],
        env=os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize(("model", "case"), PAIRS)
def test_the_peak_of_a_real_step_is_within_ten_percent(model, case, tmp_path):
    settings = small_settings(MODELS[model], dtype="float32", **CASES[case])
    assert_near(planned_bytes(settings), measured_bytes(settings, tmp_path))


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("checkpointed", "batch", "prompt"), first_now((True, 4, 400), (False, 2, 150))
)
def test_the_peak_under_zero3_on_two_processes_is_within_ten_percent(
    checkpointed, batch, prompt, tmp_path
):
    values = {} if checkpointed else OPEN
    ways = {"processes": 2, "sharding": "zero3", "batch": batch, "prompt": prompt}
    settings = small_settings(SMALL, **ways, **values)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    assert_near(planned_bytes(settings), measured_bytes(settings, tmp_path, *launcher))
