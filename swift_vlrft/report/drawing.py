"""A sample as one picture: gold boxes white, predicted boxes green, and a line on what it scored.

draw_sample(picture, "<answer>[10, 10, 500, 500]</answer>", "<answer>No Objects</answer>", ...)
"""

from __future__ import annotations

from textwrap import wrap

from PIL import Image, ImageDraw, ImageFont

from swift_vlrft.parsing.answers import gold_text, read, read_boxes

SIDE = 336
LINE = 14
LINES = 5
MOST_BOXES = 200


def draw_sample(
    picture: Image.Image,
    completion: str,
    solution: str,
    scores: dict[str, float],
    *,
    frame: str | None = None,
    task: str | None = None,
    seen: tuple[int | None, int | None] = (None, None),
) -> Image.Image:
    """An RGB picture, scaled to be looked at, with a strip of text below. ``seen`` is the size
    that boxes in pixels are measured in; default: the picture's.
    """
    size = picture.size
    scale = SIDE / max(size)
    drawn = picture.convert("RGB").resize(
        (max(1, round(size[0] * scale)), max(1, round(size[1] * scale)))
    )
    pen = ImageDraw.Draw(drawn)
    if task in ("detection", "grounding"):
        whole = (seen[0] or size[0], seen[1] or size[1]) if frame == "pixels" else (1000, 1000)
        for found, colours in (
            (read_boxes(gold_text(solution)), ("black", "white")),
            (read(completion).boxes, ("black", "lime")),
        ):
            for box in [b for b in (found.boxes if found else []) if b is not None][:MOST_BOXES]:
                corners = [v / whole[n % 2] * drawn.size[n % 2] for n, v in enumerate(box)]
                corners = [min(1e4, max(-1e4, v)) for v in corners]
                for width, colour in ((4, colours[0]), (2, colours[1])):
                    pen.rectangle(corners, outline=colour, width=width)
    page = Image.new("RGB", (SIDE, drawn.size[1] + LINE * LINES), "black")
    page.paste(drawn, ((SIDE - drawn.size[0]) // 2, 0))
    said = " ".join(f"{name.removeprefix('vlrft_')} {v:.2f}" for name, v in scores.items())
    answer = read(completion).text
    lines = [said, f"gold: {gold_text(solution)}"]
    lines += [f"answer: {'(none)' if answer is None else answer}"]
    text = [part for line in lines for part in wrap(_plain(line)[:300], 54)[:2]][:LINES]
    write = ImageDraw.Draw(page)
    font = ImageFont.load_default(11)
    for n, line in enumerate(text):
        write.text((3, drawn.size[1] + n * LINE), line, fill="white", font=font)
    return page


def _plain(text: str) -> str:
    """What the font has a sign for; a model may write anything."""
    return text.encode("ascii", "replace").decode()
