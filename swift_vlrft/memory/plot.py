"""A plan as a figure: one stacked bar per phase, the GPU's size as a line."""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.memory.estimate import Plan
from swift_vlrft.memory.phases import COMPONENTS
from swift_vlrft.memory.settings import GIB

COLOURS = (
    # The trainer's states in blues, what a pass needs in warm colours, the engine in greens.
    *("#1f4e8c", "#4f81bd", "#8fb4dc", "#c6d9ef"),
    *("#c0392b", "#e67e22", "#f1c40f", "#f5b7b1", "#8e44ad"),
    *("#1e8449", "#58d68d", "#a9dfbf", "#117a65", "#7f8c8d"),
)


def draw(plan: Plan, path: Path, title: str = "") -> None:
    """ValueError where matplotlib is missing or the ending is not of an image."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {path}: a name that ends in .png, .svg or .pdf is needed")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    names = [phase.name.replace("old/reference ", "") for phase in plan.phases]
    below = [0.0] * len(names)
    for component, colour in zip(COMPONENTS, COLOURS, strict=True):
        sizes = [phase.parts.get(component, 0) / GIB for phase in plan.phases]
        if max(sizes) >= 0.01:
            axes.bar(names, sizes, bottom=below, label=component, color=colour, width=0.7)
            below = [b + size for b, size in zip(below, sizes, strict=True)]
    capacity = plan.settings.gpu_bytes / GIB
    axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
    axes.text(len(names) - 0.5, capacity, f" {capacity:.1f} GiB", ha="right", va="bottom")
    for place, total in enumerate(below):
        axes.text(place, total, f"{total:.1f}", ha="center", va="bottom", fontsize=8)
    axes.set_ylabel("GiB on one GPU")
    axes.set_ylim(0, max(capacity, *below) * 1.12)
    axes.set_title(f"{title}: {plan.verdict}, peak in {plan.peak.name}".lstrip(": "))
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", rotation_mode="anchor")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
