"""A photograph of 24 Greek coins from Pompeii, 384 x 303 pixels, shipped with scikit-image.

    coin_boxes(photograph())      [(305, 16, 365, 72), ...]       in pixels, as all boxes: y down

The boxes come from a segmentation: what is bright floods the gradient from above, what is dark from
below, and where they meet a coin ends. The three upper rows of coins are for training, the lowest
row, six coins, is held out: no pixel is in both.
"""

from __future__ import annotations

import random
from typing import Any

from PIL import Image, ImageEnhance

Box = tuple[int, int, int, int]  # left, top, right, bottom

WINDOW = 77  # pixels: the largest coin is 65 wide, the held-out part 78 high
CUT = 225  # the row of pixels between the third and the fourth row of coins
SMALLEST = 300  # pixels; the smallest coin has about 1,000


def photograph() -> Any:
    """Greyscale, 303 x 384, one byte per pixel; the file is in scikit-image's wheel."""
    from skimage import data

    return data.coins()


def coin_boxes(grey: Any) -> list[Box]:
    """One box per coin, in reading order of their upper edges."""
    import numpy as np
    from scipy.ndimage import binary_fill_holes
    from skimage.filters import sobel
    from skimage.measure import label, regionprops
    from skimage.morphology import disk, opening
    from skimage.segmentation import watershed

    markers = np.where(grey < 30, 1, np.where(grey > 150, 2, 0))
    coins = watershed(sobel(grey), markers) == 2
    # Opened: specks of light that touch a coin are not part of it.
    regions = regionprops(label(opening(binary_fill_holes(coins), disk(3))))
    large = (region.bbox for region in regions if region.area >= SMALLEST)
    return [(int(left), int(top), int(right), int(bottom)) for top, left, bottom, right in large]


def windows(rng: random.Random, n: int, held_out: bool) -> list[tuple[Image.Image, Box]]:
    """``n`` windows with exactly one complete coin, and its box in thousandths. Parts of other
    coins may be seen at the edges. Turned, mirrored, lighter or darker.
    """
    grey = photograph()
    boxes = coin_boxes(grey)
    top, bottom = (CUT, grey.shape[0]) if held_out else (0, CUT)
    image = Image.fromarray(grey)
    found: list[tuple[Image.Image, Box]] = []
    while len(found) < n:
        x, y = rng.randint(0, grey.shape[1] - WINDOW), rng.randint(top, bottom - WINDOW)
        inside = [
            (left - x, up - y, right - x, down - y)
            for left, up, right, down in boxes
            if x <= left and right <= x + WINDOW and y <= up and down <= y + WINDOW
        ]
        if len(inside) == 1:
            window = image.crop((x, y, x + WINDOW, y + WINDOW))
            found.append(_turned(rng, window, inside[0]))
    return found


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
