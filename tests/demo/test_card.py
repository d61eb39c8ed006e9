"""Which GPU `vlrft try` takes, how large its model is there, and why it takes none."""

import os

import pytest
import torch
from support.command_line import vlrft

from swift_vlrft.demo import card
from tests.support.drawn_rows import write_coco

pytestmark = pytest.mark.slow  # torch is imported
TAKEN, FREE = "echo 0, a card, 81559, 70000, 9.0", "echo 1, a card, 81559, 4, 9.0"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A function that writes this machine's nvidia-smi, in bash."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    file = tmp_path / "nvidia-smi"
    file.touch(0o755)
    return lambda bash: file.write_text(f"#!/bin/bash\n{bash}\n")


@pytest.mark.parametrize(
    ("smi", "visible", "layers", "said"),
    [
        (FREE, "0,1", 8, ""),
        ("echo 1, a card, 8192, 0, 8.6", "1", 4, ""),
        ("echo 1, a card, 81559, 70000, 9.0", "1", 0, "GPU 1 (a card): taken: 70000 of 81559"),
        ("echo 1, a card, 15360, 0, 7.5", "1", 0, "compute capability 7.5"),
        ("echo 1, a card, 4096, 0, 8.6", "1", 0, "too small: 4096"),
        ("echo 1, a card, [N/A], 0, 9.0", "1", 0, "how much memory"),
        ("echo 1, a card, 81559, 0, [N/A]", "1", 0, "which compute capability"),
        (FREE, "", 0, "no GPU's number is in CUDA_VISIBLE_DEVICES="),
        (FREE, "GPU-9aab", 0, "in CUDA_VISIBLE_DEVICES=GPU-9aab"),
        ("echo the driver is gone >&2; exit 9", "1", 0, "the driver is gone"),
    ],
)
def test_the_first_free_card_and_a_model_that_fits_or_why_not(
    smi, visible, layers, said, monkeypatch, nvidia_smi
):
    nvidia_smi(f"{TAKEN}\n{smi}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if said:
        with pytest.raises(card.NoCard) as error:
            card.free_card("qwen2_5_vl", 112)
        assert said in str(error.value) and "\n" not in str(error.value)
        return
    found = card.free_card("qwen2_5_vl", 112)
    assert found.size.layers == layers and found.variables["CUDA_VISIBLE_DEVICES"] == "1"


def test_without_a_card_cuda_ends_in_a_line_and_auto_says_why(tmp_path, monkeypatch, nvidia_smi):
    monkeypatch.setattr(torch.version, "cuda", None)
    data = write_coco(tmp_path / "few", 2)  # too few to train on: said next, and nothing runs
    for smi, why in {"exit 0": "lists no GPU", FREE: "has no CUDA: install"}.items():
        nvidia_smi(smi)
        for device, lines in (("cuda", 1), ("auto", 2)):
            command = ["try", str(data), "--out", str(tmp_path / device), "--device", device]
            done = vlrft(*command)
            said = done.output.splitlines()
            assert done.exit_code == 2 and len(said) == lines and why in said[0]
            assert said[0].startswith("on the CPU: ") is (device == "auto")
