"""No test has a port or a folder of another."""

import os
import subprocess
import sys

from support.own import LOCKS, free_port, own_folders
from support.swift_run import REPOSITORY

ASK = "from support.own import free_port; print(*(free_port() for _ in range(20))); input()"


def test_processes_that_ask_at_the_same_time_get_different_ports():
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", ASK],
            cwd=REPOSITORY / "tests",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    ports = [free_port() for _ in range(20)]
    ports += [port for process in asking for port in process.stdout.readline().split()]
    for process in asking:
        process.communicate("\n")
    assert len(set(ports)) == len(ports) == 100 and LOCKS.is_dir()


def test_every_cache_is_below_a_folder_of_the_test(tmp_path_factory):
    base = str(tmp_path_factory.getbasetemp())
    assert all(
        os.environ[name].startswith(base) for name in own_folders(tmp_path_factory.getbasetemp())
    )
