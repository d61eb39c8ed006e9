"""A real `swift rollout` on a CPU, and its processes."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from support.own import free_port
from support.swift_run import ON_CPU, SUPPORT, TRAINER_PATH, VLLM_ON_CPU


def served_by(port: str) -> list[str]:
    """The flags of a trainer whose rollouts come from the server at that port."""
    place = ("--vllm_server_host", "127.0.0.1", "--vllm_server_port", port)
    group = ("--vllm_server_group_port", free_port())
    return ["--use_vllm", "true", "--vllm_mode", "server", *place, *group]


@contextmanager
def rollout_server(
    model: Path, port: str, log: Path, *flags: str
) -> Iterator[list[psutil.Process]]:
    """While it answers: the HTTP server, its worker, the engine that this has, and that one's own
    worker. Afterwards all of them have ended, by themselves or not.
    """
    command = [
        *(str(Path(sys.executable).with_name("swift")), "rollout", "--model", str(model)),
        *("--host", "127.0.0.1", "--port", port, "--vllm_enforce_eager", "true"),
        *("--vllm_max_model_len", "512", "--external_plugins", str(SUPPORT / "cpu_engines.py")),
        *flags,
    ]
    own = VLLM_ON_CPU | {"VLRFT_TEST_SERVER": "1", "PYTHONPATH": TRAINER_PATH}
    with log.open("w") as file:
        swift = subprocess.Popen(
            command,
            env=os.environ | ON_CPU | own,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(swift, port, log)
        (http,) = psutil.Process(swift.pid).children()
        (worker,) = (one for one in http.children() if one.children())
        yield [http, worker, *worker.children(recursive=True)]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(swift.pid, signal.SIGKILL)
        swift.wait()


def wait_for(swift: subprocess.Popen, port: str, log: Path) -> None:
    end, url = time.monotonic() + 1800, f"http://127.0.0.1:{port}/health"
    while swift.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-6000:])
