"""A plan as a picture: one stacked bar per phase, the card's size as a line."""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.memory.estimate import COMPONENTS, Plan
from swift_vlrft.memory.settings import GIB

# The trainer's standing memory in blues, what a pass needs in warm colours, the engine in greens.
COLOURS = {
    "weights": "#1f4e8c",
    "reference model": "#4f81bd",
    "gradients": "#8fb4dc",
    "optimizer": "#c6d9ef",
    "activations LLM": "#c0392b",
    "activations ViT": "#e67e22",
    "logits": "#f1c40f",
    "temporaries": "#f5b7b1",
    "gathers": "#8e44ad",
    "vLLM weights": "#1e8449",
    "KV cache": "#58d68d",
    "vLLM activations": "#a9dfbf",
    "CUDA graphs": "#117a65",
    "context, fragmentation": "#7f8c8d",
}


def draw(made: Plan, path: Path, title: str = "") -> None:
    """Write the picture; ValueError where matplotlib is missing or the ending is no picture's."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--plot {path}: a name that ends in .png, .svg or .pdf is needed")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    names = [phase.name.replace("old/reference ", "") for phase in made.phases]
    below = [0.0] * len(names)
    for component in COMPONENTS:
        sizes = [phase.parts.get(component, 0) / GIB for phase in made.phases]
        if max(sizes) < 0.01:
            continue
        axes.bar(names, sizes, bottom=below, label=component, color=COLOURS[component], width=0.7)
        below = [b + size for b, size in zip(below, sizes, strict=True)]
    capacity = made.settings.gpu_bytes / GIB
    axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
    axes.text(len(names) - 0.5, capacity, f" {capacity:.1f} GiB", ha="right", va="bottom")
    for place, total in enumerate(below):
        axes.text(place, total, f"{total:.1f}", ha="center", va="bottom", fontsize=8)
    axes.set_ylabel("GiB on one card")
    axes.set_ylim(0, max(capacity, *below) * 1.12)
    axes.set_title(f"{title}: {made.verdict}, peak in {made.peak.name}".lstrip(": "))
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", rotation_mode="anchor")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
