"""What both sides say of every token, as a picture."""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.agreement.measurement import Measurement
from swift_vlrft.agreement.verdict import Verdict
from swift_vlrft.files.writing import beside


def draw(measured: Measurement, verdict: Verdict, path: Path) -> None:
    """The engine's log-probability of each token against the trainer's; on the line they agree."""
    from matplotlib.figure import Figure

    sides = [("as it is", measured.rows)]
    if measured.moved is not None:
        sides.append((f"weights moved by {measured.moved.step:.0%}", measured.moved.rows))
    figure = Figure(figsize=(4.5 * len(sides), 4.2), layout="constrained")
    for axes, (title, rows) in zip(
        figure.subplots(1, len(sides), squeeze=False)[0], sides, strict=True
    ):
        ends: list[float] = []
        for name, colour, with_images in (
            ("image rows", "tab:blue", True),
            ("text rows", "tab:orange", False),
        ):
            chosen = [row for row in rows if bool(row.images) == with_images and row.comparable]
            engine = [value for row in chosen for value in row.engine]
            trainer = [value for row in chosen for value in row.trainer]
            if engine:
                axes.scatter(engine, trainer, s=6, color=colour, label=name, alpha=0.5)
                ends += [*engine, *trainer]
        if ends:
            axes.axline((min(ends), min(ends)), slope=1, color="black", linewidth=0.6)
            axes.legend(fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(f"log-probability, {measured.engine}")
        axes.set_ylabel("log-probability, trainer")
    named = ", ".join(cause.name for cause in verdict.causes)
    figure.suptitle(verdict.word + (f": {named}" if named else ""), fontsize=11)
    with beside(path) as unfinished:
        figure.savefig(unfinished, dpi=110, format="png")
