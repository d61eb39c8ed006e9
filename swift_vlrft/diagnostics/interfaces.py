"""Which network interface carries an address, and which one gloo and NCCL will take."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator

import psutil

from swift_vlrft.diagnostics.doctor import OK, PROBLEM, Check

GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def addresses_here() -> dict[str, str]:
    """Interface by address."""
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        one.address.partition("%")[0]: name
        for name, found in psutil.net_if_addrs().items()
        for one in found
        if one.family in families
    }


def is_here(family: int, address: str) -> bool:
    """Whether a socket of this node can have the address."""
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        try:
            tried.bind((address, 0))
        except OSError as error:
            return error.errno not in (errno.EADDRNOTAVAIL, errno.EINVAL)
    return True


def interface_checks(address: str) -> Iterator[Check]:
    """Of the interface that reaches the other nodes, by its address on this node."""
    here = addresses_here()
    used = here.get(address)
    if used is None or ipaddress.ip_address(address).is_loopback:
        return
    names = set(psutil.net_if_addrs())
    yield Check("interface", OK, f"{used} ({address}) reaches the other nodes")
    nccl = os.environ.get(NCCL, "")
    if nccl and not nccl.startswith("^"):
        wanted = [name.partition(":")[0] for name in nccl.lstrip("=").split(",")]
        if not any(_means(name, one, nccl.startswith("=")) for name in names for one in wanted):
            found = f"{nccl}: no such interface here; there are {', '.join(sorted(names))}"
            yield Check(NCCL, PROBLEM, found, f"export {NCCL}={used}")
    gloo = os.environ.get(GLOO, "")
    if gloo and used not in gloo.split(","):
        found = f"{gloo}, but the other nodes are reached through {used}"
        yield Check(GLOO, PROBLEM, found, f"export {GLOO}={used}")
    if not gloo and (why := _gloo_without_name()):
        yield Check(GLOO, PROBLEM, f"not set, and {why}", f"export {GLOO}={used}")


def _means(name: str, wanted: str, exactly: bool) -> bool:
    return name == wanted if exactly else name.startswith(wanted)


def _gloo_without_name() -> str:
    """Why gloo, which takes the address of the host's name, would take a wrong one."""
    host = socket.gethostname()
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:
        return f"this node's name {host} cannot be resolved: gloo would take 127.0.0.1"
    useful = [a for a in found if a in addresses_here() and not ipaddress.ip_address(a).is_loopback]
    if useful:
        return ""
    return (
        f"this node's name {host} is {', '.join(sorted(found))}: no other node reaches gloo there"
    )
