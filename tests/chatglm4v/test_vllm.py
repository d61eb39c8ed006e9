"""What vLLM says a completion's probability is, the trainer says too."""

import importlib.util
import json
from importlib.metadata import entry_points

import pytest
from support.swift_run import VLLM_ON_CPU, run_python

from swift_vlrft.chatglm4v import vllm_plugin

ROWS = {"image prompt", "image completion", "text prompt", "text completion"}
CODE = "import sys; from chatglm4v import engines; engines.main(sys.argv[1])"


@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed")
@pytest.mark.nightly
def test_engine_and_trainer_agree_and_one_that_counts_patches_is_refused(tmp_path):
    """What a sync loads is in end_to_end/test_glm_4v.py."""
    variables = VLLM_ON_CPU | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    done = run_python(CODE, str(tmp_path), **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    measured = json.loads(done.stdout.splitlines()[-1])
    refused = measured.pop("refused")
    assert f"--hf-overrides '{json.dumps(vllm_plugin.HF_OVERRIDES)}'" in refused
    assert "\n" not in refused
    for case, differences in measured.items():
        rows = {name: value for name, value in differences.items() if name in ROWS}
        assert {"image completion", "text completion"} <= rows.keys()
        assert (case == "cached") == (rows.keys() != ROWS)
        assert max(rows.values()) < 1e-4, case
        assert differences["spread"] > 1  # positions and weights show in the logits
        assert bool(differences["cached"]) == (case == "cached")


def test_vllm_finds_it_in_each_of_its_processes():
    entries = entry_points(group="vllm.general_plugins")
    ours = [entry.load() for entry in entries if entry.value.startswith("swift_vlrft.")]
    assert ours == [vllm_plugin.register]
