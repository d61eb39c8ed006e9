"""`vlrft eval` with ms-swift's engines, killed and started again."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import time
from itertools import product
from pathlib import Path

import pytest
from support.drawn_rows import boxed_rows
from support.nightly import first_now
from support.swift_run import VLLM_ON_CPU, VLRFT, run_command

from swift_vlrft.parsing.answers import gold_text, read_boxes
from tests.support.parquet import write_parquet

pytestmark = pytest.mark.end_to_end


def eval_command(model: Path, data: Path | str, out: Path, *flags: str) -> list[str]:
    return [
        *(VLRFT, "eval", str(model), str(data), "--task", "classification", "--out", str(out)),
        *("--max-tokens", "6", "--dtype", "float32", "--json", *flags),
    ]


def run(command: list[str], *, plain: bool = False, **variables: str) -> dict:
    done = run_command(command, apart=True, plain=plain, **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "WARNING" not in done.stderr and "trust_remote_code" not in done.stderr
    return json.loads(done.stdout[done.stdout.index("{\n") :])


def predictions(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]


def completions(out: Path) -> dict[str, str]:
    return {row["id"]: row["completion"] for row in predictions(out)}


@pytest.fixture(scope="module")
def whole(tiny_qwen2_5_vl, shapes, tmp_path_factory) -> Path:
    """A run to the end, to hold the others against."""
    out = tmp_path_factory.mktemp("eval") / "whole"
    summary = run(eval_command(tiny_qwen2_5_vl, shapes, out))
    assert (summary["rows"], summary["images"]) == (16, 16)
    assert summary["run"]["engine"] == "transformers"
    assert summary["run"]["versions"]["ms-swift"]
    assert summary["run"]["system_prompts"] == ["You are a helpful assistant."]
    return out


def test_a_killed_run_goes_on_without_asking_again(tiny_qwen2_5_vl, shapes, whole, tmp_path):
    out = tmp_path / "killed"
    command = eval_command(tiny_qwen2_5_vl, shapes, out, "--batch-size", "2")
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)

    def lines() -> int:
        return sum(part.read_bytes().count(b"\n") for part in out.glob("parts/*.jsonl"))

    began = time.monotonic()
    while lines() < 4 and process.poll() is None and time.monotonic() < began + 1800:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = lines()
    assert 4 <= kept < 16 and not (out / "predictions.jsonl").exists()
    part = next(p for p in out.glob("parts/*.jsonl") if p.stat().st_size)
    with part.open("a") as file:
        file.write('{"id": "half a li')  # what a kill in the middle of a write leaves
    summary = run(command)
    assert summary["rows"] == 16 and summary["problems"] == {}
    assert lines() == 16  # every row was asked once
    assert completions(out) == completions(whole)


def test_boxes_are_asked_three_times_in_pixels_of_what_the_model_sees(tiny_qwen2_5_vl, tmp_path):
    write_parquet(boxed_rows(random.Random(0), 4), tmp_path / "set")
    out = tmp_path / "out"
    wishes = ("--samples", "3", "--temperature", "1", "--split", "train", "--task", "detection")
    wishes += ("--max-tokens", "48")  # most tokens of a random model decode to nothing
    command = eval_command(tiny_qwen2_5_vl, f"{tmp_path}/set:pixels", out, *wishes)
    summary = run(command, MAX_PIXELS=str(84 * 84))
    assert summary["rows"] == 4 and summary["problems"] == {}
    assert summary["run"]["resolution"] == {"MAX_PIXELS": str(84 * 84)}
    answered = predictions(out)
    assert [(row["row"], row["sample"]) for row in answered] == [*product(range(4), range(3))]
    # Drawn, so that some rows have different answers.
    assert len({(row["row"], row["completion"]) for row in answered}) > 4
    for row in answered:
        assert (row["frame"], row["seen"], row["width"]) == ("pixels", [84, 84], 112)
        assert "in pixels, x from 0 to 84 and y from 0 to 84" in row["prompt"]
        gold = read_boxes(gold_text(row["solution"])).boxes
        assert all(value in (0, 21, 42, 63, 84) for value in gold[0])


def test_two_processes_and_an_adapter(tiny_qwen2_5_vl, shapes, whole, tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_pretrained(tiny_qwen2_5_vl)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    for name, weights in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weights, std=1.0)
    adapted.save_pretrained(tmp_path / "adapter")
    out = tmp_path / "out"
    command = eval_command(tmp_path / "adapter", shapes, out, "--workers", "2")
    summary = run([*command, "--base-model", str(tiny_qwen2_5_vl)])
    assert summary["rows"] == 16 and summary["problems"] == {}
    assert len([p for p in out.glob("parts/*.jsonl") if p.stat().st_size]) == 2
    assert completions(out).keys() == completions(whole).keys()
    assert completions(out) != completions(whole)  # the adapter was applied


@pytest.mark.parametrize("engine", first_now("in the process", "in a process of its own"))
def test_vllm_answers_as_transformers_does(engine, tiny_qwen2_5_vl, shapes, whole, tmp_path):
    if not importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is not installed")
    options = {
        "vllm_enforce_eager": True,
        "vllm_max_model_len": 512,
        "vllm_gpu_memory_utilization": 0.1,
    }
    command = eval_command(tiny_qwen2_5_vl, shapes, tmp_path / "out", "--engine", "vllm")
    command += ["--engine-options", json.dumps(options)]
    alone = engine != "in the process"  # which vLLM starts, and a fork cannot
    own = VLLM_ON_CPU | {"VLLM_ENABLE_V1_MULTIPROCESSING": str(int(alone))}
    summary = run(command, plain=alone, **own)
    assert summary["rows"] == 16 and summary["run"]["engine"] == "vllm"
    ours, theirs = completions(tmp_path / "out"), completions(whole)
    # Greedy and float32 on both sides; of a random model's near ties a few may fall otherwise.
    assert sum(ours[key] == theirs[key] for key in theirs) >= 12
