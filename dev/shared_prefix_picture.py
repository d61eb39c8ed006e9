"""Draws docs/project/shared_prefix.svg: rows, the packed sequence, and who sees whom in it.

python dev/shared_prefix_picture.py
"""

from pathlib import Path

INK, GREY, LINE = "#1f2933", "#e4e7eb", "#ffffff"
PROMPT, IMAGE = "#3b6ea5", "#7fb0dd"
COMPLETIONS = ["#d9822b", "#8f5fa8", "#3d9a6a"]
CELL = 17

PROMPT_TOKENS = [PROMPT, IMAGE, IMAGE, IMAGE, IMAGE, PROMPT]
LENGTHS = [3, 2, 4]


def box(x: float, y: float, colour: str, size: float = CELL) -> str:
    return f'<rect x="{x}" y="{y}" width="{size - 1}" height="{size - 1}" rx="2" fill="{colour}"/>'


def label(x: float, y: float, text: str, *, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{weight}>{text}</text>'


def rows(x: float, y: float) -> list[str]:
    """The rows as ms-swift computes them: prompt and image three times, and padding."""
    parts = [label(x, y - 12, "Stock: three rows, 30 tokens, 3 images", bold=True)]
    width = len(PROMPT_TOKENS) + max(LENGTHS)
    for r, (length, colour) in enumerate(zip(LENGTHS, COMPLETIONS, strict=True)):
        row = PROMPT_TOKENS + [colour] * length
        row += [GREY] * (width - len(row))
        parts += [box(x + i * CELL, y + r * (CELL + 5), c) for i, c in enumerate(row)]
    return parts


def packed() -> list[tuple[str, int, int]]:
    """Colour, owner (-1: the prompt) and position of every packed token."""
    tokens = [(colour, -1, i) for i, colour in enumerate(PROMPT_TOKENS)]
    for owner, length in enumerate(LENGTHS):
        start = len(PROMPT_TOKENS)
        tokens += [(COMPLETIONS[owner], owner, start + i) for i in range(length)]
    return tokens


def sequence(x: float, y: float) -> list[str]:
    parts = [label(x, y - 12, "Ours: one sequence, 15 tokens, 1 image", bold=True)]
    for i, (colour, _, position) in enumerate(packed()):
        parts.append(box(x + i * CELL, y, colour))
        parts.append(label(x + i * CELL + CELL / 2 - 0.5, y + 33, str(position), anchor="middle"))
    parts.append(label(x, y + 54, "positions: those of the separate rows"))
    return parts


def mask(x: float, y: float) -> list[str]:
    """Query down, key across; a coloured cell is computed, a grey one is not."""
    tokens = packed()
    parts = [label(x, y - 30, "Who sees whom (query down, key across)", bold=True)]
    for i, (colour, *_) in enumerate(tokens):
        parts += [box(x + i * CELL, y - CELL - 3, colour), box(x - CELL - 3, y + i * CELL, colour)]
    for q, (_, owner, _) in enumerate(tokens):
        for k, (colour, other, _) in enumerate(tokens):
            sees = k <= q and other in (-1, owner)
            parts.append(box(x + k * CELL, y + q * CELL, colour if sees else GREY))
    cut = len(PROMPT_TOKENS) * CELL - 0.5
    side = len(tokens) * CELL
    parts.append(
        f'<path d="M{x - 22} {y + cut} H{x + side}" stroke="{INK}" stroke-width="1.5" '
        'stroke-dasharray="5 3"/>'
    )
    parts.append(label(x + side + 10, y + cut / 2, "part 1: prompt x prompt, causal"))
    below = y + cut + (side - cut) / 2
    parts.append(label(x + side + 10, below, "part 2: completions x"))
    parts.append(label(x + side + 10, below + 16, "(prompt + themselves), causal"))
    return parts


def legend(x: float, y: float) -> list[str]:
    names = [
        (PROMPT, "prompt text"), (IMAGE, "image"), (COMPLETIONS[0], "completion 1"),
        (COMPLETIONS[1], "completion 2"), (COMPLETIONS[2], "completion 3"),
        (GREY, "padding, or not computed"),
    ]  # fmt: skip
    parts = []
    for i, (colour, name) in enumerate(names):
        parts += [box(x, y + i * 21, colour), label(x + 24, y + i * 21 + 13, name)]
    return parts


def draw() -> str:
    parts = [*rows(30, 50), *sequence(30, 165), *legend(30, 262), *mask(350, 78)]
    body = "\n".join(parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 400" width="840" height="400" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">\n'
        f'<rect width="840" height="400" fill="{LINE}"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "project" / "shared_prefix.svg").write_text(draw())
