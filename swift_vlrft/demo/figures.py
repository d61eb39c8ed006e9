"""The demo's two figures: the reward of every step, and held-out images before and after."""

from __future__ import annotations

from pathlib import Path

from swift_vlrft.demo.tasks import DemoTask, Row
from swift_vlrft.parsing.answers import gold_text, read

SHOWN, COLUMNS = 12, 6


def draw_rewards(curves: dict[str, list[float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker=".", label=name)
    axes.legend(loc="lower right")
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.05))
    axes.set(title="GRPO: rewards of the sampled answers")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def draw_answers(task: DemoTask, rows: list[Row], answers: list[list[str]], path: Path) -> None:
    """``answers``: the texts before and after. Boxes: gold white, before red, after green."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.6 * SHOWN / COLUMNS), layout="constrained")
    grid = figure.subplots(SHOWN // COLUMNS, COLUMNS, squeeze=False)
    scores = [task.scores(rows, texts) for texts in answers]
    for i, (axes, row) in enumerate(zip(grid.flat, rows, strict=False)):
        before, after = answers[0][i], answers[1][i]
        axes.imshow(row.image, extent=(0, 1000, 1000, 0))
        if task.kind == "detection":
            for text, colour in ((row.solution, "white"), (before, "red"), (after, "lime")):
                found = read(text).boxes
                for x1, y1, x2, y2 in filter(None, found.boxes if found else ()):
                    axes.plot([x1, x2, x2, x1, x1], [y1, y1, y2, y2, y1], color=colour, lw=2)
            title = f"reward before {scores[0][i]:.2f}, after {scores[1][i]:.2f}"
        else:
            texts = [(read(text).text or "(no answer)")[:20] for text in (before, after)]
            title = f"{gold_text(row.solution)}\nbefore {texts[0]}\nafter {texts[1]}"
        axes.set_title(title, fontsize=8, color="black" if scores[1][i] >= 0.5 else "firebrick")
        axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)
