"""`vlrft doctor`: what is wrong with a machine is found, with its remedy, and in bounded time."""

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.diagnostics import doctor
from swift_vlrft.diagnostics.doctor import NOTE, OK, PROBLEM
from swift_vlrft.recipe import gpus


def check(what):
    return next(found for found in [*doctor._packages(), *doctor._disk()] if found.what == what)


def test_the_tested_set_is_that_of_the_repository():
    assert doctor.tested_set()["ms-swift"].startswith("4.6.")
    assert check("ms-swift").state == OK


@pytest.mark.parametrize(
    ("package", "version", "state", "said"),
    [
        ("ms-swift", "4.5.3", PROBLEM, "made for 4.6"),
        ("msgspec", None, PROBLEM, "without requiring it"),
        ("qwen-vl-utils", None, PROBLEM, "Qwen-VL"),
        ("vllm", None, NOTE, "--use_vllm"),
        ("deepspeed", None, NOTE, "--deepspeed"),
        ("trl", "0.20.0", NOTE, "tested with"),
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
    found = check(package)
    assert (found.state, said in found.found) == (state, True)
    assert bool(found.remedy) == (state != OK)
    if package == "torch":
        assert "different builds" in check("torch and torchvision").found


def test_a_small_disk_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "not" / "there" / "yet"))
    assert check("cache HF_HOME").state == OK
    monkeypatch.setattr(doctor, "LEAST_DISK", 2**60)
    found = check("cache HF_HOME")
    assert found.state == PROBLEM and "HF_HOME" in found.remedy


def nvidia_smi(monkeypatch, tmp_path, script):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpus, "SECONDS", 4)
    gpus.installed_gpus.cache_clear()
    found = {check.what: check for check in doctor._gpus(20.0)}
    gpus.installed_gpus.cache_clear()
    return found


def test_gpus_that_torch_cannot_use(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    lines = "NVIDIA A100, 81920, 550.1\\nNVIDIA A100, 81920, 550.1"
    found = nvidia_smi(monkeypatch, tmp_path, f"printf '{lines}\\n'")
    assert found["GPU 1"].found == "NVIDIA A100, 80 GiB, driver 550.1"
    assert found["torch on the GPU"].state == PROBLEM


def test_a_gpu_that_does_not_tell_its_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_run", lambda *_: "13.0 True")
    found = nvidia_smi(monkeypatch, tmp_path, "echo 'NVIDIA GB10, [N/A], 580.95'")
    assert found["GPU 0"].found == "NVIDIA GB10, memory unknown, driver 580.95"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [("echo driver mismatch >&2; exit 9", "driver mismatch"), ("exec sleep 60", "hangs")],
)
def test_a_driver_that_fails(monkeypatch, tmp_path, script, said):
    found = nvidia_smi(monkeypatch, tmp_path, script)["GPU"]
    assert (found.state, said in found.found) == (PROBLEM, True)


class Answers(BaseHTTPRequestHandler):
    status = 200

    def do_HEAD(self):
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(("status", "state"), [(200, OK), (404, OK), (503, NOTE)])
def test_a_hub_that_answers(monkeypatch, status, state):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(Answers, "status", status)
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        assert doctor._hub("huggingface.co", address, 5.0).state == state
    finally:
        server.shutdown()


def test_a_hub_that_never_answers_costs_its_limit(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        found = doctor._hub("huggingface.co", address, 0.5)
    assert found.state == NOTE and "HF_ENDPOINT" in found.remedy


SLOW_HUB = """
import socket, threading, time
from swift_vlrft.diagnostics import doctor
doctor.ENGINES = {}
server = socket.create_server(("127.0.0.1", 0))
def serve():
    client, _ = server.accept()
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\\r\\n")
    while True:  # a header a moment: every read succeeds in time
        client.sendall(b"X-A: b\\r\\n")
        time.sleep(0.5)
threading.Thread(target=serve, daemon=True).start()
doctor._hf_endpoint = lambda: f"http://127.0.0.1:{server.getsockname()[1]}"
found = {check.what: check for check in doctor.run_checks(1.0)}
print(found["huggingface.co"].found, "|", found["huggingface.co"].remedy)
"""


@pytest.mark.slow
def test_a_hub_that_keeps_talking_does_not_keep_the_command(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    shown = subprocess.run(
        [sys.executable, "-c", SLOW_HUB], capture_output=True, text=True, timeout=600
    )
    assert shown.stdout.startswith("no answer in time | HF_ENDPOINT"), shown.stderr


def test_an_engine_that_does_not_import():
    found = doctor._imports("no_such_engine", 30.0)
    assert found.state == PROBLEM and "No module named" in found.found


def test_the_command(monkeypatch):
    monkeypatch.setattr(doctor, "ENGINES", {})  # their imports take a minute here
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    shown = CliRunner().invoke(app, ["doctor", "--json", "--seconds", "1"])
    checks = {found["what"]: found for found in json.loads(shown.output)}
    assert checks["Python"]["state"] == OK
    assert checks["huggingface.co"]["state"] == NOTE and checks["huggingface.co"]["remedy"]
    assert shown.exit_code == int(any(found["state"] == PROBLEM for found in checks.values()))
    text = CliRunner().invoke(app, ["doctor", "--seconds", "1"])
    assert "-> " in text.output and text.exit_code == shown.exit_code
