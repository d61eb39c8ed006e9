"""Plan a run: does its largest phase fit into a GPU?

plan = estimate(settings)
plan.peak.name, plan.peak.total, plan.verdict        "backward", 65712345088, "fits"
"""

from dataclasses import dataclass, replace
from typing import Any, Self

from swift_vlrft.memory import vllm
from swift_vlrft.memory.activations import Components, size_of
from swift_vlrft.memory.phases import COMPONENTS, CONTEXT, phases
from swift_vlrft.memory.settings import GIB, Settings
from swift_vlrft.memory.states import States, model_states

ERROR = 0.1
"""Relative error of the peak: a plan within it of the GPU's size is called tight. Half of the sizes
in published runs are nearer (benchmarks/memory_cases.py)."""

HOST = 2
"""GiB of host memory for each GiB of its GPUs that a node is assumed to have, at least. No change
is proposed that needs more."""


@dataclass(frozen=True)
class Phase:
    name: str
    parts: Components

    @property
    def total(self) -> int:
        """Return the reserved bytes, which nvidia-smi shows."""
        return size_of(self.parts)

    @property
    def allocated(self) -> int:
        """Return the bytes in use: tensors, and the engine's share."""
        return self.total - self.parts.get(CONTEXT, 0)


@dataclass(frozen=True)
class Plan:
    settings: Settings
    phases: list[Phase]
    host: int  # Bytes of host memory per node for offloading and the sleeping engine
    failures: tuple[str, ...] = ()
    """Reasons why it cannot work whatever the peak: vLLM would not start."""

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def headroom(self) -> int:
        return self.settings.gpu_bytes - self.peak.total

    @property
    def usual_host(self) -> int:
        """Return the bytes of host memory that a node with these GPUs is assumed to have."""
        settings = self.settings
        return HOST * settings.gpu_bytes * settings.spread * settings.processes_per_node

    @property
    def verdict(self) -> str:
        """Return fits, tight, does not start or out of memory."""
        if self.headroom < 0 or self.failures:
            return "out of memory" if self.headroom < 0 else "does not start"
        return "tight" if self.peak.total * (1 + ERROR) > self.settings.gpu_bytes else "fits"

    @property
    def fits(self) -> bool:
        return self.headroom >= 0 and not self.failures

    def with_notes(self, *notes: str) -> Self:
        """Add assumptions, except those that are empty."""
        assumptions = (*self.settings.assumptions, *filter(None, notes))
        return replace(self, settings=replace(self.settings, assumptions=assumptions))

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "phase": self.peak.name,
            "peak_gib": gib(self.peak.total),
            "capacity_gib": gib(self.settings.gpu_bytes),
            "headroom_gib": gib(self.headroom),
            "allocated_gib": gib(self.peak.allocated),
            "reserved_gib": gib(self.peak.total),
            "host_gib": gib(self.host),
            "error": ERROR,
            "failures": list(self.failures),
            "phases": {
                phase.name: {
                    "total_gib": gib(phase.total),
                    "allocated_gib": gib(phase.allocated),
                    **{name: gib(phase.parts[name]) for name in COMPONENTS if name in phase.parts},
                }
                for phase in self.phases
            },
            "assumptions": list(self.settings.assumptions),
        }


def gib(value: float) -> float:
    return round(value / GIB, 2)


def estimate(settings: Settings) -> Plan:
    states = model_states(settings)
    engine = vllm.engine(settings) if settings.colocated else None
    peaks = [Phase(name, parts) for name, parts in phases(settings, states, engine).items()]
    return Plan(settings, peaks, _host(settings, states, engine), _failures(settings, engine))


def _failures(settings: Settings, engine: vllm.Engine | None) -> tuple[str, ...]:
    if engine is None:
        return ()
    needed = engine.weights + engine.profile + engine.needed_kv
    if needed <= engine.share:
        return ()
    share = needed / settings.gpu_bytes
    if needed - engine.needed_kv + vllm.row_bytes(settings, settings.length) <= engine.share:
        way = f"--vllm_max_model_len for rows of {settings.length} tokens makes it smaller"
    elif share < 0.95:
        way = f"{share + 0.01:.2f} holds them"
    else:
        way = "a larger vllm_tensor_parallel_size divides the weights"
    return (
        f"vLLM start: weights {gib(engine.weights)}, its profiled pass {gib(engine.profile)} and "
        f"the KV cache of one row of {settings.vllm_max_length or settings.length} tokens "
        f"{gib(engine.needed_kv)} GiB do not go into --vllm_gpu_memory_utilization "
        f"{settings.vllm_utilization:g} ({gib(engine.share)} GiB); {way}",
    )


def _host(settings: Settings, states: States, engine: vllm.Engine | None) -> int:
    per_gpu = 0
    if engine:
        per_gpu += engine.host + states.moments * settings.offload_optimizer
        per_gpu += (states.weights + states.reference) * settings.offload_model
    return states.host // max(1, settings.nodes) + per_gpu * settings.processes_per_node
