"""A question is answered by a process of its own, within its time and memory."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from swift_vlrft.studio.workers import Workers

pytestmark = pytest.mark.slow
SWIFT = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-VL-2B-Instruct --dataset a/b "


@pytest.fixture(scope="module")
def workers():
    found = Workers(2)
    yield found
    found.close()


def ask(workers, script, seconds=15):
    return workers.ask("check", {"script": script}, seconds=seconds, gib=1.5)


HUNGRY = {
    "yaml of yaml": "a: &a [x, x]\n"
    + "".join(
        f"{n}: &{n} [*{o}, *{o}, *{o}, *{o}]\n"
        for o, n in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True)
    )
    + "rlhf_type: grpo\n",
}


@pytest.mark.parametrize("name", HUNGRY)
def test_hungry_text_ends_its_process_alone(workers, name):
    began = time.monotonic()
    with pytest.raises(ValueError, match="this takes (more|longer)"):
        ask(workers, HUNGRY[name], seconds=3)
    assert time.monotonic() - began < 20
    assert "finding" in ask(workers, SWIFT + "--betta 1")


def test_many_ask_at_once(workers):
    def one(number):
        return ask(workers, SWIFT + f"--betta{number} 1", seconds=60)

    with ThreadPoolExecutor(4) as pool:
        for number, shown in enumerate(pool.map(one, range(6))):
            assert f"--betta{number}" in shown
            assert shown.count("has no --betta") == 1


def test_an_error_is_one_short_line(workers):
    with pytest.raises(ValueError) as caught:
        ask(workers, "rlhf_type: grpo\n'" + "x" * 50_000)
    assert len(str(caught.value)) < 1600
    with pytest.raises(ValueError, match="a mistake of ours"):
        workers.ask("why", {"unknown": 1}, seconds=20, gib=1.5)


CONFINED = """
import os, socket, subprocess
from swift_vlrft.studio import worker
worker._confine(20, 2)
tried = {
    "connection": lambda: socket.create_connection(("127.0.0.1", 9)),
    "name": lambda: socket.getaddrinfo("example.org", 80),
    "shell": lambda: os.system("true"),
    "program": lambda: subprocess.run(["cat", "/etc/passwd"]),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "memory": lambda: bytearray(3 * 2**30),
}
for name, try_it in tried.items():
    try:
        try_it()
        print(name, "was possible")
    except (PermissionError, MemoryError) as error:
        print(name, "refused")
"""


def test_a_worker_connects_to_nothing_and_starts_nothing(workers, monkeypatch):
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", CONFINED], capture_output=True, text=True)
    assert done.stdout.split("\n")[:-1] == [
        f"{name} refused" for name in ("connection", "name", "shell", "program", "exec", "memory")
    ], done.stderr


def test_a_worker_has_no_secrets_and_ends_with_the_page(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    own = Workers(1)
    process = own._spares.get()
    with open(f"/proc/{process.pid}/environ") as file:
        assert "hf_canary" not in file.read()
    assert os.readlink(f"/proc/{process.pid}/cwd") == "/"
    process.stdin.close()
    process.wait(timeout=60)
    own.close()
