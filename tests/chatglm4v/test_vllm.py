"""What vLLM says a completion's probability is, the trainer says too."""

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from support.swift_run import VLLM_ON_CPU, run_python

from swift_vlrft.chatglm4v import vllm_plugin

ROWS = {"image prompt", "image completion", "text prompt", "text completion"}
CODE = "import sys; from chatglm4v import engines; engines.main(sys.argv[1])"

HAS_VLLM = bool(importlib.util.find_spec("vllm"))
needs_vllm = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("engines"))
    variables = VLLM_ON_CPU | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    done = run_python(CODE, folder, timeout=1800, **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def worst(differences):
    return max(value for name, value in differences.items() if name in ROWS)


@needs_vllm
@pytest.mark.nightly
@pytest.mark.parametrize(
    "case", ["plain", "chunked", "cached", "preempted", "cogagent", "after the sync"]
)
def test_engine_and_trainer_agree(measured, case):
    differences = measured[case]
    assert {"image completion", "text completion"} <= set(differences)
    assert (case == "cached") == (not {"image prompt", "text prompt"} <= set(differences))
    assert worst(differences) < 1e-4
    assert differences["spread"] > 1  # positions and weights show in the logits
    assert bool(differences["cached"]) == (case == "cached")


@needs_vllm
@pytest.mark.nightly
def test_what_differs(measured):
    """Weights before a sync, which loads every one; and vLLM's own GLM-4V, by its positions alone:
    an engine that would count them so is refused.
    """
    assert min(measured["before the sync"][name] for name in ROWS) > 0.1
    assert measured["not loaded"] == []
    stock = measured["vLLM's own"]
    assert stock["image prompt"] > 0.1 and stock["image completion"] > 0.1
    assert stock["text prompt"] < 1e-4 and stock["text completion"] < 1e-4
    assert worst(measured["vLLM's own, in order"]) < 1e-4
    overrides = json.dumps(vllm_plugin.HF_OVERRIDES)
    assert f"--hf-overrides '{overrides}'" in measured["refused"]
    assert "\n" not in measured["refused"]


def test_vllm_finds_it_in_each_of_its_processes():
    entries = entry_points(group="vllm.general_plugins")
    ours = [entry.load() for entry in entries if entry.value.startswith("swift_vlrft.")]
    assert ours == [vllm_plugin.register]


def test_without_vllm_nothing_heavy_is_imported():
    code = "import sys, swift_vlrft.chatglm4v.vllm_plugin\n"
    code += "print([m for m in ('torch', 'transformers', 'vllm', 'swift') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
