"""A process that is forked ends, speaks and is stopped as one that Python starts does."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.swift_run import ON_CPU, forking, run_python

pytestmark = pytest.mark.slow

ENDINGS = {
    "an end": "print('out')",
    "a code": "import sys; print('out'); sys.exit(3)",
    "a message": "import sys; sys.exit('why')",
    "a large code": "import sys; sys.exit(257)",
    "an exception": "raise ValueError('why')",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "a thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"
    ),
    "what it was given": (
        "import os, sys\n"
        "print(sys.argv[1:], os.getcwd(), sys.stdin.read(), __name__, os.environ['MASTER_PORT'])"
    ),
    "children": (
        "import os, subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True).stdout)"
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_as_python_itself(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    forked = run_python(ENDINGS[name], "a", "b c", MASTER_PORT="7")
    plain = subprocess.run(
        [sys.executable, "-c", ENDINGS[name], "a", "b c"],
        env=os.environ | {"MASTER_PORT": "7"},
        capture_output=True,
        text=True,
    )
    assert (forked.returncode, forked.stdout) == (plain.returncode, plain.stdout)
    assert forked.stderr.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


def test_the_imports_are_done_and_none_of_ours():
    code = "print('swift' in sys.modules, 'swift_vlrft' in sys.modules)"
    assert run_python("import sys\n" + code).stdout == "True False\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_waiting_process_ends_the_forked_one(number, tmp_path):
    script, alive = tmp_path / "forked.py", tmp_path / "alive"
    script.write_text(
        "import sys, time\nwhile True:\n    open(sys.argv[1], 'w').close(); time.sleep(0.05)\n"
    )
    run_python("")  # the server is there
    process = subprocess.Popen(
        [sys.executable, str(script), str(alive)], env=os.environ | forking()
    )
    while not alive.exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(30) == -number
    time.sleep(0.5)
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


def test_a_server_that_was_killed_is_started_again(tmp_path):
    """By the system where memory is short, say. What waits for a fork of it says so and fails."""
    code = "import os, sys, time\nprint(os.getppid(), 'swift' in sys.modules, flush=True)\n"
    script = tmp_path / "forked.py"
    script.write_text(code + "time.sleep(600)")
    waiting = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | ON_CPU | forking(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = waiting.stdout.readline().split()[0]
    os.kill(int(first), signal.SIGKILL)
    while waiting.poll() is None:
        time.sleep(0.05)
    assert waiting.returncode == 1 and "the fork server ended" in waiting.stderr.read()
    again = run_python(code)
    second, forked = again.stdout.split()
    assert second != first and forked == "True"
