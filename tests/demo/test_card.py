"""Which GPU `vlrft try` takes, how large its model is there, and why it takes none."""

import os

import pytest
import torch
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.demo import card
from tests.support.drawn_rows import write_coco


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A function that writes an nvidia-smi of this machine: bash lines."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def write(*lines):
        (tmp_path / "nvidia-smi").write_text("\n".join(("#!/bin/bash", *lines)))
        (tmp_path / "nvidia-smi").chmod(0o755)

    return write


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "visible", "layers", "said"),
    [
        ("81559, 4, 9.0", "0,1", 8, ""),
        ("8192, 0, 8.6", "1", 4, ""),
        ("81559, 70000, 9.0", "1", 0, "GPU 1 (a card): taken: 70000 of 81559"),
        ("15360, 0, 7.5", "1", 0, "compute capability 7.5"),
        ("4096, 0, 8.6", "1", 0, "too small: 4096"),
        ("[N/A], 0, 9.0", "1", 0, "how much memory"),
        ("81559, 0, [N/A]", "1", 0, "which compute capability"),
        ("81559, 4, 9.0", "", 0, "no GPU's number is in CUDA_VISIBLE_DEVICES="),
        ("81559, 4, 9.0", "GPU-9aab", 0, "in CUDA_VISIBLE_DEVICES=GPU-9aab"),
    ],
)
def test_the_first_free_card_and_a_model_that_fits_or_why_not(
    gpu, visible, layers, said, monkeypatch, nvidia_smi
):
    nvidia_smi("echo '0, a card, 81559, 70000, 9.0'", f"echo '1, a card, {gpu}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if said:
        with pytest.raises(card.NoCard, match="GPU") as error:
            card.free_card("qwen2_5_vl", 112)
        assert said in str(error.value) and "\n" not in str(error.value)
        return
    found = card.free_card("qwen2_5_vl", 112)
    assert found.size.layers == layers and found.variables["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("smi", "cuda", "said"),
    [
        ("exit 0", "13.0", "lists no GPU"),
        ("echo No devices were found; exit 6", "13.0", "No devices were found"),
        ("echo '0, a card, 81559, 4, 9.0'", None, "has no CUDA: install requirements/gpu.txt"),
    ],
)
def test_a_machine_without_a_card_ends_cuda_in_a_line_and_auto_says_why(
    smi, cuda, said, tmp_path, monkeypatch, nvidia_smi
):
    nvidia_smi(smi)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    data = write_coco(tmp_path / "few", 2)  # too few to train on: said next, and nothing runs
    for device, lines in (("cuda", 1), ("auto", 2)):
        command = ["try", str(data), "--out", str(tmp_path / device), "--device", device]
        done = CliRunner().invoke(app, command)
        first, *more = done.output.splitlines()
        assert done.exit_code == 2 and said in first and len(more) == lines - 1
        assert first.startswith("on the CPU: ") is (device == "auto")
