"""A photograph shows 24 Greek coins from Pompeii, 384 x 303 pixels; scikit-image ships it.

The three upper rows of coins are for training, the lowest row, six coins, is held out: no pixel is
in both.
"""

from __future__ import annotations

import random
from typing import Any

from PIL import Image, ImageEnhance

from swift_vlrft.files.environment import need_installed

Box = tuple[int, int, int, int]  # left, top, right, bottom

WINDOW = 77  # pixels: the largest coin is 65 wide, the held-out part 78 high
CUT = 225  # the row of pixels between the third and the fourth row of coins
BOXES: list[Box] = [
    *((305, 16, 365, 72), (132, 28, 179, 74), (192, 30, 240, 73), (255, 34, 297, 72)),
    *((22, 35, 67, 74), (81, 39, 120, 74), (245, 95, 296, 144), (25, 104, 67, 145)),
    *((186, 105, 226, 144), (317, 106, 356, 145), (84, 108, 122, 145), (134, 110, 173, 145)),
    *((315, 156, 380, 218), (189, 170, 237, 217), (251, 172, 297, 217), (80, 175, 124, 217)),
    *((26, 179, 63, 217), (135, 179, 174, 217), (18, 233, 75, 288), (144, 236, 201, 288)),
    *((276, 239, 326, 289), (220, 240, 269, 288), (93, 245, 136, 287), (336, 248, 382, 289)),
]
"""A box per coin, in pixels: a watershed of the gradient between darker than 30 and brighter
than 150, opened by a disk of 3 pixels.
"""


def photograph() -> Any:
    """Return 303 x 384 pixels, greyscale, a byte each; the file is in scikit-image's wheel."""
    need_installed("skimage", "scikit-image", "the photograph of the coins is in it")
    from skimage import data

    return data.coins()


def windows(rng: random.Random, n: int, held_out: bool) -> list[tuple[Image.Image, Box]]:
    """Cut ``n`` windows with one complete coin; its box is in thousandths."""
    grey = photograph()
    top, bottom = (CUT, grey.shape[0]) if held_out else (0, CUT)
    image = Image.fromarray(grey)
    rows: list[tuple[Image.Image, Box]] = []
    while len(rows) < n:
        x, y = rng.randint(0, grey.shape[1] - WINDOW), rng.randint(top, bottom - WINDOW)
        inside = [
            (left - x, up - y, right - x, down - y)
            for left, up, right, down in BOXES
            if x <= left and right <= x + WINDOW and y <= up and down <= y + WINDOW
        ]
        if len(inside) == 1:
            window = image.crop((x, y, x + WINDOW, y + WINDOW))
            rows.append(_turned(rng, window, inside[0]))
    return rows


def _turned(rng: random.Random, window: Image.Image, box: Box) -> tuple[Image.Image, Box]:
    left, up, right, down = box
    if rng.random() < 0.5:
        window = window.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        left, right = WINDOW - right, WINDOW - left
    if rng.random() < 0.5:
        window = window.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        up, down = WINDOW - down, WINDOW - up
    if rng.random() < 0.5:
        window = window.transpose(Image.Transpose.TRANSPOSE)
        left, up, right, down = up, left, down, right
    window = ImageEnhance.Brightness(window).enhance(rng.uniform(0.7, 1.3))
    x1, y1, x2, y2 = (round(1000 * v / WINDOW) for v in (left, up, right, down))
    return window.convert("RGB"), (x1, y1, x2, y2)
