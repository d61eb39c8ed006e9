"""Hands a Python process over to a fork server (tests/support/fork_server.py), and waits for it."""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

# Set for every run anew and not read by an import, or put right: the server sees to it.
OF_A_RUN = {
    *("MODEL", "DATASET", "OUTPUT_DIR", "MAX_PIXELS", "MIN_PIXELS", "NPROC_PER_NODE", "PLUGIN"),
    *("REWARDS", "SWIFT_CONFIG_FILE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_ENABLE_V1_MULTIPROCESSING"),
    *("TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT"),
    *("MODELSCOPE_CACHE", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "XDG_CACHE_HOME"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "NODE_RANK", "NNODES"),
    *("PATH", "LD_LIBRARY_PATH", "MASTER_ADDR", "MASTER_PORT", "SHLVL", "_", "PWD", "OLDPWD"),
}
OF_A_RUN_PREFIXES = ("VLRFT_", "TORCHELASTIC_", "PYTEST_", "TORCH_NCCL_", "ROLLOUT_", "GLOO_")
SCRIPTS = ("/bin/swift", "/bin/vlrft", "/forked.py")


def to_hand_over(arguments: list[str]) -> list[str] | None:
    """The arguments of `swift` or `vlrft`, of what these start, or of a test's own `forked.py`;
    None for any other process.
    """
    rest = arguments[2:] if arguments[1:2] == ["-u"] else arguments[1:]  # a server's are all -u
    if rest[:1] == ["-m"]:
        ours = ("swift_vlrft.swift_plugin.inference", "swift_vlrft.swift_plugin.agreement.process")
        known = rest[1] in ("torch.distributed.run", *ours)
    else:
        known = bool(rest) and (rest[0].endswith(SCRIPTS) or "/swift/cli/" in rest[0])
    return rest if known else None


def hand_over(arguments: list[str], servers: Path) -> NoReturn:
    """Run it in a fork, and end as it ended."""
    try:
        _hand_over(arguments, servers)
    except OSError as error:  # never go on here: the fork may be at work
        _stop(f"the fork server ended, see {servers}: {error}")


def _hand_over(arguments: list[str], servers: Path) -> NoReturn:
    environment = dict(os.environ)
    connection = _connect(servers, environment)
    request = {"arguments": arguments, "environment": environment, "folder": os.getcwd()}
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [0, 1, 2])

    def forward(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            connection.send(bytes([number]))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    with connection.makefile() as answers:
        line = answers.readline()
    if not line:
        raise ConnectionError("no answer")
    code = int(line)
    if code < 0:
        with contextlib.suppress(OSError):  # of SIGKILL there is no other
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_of_a_run(name: str) -> bool:
    return name in OF_A_RUN or name.startswith(OF_A_RUN_PREFIXES)


def _connect(servers: Path, environment: dict[str, str]) -> socket.socket:
    """To the server of this environment, started where there is none."""
    kept = {name: value for name, value in environment.items() if not is_of_a_run(name)}
    key = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]
    path = servers / key
    connection = socket.socket(socket.AF_UNIX)
    with (servers / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if connection.connect_ex(str(path)):  # none yet, or it was killed
            path.unlink(missing_ok=True)
            _start(path, kept)
            connection.connect(str(path))
    return connection


def _start(path: Path, environment: dict[str, str]) -> None:
    """A server at ``path``; come back when it answers."""
    server = Path(__file__).parents[1] / "fork_server.py"
    owner = path.parent.name.split("-")[-1]
    with path.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-u", str(server), str(path), owner],
            env=environment,
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not path.exists():
        if process.poll() is not None:
            _stop(f"no server, see {log.name}")
        time.sleep(0.05)


def _stop(why: str) -> NoReturn:
    """While Python starts, an exception would bury it."""
    print(f"fork_client.py: {why}", file=sys.stderr, flush=True)
    os._exit(1)
