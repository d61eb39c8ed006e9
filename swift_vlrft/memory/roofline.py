"""Seconds of a piece of work on one GPU: the slowest of what it needs, and what nothing hides.

Cost(operations=4e14, memory=3e10).on(SPEEDS["H100"])      (0.898, "compute")
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swift_vlrft.memory.settings import Settings
from swift_vlrft.memory.speeds import Speed

COMPUTE = 0.45
"""Share of the peak that passes of PyTorch's and vLLM's matrix products reach. Assumed, as are the
others: published trainings of dense models report 0.3 to 0.55 (model FLOPs utilization)."""

MEMORY = 0.7
"""Share of the memory's bandwidth."""

LINK = 0.6
"""Share of the bandwidth between GPUs that a collective operation of NCCL reaches."""

PCIE = 0.6
"""Share of PCIe's bandwidth that a copy between host and GPU reaches."""

BETWEEN_NODES = 25.0
"""GB/s of each GPU to other nodes: 200 Gb/s of InfiniBand. Assumed."""

LAUNCHES = 0.6e-3
"""Seconds in which Python launches one decoder layer's kernels, forward. Assumed; twice as long
under ZeRO-3, whose hooks run in front of and behind every module."""


@dataclass(frozen=True)
class Cost:
    """What one GPU does: operations, bytes by way, and seconds on the CPU."""

    operations: float = 0
    memory: float = 0
    link: float = 0
    pcie: float = 0
    launches: float = 0  # Seconds that pass beside the GPU's work
    serial: float = 0  # Seconds that the GPU waits
    nodes: int = 1

    def times(self, factor: float) -> Cost:
        names = ("operations", "memory", "link", "pcie", "launches", "serial")
        return replace(self, **{name: getattr(self, name) * factor for name in names})

    def on(self, speed: Speed) -> tuple[float, str]:
        """Seconds, and what takes them."""
        link = speed.link if self.nodes == 1 else min(speed.link, BETWEEN_NODES)
        found = {
            "compute": self.operations / (COMPUTE * speed.tflops * 1e12),
            "memory": self.memory / (MEMORY * speed.memory * 1e9),
            "link": self.link / (LINK * link * 1e9),
            "PCIe": self.pcie / (PCIE * speed.pcie * 1e9),
            "launches": self.launches,
        }
        bound = max(found, key=found.__getitem__)
        seconds = found[bound]
        return seconds + self.serial, "CPU" if self.serial > seconds else bound


def all_gather(s: Settings, size: float) -> float:
    """Bytes that each process receives so that all have ``size`` bytes: its own part is there."""
    return size * (s.processes - 1) / max(1, s.processes)


def launching(s: Settings, layers: int, passes: float) -> float:
    """Seconds of launches for ``passes`` forward passes."""
    return LAUNCHES * layers * passes * (2 if s.zero == 3 else 1)
