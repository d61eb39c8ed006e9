"""The demo's two pictures: the reward of every step, and held-out images with the answers before
and after.
"""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.demo.answers import score_answers
from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.geometry.boxes import Box
from swift_vlrft.parsing.answers import gold_text, read

SHOWN = 12


def draw_rewards(curves: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker=".", label=name)
    axes.legend(loc="lower right")
    axes.set(
        xlabel="step",
        ylabel="mean reward",
        ylim=(0, 1.05),
        title="GRPO: rewards of the sampled answers",
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def draw_answers(task: DemoTask, rows: list[Row], answers: list[list[str]], path: Path) -> None:
    """``answers``: the texts before and after, row by row. Boxes are drawn: gold white, before
    red, after green.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    shown = min(SHOWN, len(rows))
    figure = Figure(figsize=(12, 2.6 * ((shown + 5) // 6)), layout="constrained")
    grid = figure.subplots((shown + 5) // 6, 6, squeeze=False)
    scores = [score_answers(task, rows, texts) for texts in answers]
    for axes, i in zip(grid.flat, range(shown), strict=False):
        row, before, after = rows[i], answers[0][i], answers[1][i]
        axes.imshow(row.image, extent=(0, 1000, 1000, 0))
        axes.set_xticks([])
        axes.set_yticks([])
        if task.boxes:
            for text, colour in ((row.solution, "white"), (before, "red"), (after, "lime")):
                for box in _boxes(text):
                    if box is not None:
                        x1, y1, x2, y2 = box[:4]
                        axes.add_patch(
                            Rectangle(
                                (x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, lw=2
                            )
                        )
            title = f"reward before {scores[0][i]:.2f}, after {scores[1][i]:.2f}"
        else:
            title = f"{gold_text(row.solution)}\nbefore {_said(before)}\nafter {_said(after)}"
        axes.set_title(title, fontsize=8, color="black" if scores[1][i] >= 0.5 else "firebrick")
    figure.savefig(path, dpi=110)


def _boxes(text: str) -> list[Box | None]:
    found = read(text).boxes
    return [] if found is None else found.boxes


def _said(text: str) -> str:
    return (read(text).text or "(no answer)")[:20]
