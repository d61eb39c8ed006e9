"""`torchrun ... -m swift_vlrft.diagnostics.nodes`: what differs between two nodes is named."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from support.swift_run import free_port, run_python

from swift_vlrft.diagnostics import nodes
from swift_vlrft.diagnostics.nodes import Node, differences, node_here, table

NODE = Node("one", "10.0.0.1 (eth0)", 8, {"torch": "2.13.0", "ms-swift": "4.6.0"}, "0", 1000.0)
OTHER = replace(NODE, host="two", rank="1")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, []),
        ({"gpus": 4, "address": "10.0.0.2 (ib0)", "clock": 1001.5}, []),
        ({"same": {"torch": "2.12.0", "ms-swift": "4.6.0"}}, ["torch: 2.13.0 on node 0, 2.12.0 o"]),
        ({"same": {"torch": "2.13.0"}}, ["ms-swift: 4.6.0 on node 0, "]),
        ({"same": NODE.same | {"MAX_PIXELS": "9"}}, ["MAX_PIXELS: "]),
        ({"rank": "0"}, ["NODE_RANK: 0 on 2 nodes"]),
        ({"gpus": 0}, ["GPUs: 8 on node 0, 0 on node 1"]),
        ({"clock": 1120.0}, ["clock: node 1 is +120.0 s"]),
        ({"clock": 880.0}, ["clock: node 1 is -120.0 s"]),
    ],
)
def test_what_differs(change, named):
    lines = list(differences([NODE, replace(OTHER, **change)]))
    assert [line[: len(start)] for line, start in zip(lines, named, strict=True)] == named


def test_what_a_node_tells(monkeypatch):
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "HF_TOKEN": "hf_secret"}
    variables |= {"NCCL_ALGO": "Ring", "NCCL_TOPO_FILE": "/etc/secret", "GLOO_SOCKET_IFNAME": "lo"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    here = node_here()
    assert "secret" not in str(here)
    assert here.same["NCCL_ALGO"] == "Ring" and here.same["ms-swift"].startswith("4.6")
    assert here.address == "127.0.0.1 (lo), GLOO_SOCKET_IFNAME=lo"
    assert "GLOO_SOCKET_IFNAME" not in here.same  # another node's interface has another name


def test_the_table_is_printed_without_escapes():
    owned = replace(NODE, host="\x1b]0;owned\x07")
    shown = table([owned, OTHER], {"gloo": True, "NCCL": False}, [])
    assert "owned" in shown and not {"\x1b", "\x07"} & set(shown)
    assert "gloo all-reduce  right" in shown and "NCCL all-reduce  WRONG" in shown
    assert "torch  2.13.0" in shown and shown.endswith("all nodes agree")


@pytest.fixture
def quiet(monkeypatch):
    for name in os.environ:
        if name.startswith(("NCCL_", "GLOO_")):
            monkeypatch.delenv(name)


def ranks(*variables, seconds="300"):
    """A process with each of the variables, of two that are to come; exit codes and output."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    code = "from swift_vlrft.diagnostics.nodes import main; main()"

    def start(more):
        return run_python(code, "--seconds", seconds, **place, **more)

    with ThreadPoolExecutor() as threads:
        return list(threads.map(start, variables))


@pytest.mark.slow
@pytest.mark.parametrize("pixels", ["9", "10"])
def test_two_nodes_that_agree_or_do_not(quiet, pixels):
    both = {"MASTER_PORT": free_port()}
    first, second = ranks(
        both | {"RANK": "0", "MAX_PIXELS": "9"}, both | {"RANK": "1", "MAX_PIXELS": pixels}
    )
    assert first.returncode == second.returncode == (pixels == "10"), first.stderr
    assert "gloo all-reduce  right" in first.stdout and not second.stdout
    assert ("all nodes agree" in first.stdout) == (pixels == "9")
    assert ("DIFFERS  MAX_PIXELS: " in first.stdout) == (pixels == "10")


@pytest.mark.slow
def test_the_other_node_never_comes(quiet):
    for done in ranks({"RANK": "0"}, {"RANK": "1"}, seconds="1"):
        assert done.returncode == 2 and not done.stdout and "--rdzv-endpoint" in done.stderr


def test_without_torchrun(monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", ["nodes"])
    with pytest.raises(SystemExit) as end:
        nodes.main()
    assert end.value.code == 2 and "torchrun" in capsys.readouterr().err


@pytest.mark.nightly
def test_torchrun_starts_it_on_two_nodes(quiet):
    command = [str(Path(sys.executable).parent / "torchrun"), "--nnodes", "2"]
    command += ["--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-conf"]
    command += ["join_timeout=600", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    command += ["-m", nodes.__name__]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = "".join(run.communicate(timeout=600)[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0] and printed.count("all nodes agree") == 1
