"""`vlrft data difficulty` with ms-swift's engines, on a set with planted errors."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.swift_run import ON_CPU, VLLM_ON_CPU, forking

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import COLOURS, known_task
from swift_vlrft.demo.warm_start import warm_start

pytestmark = pytest.mark.end_to_end

VLRFT = str(Path(sys.executable).parent / "vlrft")
ROWS, PLANTED = 100, 4


@pytest.fixture(scope="module")
def able(tmp_path_factory) -> Path:
    """The demo's model, taught the right answers in place of guesses."""
    folder = tmp_path_factory.mktemp("able") / "able"
    task = replace(known_task("colours"), guess=lambda rng, seen: seen, warm_steps=100)
    rows = task.make(random.Random(0), 512)
    warm_start(task, rows, folder, progress=lambda step, note: None)
    # As Qwen2-VL's: what answers are drawn from is GRPO's to say, not the checkpoint's.
    file = folder / "generation_config.json"
    wishes = {"do_sample": True, "top_k": 1, "top_p": 0.001, "temperature": 0.01}
    file.write_text(json.dumps(json.loads(file.read_text()) | wishes))
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[Path, set[int]]:
    rng = random.Random(7)
    rows = known_task("colours").make(rng, ROWS)
    wrong = set(rng.sample(range(ROWS), PLANTED))
    for n in wrong:
        other = rng.choice([name for name in COLOURS if name != rows[n].seen])
        rows[n] = replace(rows[n], solution=f"<answer>{other}</answer>")
    folder = tmp_path_factory.mktemp("planted") / "set"
    write_parquet(rows, folder)
    return folder, wrong


def command(model: Path, data: Path, out: Path, *flags: str) -> list[str]:
    return [
        *(VLRFT, "data", "difficulty", str(model), str(data), "--out", str(out), "--json"),
        *("--max-tokens", "12", "--dtype", "float32", *flags),
    ]


def run(words: list[str], *, plain: bool = False, code: int = 0, **variables: str) -> dict:
    environment = os.environ | ON_CPU | ({} if plain else forking()) | variables
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr[-4000:]
    return json.loads(done.stdout[done.stdout.index("{\n") :])


def assert_found(found: dict, out: Path, wrong: set[int], samples: int) -> None:
    """The planted errors come first; the answers were drawn, not the likeliest each time."""
    ranking = [json.loads(line) for line in (out / "ranking.jsonl").read_text().splitlines()]
    first = {row["number"] for row in ranking[: ROWS // 20]}
    assert len(first & wrong) >= 0.9 * PLANTED and found["pass_rate"] > 0.8
    assert any(0 < row["pass_rate"] < 1 for row in ranking)
    lines = (out / "predictions.jsonl").read_text().splitlines()
    assert len(lines) == samples * ROWS == sum(row["samples"] for row in ranking)


def test_planted_errors_come_first_and_a_killed_run_resumes(able, planted, tmp_path):
    data, wrong = planted
    out = tmp_path / "out"
    words = command(able, data, out, "--batch-size", "4", "--engine", "transformers")
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL)

    def lines() -> int:
        return sum(part.read_bytes().count(b"\n") for part in out.glob("parts/*.jsonl"))

    began = time.monotonic()
    while lines() < 64 and process.poll() is None and time.monotonic() < began + 400:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert 64 <= lines() < 8 * ROWS and not (out / "set").exists()
    found = run(words)
    assert lines() == 8 * ROWS  # every row was asked once
    assert_found(found, out, wrong, 8)
    table = pq.read_table(out / "set" / "data")
    assert table.num_rows == ROWS
    assert [one["bytes"] for one in table["image"].to_pylist()] == [
        one["bytes"] for one in pq.read_table(data)["image"].to_pylist()
    ]
    ordered = [VLRFT, "data", "order", str(out / "set"), str(tmp_path / "ordered")]
    assert subprocess.run(ordered, timeout=100).returncode == 0
    rates = pq.read_table(tmp_path / "ordered" / "data")["pass_rate"].to_pylist()
    assert rates == sorted(table["pass_rate"].to_pylist(), reverse=True)
    kept = run([*words, "--keep", "0.1:0.9"])
    assert lines() == 8 * ROWS and 0 < kept["written"] < ROWS


def test_two_processes_share_the_rows(able, planted, tmp_path):
    out = tmp_path / "out"
    found = run(command(able, planted[0], out, "--workers", "2", "--samples", "4"))
    assert len([p for p in out.glob("parts/*.jsonl") if p.stat().st_size]) == 2
    assert_found(found, out, planted[1], 4)


def test_vllm_draws_the_answers(able, planted, tmp_path):
    pytest.importorskip("vllm")
    options = {
        "vllm_enforce_eager": True,
        "vllm_max_model_len": 512,
        "vllm_gpu_memory_utilization": 0.1,
    }
    words = command(able, planted[0], tmp_path / "out", "--engine", "vllm", "--samples", "4")
    words += ["--engine-options", json.dumps(options)]
    found = run(words, plain=True, **VLLM_ON_CPU)
    assert_found(found, tmp_path / "out", planted[1], 4)
