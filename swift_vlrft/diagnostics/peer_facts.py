"""What a node tells the others about itself, and what may not differ between nodes.

Sent are versions and the variables named here, nothing else: no token, no path, no file.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated

import msgspec

from swift_vlrft.diagnostics.doctor import ENGINES, NEEDED, NOTE, PROBLEM, Check, version_of

PACKAGES = ("swift-vlrft", *NEEDED, *ENGINES, "accelerate")
PACKAGES_BY_PREFIX = ("nvidia-nccl-", "nvidia-cuda-runtime")
"""CUDA's parts: their names end in the version of CUDA, or not."""
SAME = (
    *("MASTER_ADDR", "MASTER_PORT", "NNODES", "NPROC_PER_NODE", "USE_HF"),
    *("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "VLRFT_SHARED_PREFIX"),
)
"""Variables that every node has to set alike."""
RANK = "NODE_RANK"
MOST_CLOCK = 2.0
"""Seconds between two clocks that are kept in time by nobody."""

Text = Annotated[str, msgspec.Meta(max_length=200)]
Names = Annotated[dict[Text, Text], msgspec.Meta(max_length=64)]


class Facts(msgspec.Struct, frozen=True):
    """One node; what a stranger sends in its place is refused by these types."""

    host: Text
    python: Text
    gpus: Text
    packages: Names
    variables: Names


def facts_here() -> Facts:
    """Of this machine; imports none of the packages."""
    found = {name: version for name in PACKAGES if (version := version_of(name))}
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower()
        if name.startswith(PACKAGES_BY_PREFIX):
            found[name] = distribution.version
    variables = {name: os.environ[name][:200] for name in (*SAME, RANK) if name in os.environ}
    return Facts(socket.gethostname()[:200], platform.python_version(), _gpus(), found, variables)


def _gpus() -> str:
    from swift_vlrft.recipe.gpus import installed_gpus

    try:
        gpus = installed_gpus()
    except OSError as error:
        return str(error)[:200]
    kinds = sorted({f"{gpu.name}, driver {gpu.driver}" for gpu in gpus})
    return f"{len(gpus)} x {' and '.join(kinds)}"[:200] if gpus else "none"


def differences(mine: Facts, theirs: Facts, name: str) -> Iterator[Check]:
    """What differs and may not; ``name``: the other node's."""
    here, there = mine.packages, theirs.packages
    for package in sorted(here.keys() | there.keys()):
        versions = here.get(package, "none"), there.get(package, "none")
        if versions[0] != versions[1]:
            yield _differs(name, package, versions, "install the same version on both")
    if mine.python != theirs.python:
        versions = mine.python, theirs.python
        minor = mine.python.split(".")[:2] != theirs.python.split(".")[:2]
        remedy = "use one environment or container image on both"
        yield _differs(name, "Python", versions, remedy, PROBLEM if minor else NOTE)
    if mine.gpus != theirs.gpus:
        remedy = "the slowest sets the pace, the smallest the memory: `vlrft plan --gpus`"
        yield _differs(name, "GPUs", (mine.gpus, theirs.gpus), remedy, NOTE)
    for variable in SAME:
        values = (
            mine.variables.get(variable, "not set"),
            theirs.variables.get(variable, "not set"),
        )
        if values[0] != values[1]:
            yield _differs(name, variable, values, f"export {variable} alike on both")
    if (rank := mine.variables.get(RANK)) is not None and rank == theirs.variables.get(RANK):
        found = f"{rank} on both nodes"
        yield Check(f"{name} {RANK}", PROBLEM, found, "0 on the first node, 1 on the second, ...")


def _differs(
    name: str, what: str, values: tuple[str, str], remedy: str, state: str = PROBLEM
) -> Check:
    return Check(f"{name} {what}", state, f"{values[0]} here, {values[1]} there", remedy)


def clock_check(name: str, ahead: float, round_trip: float) -> Check:
    """``ahead``: seconds by which the other clock is ahead, known to half of ``round_trip``."""
    what = f"{name} clock"
    if abs(ahead) - round_trip / 2 <= MOST_CLOCK:
        return Check(what, "ok", f"agrees within {max(abs(ahead), round_trip / 2, 0.001):.3f} s")
    side = "ahead of" if ahead > 0 else "behind"
    found = f"{abs(ahead):.1f} s {side} this node's"
    remedy = "on the node that is wrong: timedatectl set-ntp true; logs, file times and TLS need it"
    return Check(what, PROBLEM, found, remedy)
