r"""Do the nodes of a run reach each other, and agree? torchrun starts this on every node.

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29500 \
        --rdzv-conf join_timeout=60 -m swift_vlrft.diagnostics.nodes

It connects as a run does: through torch's rendezvous, gloo and, where every node has a GPU, NCCL.
Exit code 0: all agree; 1: something differs, or a sum is wrong; 2: the nodes do not come together.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from threading import Timer
from typing import Any

import psutil
import torch
import torch.distributed as dist

from swift_vlrft.diagnostics.doctor import ENGINES, NEEDED, version_of

PACKAGES = ("swift-vlrft", *NEEDED, *ENGINES, "accelerate")
VARIABLES = (
    *("NNODES", "NPROC_PER_NODE", "USE_HF", "VLRFT_SHARED_PREFIX"),
    *("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM"),
)
PREFIXES = ("NCCL_", "GLOO_")
OF_ONE_NODE = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_HOSTID")
"""Variables that name hardware of a node: they may differ."""
MOST_CLOCK = 2.0
"""Seconds between two clocks that are kept in time by nobody."""
CAUSES = """\
The nodes did not come together. Known causes:
- the address of --rdzv-endpoint is not that of the first node: `ip -brief address` there
- its port is closed, or an old run has it: `ss -ltnp` there
- a firewall: gloo and NCCL use any port, so allow all TCP ports between the nodes
- the wrong network interface, as 127.0.0.1 for a node's own name: export GLOO_SOCKET_IFNAME and
  NCCL_SOCKET_IFNAME with the name of the interface that reaches the others, on each node
- another --nnodes, or another version of torch, on one of them; or one was not started in time"""


@dataclass
class Node:
    """Holds what a node tells the others: no token and no path."""

    host: str
    address: str
    gpus: int
    same: dict[str, str]
    """Versions and variables that have to agree, by name."""
    rank: str
    """NODE_RANK, empty where it is not set."""
    clock: float = 0.0
    """Seconds since 1970, read by all nodes at once."""


def node_here() -> Node:
    """Describe this node, without its clock."""
    same = {name: version for name in PACKAGES if (version := version_of(name))}
    same |= {"python": platform.python_version(), "CUDA of torch": str(torch.version.cuda)}
    for name, value in os.environ.items():
        asked = name in VARIABLES or (name.startswith(PREFIXES) and name not in OF_ONE_NODE)
        if asked and "/" not in value:  # a path is the node's own affair
            same[name] = value
    rank = os.environ.get("NODE_RANK", "")
    return Node(socket.gethostname(), address_here(), torch.cuda.device_count(), same, rank)


def address_here() -> str:
    """Return the address from which this node reaches MASTER_ADDR, and its interface's name."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as asked:  # UDP: nothing is sent
        asked.connect(place)
        address = str(asked.getsockname()[0])
    known = {a.address.partition("%")[0]: n for n, of in psutil.net_if_addrs().items() for a in of}
    chosen = [f"{n}={os.environ[n]}" for n in OF_ONE_NODE[:2] if n in os.environ]
    return ", ".join([f"{address} ({known.get(address, 'no interface')})", *chosen])


def differences(nodes: list[Node]) -> Iterator[str]:
    """Return a line for each thing that differs between the nodes and may not."""
    for name in sorted({name for node in nodes for name in node.same}):
        values = [node.same.get(name, "not there") for node in nodes]
        if len(set(values)) > 1:
            yield f"{name}: " + ", ".join(f"{v} on node {n}" for n, v in enumerate(values))
    ranks = [node.rank for node in nodes if node.rank]
    for rank in sorted({rank for rank in ranks if ranks.count(rank) > 1}):
        yield f"NODE_RANK: {rank} on {ranks.count(rank)} nodes; 0 on the first, 1 on the second"
    if min(node.gpus for node in nodes) == 0 < max(node.gpus for node in nodes):
        yield f"GPUs: {', '.join(f'{node.gpus} on node {n}' for n, node in enumerate(nodes))}"
    for n, node in enumerate(nodes):
        if abs(ahead := node.clock - nodes[0].clock) > MOST_CLOCK:
            yield f"clock: node {n} is {ahead:+.1f} s from node 0; timedatectl set-ntp true"


def table(nodes: list[Node], sums: dict[str, bool], differs: list[str]) -> str:
    """Return what rank 0 prints: nodes, sums, what all have alike, and what differs."""
    lines = [
        f"node {n}  {node.host}  {node.address}  {node.gpus} GPUs  "
        f"clock {node.clock - nodes[0].clock:+.1f} s"
        for n, node in enumerate(nodes)
    ]
    lines += [f"{name} all-reduce  {'right' if right else 'WRONG'}" for name, right in sums.items()]
    for name, value in nodes[0].same.items():
        if all(node.same.get(name) == value for node in nodes):
            lines.append(f"{name}  {value}")
    lines += [f"DIFFERS  {line}" for line in differs] or ["all nodes agree"]
    # A variable may hold anything: nothing that a terminal would obey is printed.
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def sum_is_right(device: str, group: dist.ProcessGroup | None = None) -> bool:
    """Return whether an all-reduce of (rank + 1) over a million numbers gives n (n + 1) / 2."""
    numbers = torch.full((1_000_000,), dist.get_rank() + 1.0, device=device)
    dist.all_reduce(numbers, group=group)
    n = dist.get_world_size()
    return bool((numbers == n * (n + 1) / 2).all())


def compare(seconds: float) -> int:
    """Join, reduce and compare; return exit code 0 or 1. RuntimeError if the nodes do not join."""
    limit = timedelta(seconds=seconds)
    dist.init_process_group("gloo", timeout=limit)
    sums = {"gloo": sum_is_right("cpu")}
    here, local = node_here(), int(os.environ.get("LOCAL_RANK", "0"))
    dist.barrier()
    here.clock = time.time()
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (local, here))
    nodes = [node for its_local, node in gathered if its_local == 0]
    if all(node.gpus for node in nodes):
        torch.cuda.set_device(local)
        # A wait that is over raises; by itself NCCL's watchdog would abort the process.
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
        sums["NCCL"] = sum_is_right(f"cuda:{local}", dist.new_group(backend="nccl", timeout=limit))
    differs = list(differences(nodes))
    if dist.get_rank() == 0:
        print(table(nodes, sums, differs), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return int(bool(differs) or not all(sums.values()))


def stop(why: str) -> None:
    """End the process, though a library call that waits for the others may never return."""
    print(f"{why}\n{CAUSES}", file=sys.stderr, flush=True)
    os._exit(2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that a wait may last")
    seconds = parser.parse_args().seconds
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in needed if name not in os.environ]:
        parser.error(f"{missing[0]} is not set: start it with torchrun on every node, as in --help")
    late = Timer(2 * seconds, stop, [f"no end within {2 * seconds:.0f} s"])
    late.daemon = True
    late.start()
    try:
        code = compare(seconds)
    except (RuntimeError, OSError) as error:  # torch's own errors are RuntimeErrors
        stop(str(error).splitlines()[0])
    sys.exit(code)


if __name__ == "__main__":
    main()
