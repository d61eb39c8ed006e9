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
CODE = "import sys; from support import glm4v_engines; glm4v_engines.main(sys.argv[1])"


needs_vllm = pytest.mark.skipif(
    not importlib.util.find_spec("vllm"), reason="vLLM is not installed"
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("engines"))
    done = run_python(CODE, folder, VLLM_ENABLE_V1_MULTIPROCESSING="0", **VLLM_ON_CPU)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def of_rows(differences):
    return {name: value for name, value in differences.items() if name in ROWS}


@needs_vllm
@pytest.mark.nightly
@pytest.mark.parametrize(
    "case", ["plain", "chunked", "cached", "preempted", "cogagent", "after the sync"]
)
def test_engine_and_trainer_agree(measured, case):
    differences = measured[case]
    expected = ROWS if case != "cached" else {"image completion", "text completion"}
    assert set(of_rows(differences)) == expected
    assert max(of_rows(differences).values()) < 1e-4
    assert differences["spread"] > 1  # positions and weights show in the logits
    assert bool(differences["cached"]) == (case == "cached")


@needs_vllm
@pytest.mark.nightly
def test_a_sync_loads_every_weight_and_is_needed(measured):
    assert min(of_rows(measured["before the sync"]).values()) > 0.1
    assert measured["not loaded"] == []


@needs_vllm
@pytest.mark.nightly
def test_vllms_own_glm_4v_counts_a_position_per_patch(measured):
    differences = measured["vLLM's own"]
    assert differences["image prompt"] > 0.1 and differences["image completion"] > 0.1
    assert differences["text prompt"] < 1e-4 and differences["text completion"] < 1e-4
    # That is all that differs.
    assert max(of_rows(measured["vLLM's own, in order"]).values()) < 1e-4


@needs_vllm
@pytest.mark.nightly
def test_an_engine_that_would_count_otherwise_is_refused(measured):
    assert "\n" not in measured["refused"]
    overrides = json.dumps(vllm_plugin.HF_OVERRIDES)
    assert measured["refused"].endswith(f"give it --hf-overrides '{overrides}'")


def test_vllm_finds_it_in_each_of_its_processes():
    found = [
        entry
        for entry in entry_points(group="vllm.general_plugins")
        if entry.value.startswith("swift_vlrft.")
    ]
    assert [entry.load() for entry in found] == [vllm_plugin.register]


def test_without_vllm_nothing_heavy_is_imported():
    code = "import sys, swift_vlrft.chatglm4v.vllm_plugin\n"
    code += "print([m for m in ('torch', 'transformers', 'vllm', 'swift') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@needs_vllm
@pytest.mark.slow
def test_waits_for_a_killed_engine_end():
    """The method, once; tests/end_to_end/test_faults_processes.py kills an engine."""
    code = "from vllm.v1.engine.core_client import MPClient, SyncMPClient\n"
    code += "from swift_vlrft.chatglm4v.vllm_plugin import register\n"
    code += "register()\nregister()\n"
    code += "assert SyncMPClient.shutdown.__wrapped__ is MPClient.shutdown\n"
    done = run_python(code)
    assert done.returncode == 0, done.stderr


@needs_vllm
@pytest.mark.slow
def test_other_models_stay_as_they_are():
    code = "from vllm import ModelRegistry\n"
    code += "from swift_vlrft.chatglm4v.vllm_plugin import ARCHITECTURE, register\n"
    code += "before = dict(ModelRegistry.models)\nregister()\nregister()\n"
    code += "after = dict(ModelRegistry.models)\nassert after.pop(ARCHITECTURE)\n"
    code += "assert ARCHITECTURE not in before and after == before\n"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
