"""A plan as a figure: one stacked bar per phase, the GPU's size as a line."""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.files.writing import beside
from swift_vlrft.memory.estimate import Plan
from swift_vlrft.memory.phases import COMPONENTS
from swift_vlrft.memory.settings import GIB


def draw(plan: Plan, path: Path, title: str = "") -> None:
    """ValueError if matplotlib is missing or the suffix is not that of a figure."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {path}: a name that ends in .png, .svg or .pdf is needed")
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    figure, tab20 = Figure(figsize=(10, 5.5), layout="constrained"), colormaps["tab20"]
    axes = figure.subplots()
    names = [phase.name.replace("old/reference ", "") for phase in plan.phases]
    below, capacity = [0.0] * len(names), plan.settings.gpu_bytes / GIB
    for number, component in enumerate(COMPONENTS):
        sizes = [phase.parts.get(component, 0) / GIB for phase in plan.phases]
        if max(sizes) >= 0.01:
            axes.bar(names, sizes, bottom=below, label=component, width=0.7, color=tab20(number))
            below = [b + size for b, size in zip(below, sizes, strict=True)]
    axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
    axes.text(len(names) - 0.5, capacity, f" {capacity:.1f} GiB", ha="right", va="bottom")
    for place, total in enumerate(below):
        axes.text(place, total, f"{total:.1f}", ha="center", va="bottom", fontsize=8)
    axes.set_ylabel("GiB on one GPU")
    axes.set_ylim(0, max(capacity, *below) * 1.12)
    axes.set_title(f"{title}: {plan.verdict}, peak in {plan.peak.name}".lstrip(": "))
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", rotation_mode="anchor")
    figure.legend(loc="outside right upper", fontsize=8, reverse=True)
    with beside(path) as unfinished:
        figure.savefig(unfinished, dpi=120, format=path.suffix[1:])
