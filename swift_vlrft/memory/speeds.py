"""How fast a named GPU is at most, from its maker's data sheet. The numbers of 3090, A10G, L4 and
L20 are as remembered from theirs, and were not found again in public.

speed_of(parse_gpus("4xH100")).speed.tflops      989.4
speed_of(parse_gpus("4x80")).why                 "for seconds name the GPU, as --gpus ..."
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from swift_vlrft.memory.settings import CAPACITY, Gpus, known_kind

SAME_SIZE = 0.07
"""Relative difference within which a size in GB may be a known GPU: an A10 "of 24" has 22.1 GiB."""


@dataclass(frozen=True)
class Speed:
    """Peaks of one GPU; ``link`` and ``pcie`` in one direction."""

    kind: str
    tflops: float  # bfloat16 (V100, T4: float16) with float32 sums, dense
    memory: float  # GB/s
    link: float  # GB/s to the GPUs of its node: NVLink, else PCIe
    pcie: float  # GB/s to the host
    source: str


_VOLTA = "NVIDIA V100 data sheet (2020), SXM2"
_AMPERE = "NVIDIA A100 data sheet (2021), SXM4"
_HOPPER = "data sheet (2023), SXM5"
_ADA = "NVIDIA Ada GPU Architecture white paper (2023), appendix"

SPEEDS = {
    speed.kind: speed
    for speed in (
        Speed("T4", 65, 300, 16, 16, "NVIDIA T4 data sheet (2019)"),
        Speed("V100-16", 125, 900, 150, 16, _VOLTA),
        Speed("V100-32", 125, 900, 150, 16, _VOLTA),
        Speed("A10", 125, 600, 32, 32, "NVIDIA A10 data sheet (2021)"),
        Speed("A10G", 70, 600, 32, 32, "NVIDIA A10G data sheet (2021)"),
        Speed("3090", 71, 936, 32, 32, "NVIDIA GA102 white paper (2021), appendix"),
        Speed("A6000", 154.8, 768, 32, 32, "NVIDIA RTX A6000 data sheet (2021), half of sparse"),
        Speed("A100-40", 312, 1555, 300, 32, _AMPERE),
        Speed("A100-80", 312, 2039, 300, 32, _AMPERE),
        Speed("A800", 312, 2039, 200, 32, "NVIDIA A800 data sheet (2022), SXM4"),
        Speed("L4", 121, 300, 32, 32, "NVIDIA L4 data sheet (2023), half of sparse"),
        Speed("4090", 165.2, 1008, 32, 32, _ADA),
        Speed("L20", 119.5, 864, 32, 32, "NVIDIA L20 data sheet (2023)"),
        Speed("L40", 181.05, 864, 32, 32, "NVIDIA L40 data sheet (2022)"),
        Speed("L40S", 362.05, 864, 32, 32, "NVIDIA L40S data sheet (2023)"),
        Speed("H20", 148, 4000, 450, 64, "NVIDIA H20 data sheet (2023)"),
        Speed("H800", 989.4, 3350, 200, 64, f"NVIDIA H800 {_HOPPER}"),
        Speed("H100", 989.4, 3350, 450, 64, f"NVIDIA H100 {_HOPPER}"),
        Speed("H200", 989.4, 4800, 450, 64, "NVIDIA H200 data sheet (2024), SXM5"),
    )
}
"""By the names of settings.CAPACITY. What a data sheet gives for both directions is halved here."""


WITHOUT_BFLOAT16 = ("T4", "V100-16", "V100-32")

OTHERS = {"PCIE", "NVL", "D", "TI"}
"""Words after a known name that make it another GPU: an H100 PCIe is slower than an H100."""


@dataclass(frozen=True)
class Found:
    """A speed; or none, and ``why``."""

    speed: Speed | None
    why: str = ""


def speed_of(gpus: Gpus) -> Found:
    """By the name of the GPUs: no size is of one kind only (an H20 may have the H200's 141 GB)."""
    if kind := _kind(gpus):
        return Found(SPEEDS[kind])
    how = f"known: {', '.join(SPEEDS)}"
    if not re.fullmatch(r"[\d.]+ GB", gpus.name):
        why = f"the speed of {gpus.name} is not known, so there are no seconds"
        return Found(None, f"{why} ({how})")
    kinds = [kind for kind, gib in CAPACITY.items() if abs(gib / gpus.gib - 1) < SAME_SIZE]
    example = f"--gpus {gpus.count}x{kinds[0] if kinds else 'H100'}"
    several = f": {gpus.name} may be {_either([*kinds, 'another'])}" if kinds else ""
    return Found(None, f"for seconds name the GPU, as {example}{several} ({how})")


def _kind(gpus: Gpus) -> str | None:
    """Also of what nvidia-smi prints ("NVIDIA H100 80GB HBM3"), by the size if it is of several."""
    words = re.findall(r"[A-Z0-9]+", gpus.name.upper())
    if OTHERS & set(words):
        return None
    if kind := known_kind(gpus.name):
        return kind
    kinds = [kind for kind in CAPACITY if kind.split("-")[0] in words]
    near = [kind for kind in kinds if abs(CAPACITY[kind] / gpus.gib - 1) < SAME_SIZE]
    return near[0] if len(near) == 1 else None


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
