"""`torchrun ... -m swift_vlrft.diagnostics.nodes`: what differs between two nodes is named."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.swift_run import free_port

from swift_vlrft.diagnostics.nodes import Node, differences, node_here, table

NODE = Node("one", "10.0.0.1 (eth0)", 8, {"torch": "2.13.0", "ms-swift": "4.6.0"}, "0", 1000.0)
OTHER = replace(NODE, host="two", rank="1")
MODULE = "swift_vlrft.diagnostics.nodes"
QUIET = {n: v for n, v in os.environ.items() if not n.startswith(("NCCL_", "GLOO_"))}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, []),
        ({"gpus": 4, "address": "10.0.0.2 (ib0)", "clock": 1001.5}, []),
        ({"same": {"torch": "2.12.0", "ms-swift": "4.6.0"}}, ["torch: 2.13.0 on node 0, 2.12.0 o"]),
        ({"same": {"torch": "2.13.0"}}, ["ms-swift: 4.6.0 on node 0, not there on node 1"]),
        ({"same": NODE.same | {"MAX_PIXELS": "9"}}, ["MAX_PIXELS: not there on node 0, 9 on node"]),
        ({"rank": "0"}, ["NODE_RANK: 0 on 2 nodes"]),
        ({"gpus": 0}, ["GPUs: 8 on node 0, 0 on node 1"]),
        ({"clock": 1120.0}, ["clock: node 1 is +120.0 s from node 0"]),
        ({"clock": 880.0}, ["clock: node 1 is -120.0 s from node 0"]),
    ],
)
def test_what_differs(change, named):
    found = list(differences([NODE, replace(OTHER, **change)]))
    assert len(found) == len(named)
    for line, beginning in zip(found, named, strict=True):
        assert line.startswith(beginning)


def test_what_a_node_tells(monkeypatch):
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "HF_TOKEN": "hf_secret"}
    given |= {"NCCL_ALGO": "Ring", "NCCL_TOPO_FILE": "/etc/secret.xml", "GLOO_SOCKET_IFNAME": "lo"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    here = node_here()
    assert "secret" not in str(here)
    assert here.same["NCCL_ALGO"] == "Ring" and here.same["ms-swift"].startswith("4.6")
    assert here.address == "127.0.0.1 (lo), GLOO_SOCKET_IFNAME=lo"
    assert "GLOO_SOCKET_IFNAME" not in here.same  # another node's interface has another name


def test_the_table_is_printed_without_escapes():
    shown = table(
        [replace(NODE, host="\x1b]0;owned\x07"), OTHER], {"gloo": True, "NCCL": False}, []
    )
    assert "owned" in shown and not {"\x1b", "\x07"} & set(shown)
    assert "gloo all-reduce  right" in shown and "NCCL all-reduce  WRONG" in shown
    assert "torch  2.13.0" in shown and shown.endswith("all nodes agree")


def two_nodes(**variables):
    """torchrun twice on the loopback, the second with ``variables``; exit codes and output."""
    command = [str(Path(sys.executable).parent / "torchrun"), "--nnodes", "2"]
    command += [
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-conf",
        "join_timeout=600",
    ]
    command += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "-m", MODULE]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    runs = [subprocess.Popen(command, env=QUIET | more, **pipes) for more in ({}, variables)]
    printed = "".join(run.communicate(timeout=600)[0] for run in runs)
    return [run.returncode for run in runs], printed


@pytest.mark.slow
def test_two_nodes_that_agree():
    codes, printed = two_nodes()
    assert codes == [0, 0] and "gloo all-reduce  right" in printed
    assert printed.count("all nodes agree") == 1  # by node 0 alone


@pytest.mark.slow
def test_two_nodes_with_another_variable():
    codes, printed = two_nodes(NCCL_IB_DISABLE="1", HF_TOKEN="hf_secret")
    assert codes == [1, 1] and "secret" not in printed
    assert printed.count("DIFFERS") == 1 and "DIFFERS  NCCL_IB_DISABLE: " in printed


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_other_node_never_comes(rank):
    place = {
        "RANK": rank,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "--seconds", "2"],
        capture_output=True, text=True, env=QUIET | place, timeout=600,
    )  # fmt: skip
    assert done.returncode == 2 and not done.stdout
    for said in ("--rdzv-endpoint", "port", "firewall", "NCCL_SOCKET_IFNAME", "version of torch"):
        assert said in done.stderr


@pytest.mark.slow
def test_without_torchrun():
    done = subprocess.run([sys.executable, "-m", MODULE], capture_output=True, text=True, env=QUIET)
    assert done.returncode == 2 and "start it with torchrun" in done.stderr
