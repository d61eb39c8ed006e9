"""`vlrft doctor`: what is wrong with a machine is found, with its remedy, and in bounded time."""

import json
import os
import socket
import threading
import time
from contextlib import suppress
from importlib import metadata

import pytest
from support.command_line import vlrft

from swift_vlrft.diagnostics import doctor
from swift_vlrft.diagnostics.doctor import NOTE, OK, PROBLEM
from swift_vlrft.recipe import gpus


def check(what):
    return next(check for check in [*doctor._packages(), *doctor._disk()] if check.what == what)


def test_the_tested_set_is_that_of_the_repository():
    assert doctor.tested_set()["ms-swift"].startswith("4.6.")
    assert check("ms-swift").state == OK


@pytest.mark.parametrize(
    ("package", "version", "state", "said"),
    [
        ("ms-swift", "4.5.3", PROBLEM, "4.6"),
        ("msgspec", None, PROBLEM, "GRPO"),
        ("qwen-vl-utils", None, PROBLEM, "Qwen-VL"),
        ("vllm", None, NOTE, "--use_vllm"),
        ("deepspeed", None, NOTE, "--deepspeed"),
        ("trl", "0.20.0", NOTE, "0.20.0"),
        ("torch", "2.13.0+cpu", OK, "2.13.0+cpu"),
    ],
)
def test_packages(monkeypatch, package, version, state, said):
    real = metadata.version

    def installed(name):
        if name not in (package, f"{package}-cpu"):
            return real(name)
        if version is None or name != package:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    answer = check(package)
    assert answer.state == state and said in answer.found and bool(answer.remedy) == (state != OK)
    if package == "torch":  # another build than that of torchvision
        assert check("torch and torchvision").state == PROBLEM


def test_a_small_disk_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "not" / "there" / "yet"))
    assert check("cache HF_HOME").state == OK
    monkeypatch.setattr(doctor, "LEAST_DISK", 2**60)
    assert check("cache HF_HOME").state == PROBLEM and "HF_HOME" in check("cache HF_HOME").remedy


TWO = "printf 'NVIDIA A100, 81920, 550.1\\nNVIDIA A100, 81920, 550.1\\n'"


@pytest.mark.parametrize(
    ("script", "seconds", "what", "state", "said"),
    [
        (TWO, 60, "GPU 1", OK, "NVIDIA A100, 80 GiB, driver 550.1"),
        (TWO, 60, "causal-conv1d", NOTE, "Qwen3.5"),
        pytest.param(TWO, 60, "torch on the GPU", PROBLEM, "", marks=pytest.mark.slow),
        ("echo 'NVIDIA GB10, [N/A], 580'", 60, "GPU 0", OK, "NVIDIA GB10, memory unknown"),
        ("echo driver mismatch >&2; exit 9", 60, "GPU", PROBLEM, "driver mismatch"),
        ("exec sleep 60", 0.2, "GPU", PROBLEM, "hangs"),
    ],
)
def test_what_nvidia_smi_says(monkeypatch, tmp_path, script, seconds, what, state, said):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(gpus, "SECONDS", seconds)
    if what != "torch on the GPU":  # which is asked in a process that imports torch
        monkeypatch.setattr(doctor, "_run", lambda *_: "13.0 True")
    gpus.installed_gpus.cache_clear()
    checks = {check.what: check for check in doctor._gpus(60.0)}
    gpus.installed_gpus.cache_clear()
    assert checks[what].state == state and said in checks[what].found


@pytest.mark.parametrize(
    ("status", "state", "letters"),
    [(200, OK, 0), (404, OK, 0), (503, NOTE, 0), (None, NOTE, 0), (200, NOTE, 400)],
)
def test_what_a_hub_answers(monkeypatch, status, state, letters):
    """None: nothing, in the time that it has. A letter a moment: every read succeeds in time."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(doctor, "STARTS", 1.0 if letters else doctor.STARTS)

    def answer_once():
        client, _ = hub.accept()
        with client, suppress(OSError):
            client.recv(4096)
            client.sendall(f"HTTP/1.1 {status} .\r\nContent-Length: 0\r\nX-A: ".encode())
            for _ in range(letters):
                client.sendall(b"b")
                time.sleep(0.05)
            client.sendall(b"\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as hub:
        if status is not None:
            threading.Thread(target=answer_once, daemon=True).start()
        address = f"http://127.0.0.1:{hub.getsockname()[1]}"
        answer = doctor._hub("huggingface.co", address, 0.2 if letters or not status else 60)
    assert answer.state == state and ("HF_ENDPOINT" in answer.remedy) == (state == NOTE)


def test_an_engine_that_does_not_import():
    answer = doctor._imports("no_such_engine", 600.0)
    assert answer.state == PROBLEM and "no_such_engine" in answer.found


def test_the_command(monkeypatch):
    monkeypatch.setattr(doctor, "ENGINES", {})  # their imports take a minute here
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    shown = vlrft("doctor", "--json")
    checks = {answer["what"]: answer for answer in json.loads(shown.output)}
    assert checks["Python"]["state"] == OK
    assert checks["huggingface.co"]["state"] == NOTE and checks["huggingface.co"]["remedy"]
    assert shown.exit_code == int(any(answer["state"] == PROBLEM for answer in checks.values()))
    text = vlrft("doctor")
    assert "-> " in text.output and text.exit_code == shown.exit_code
