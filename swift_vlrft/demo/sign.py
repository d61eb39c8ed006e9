"""A digit on a sign is too small to read in the picture as the model sees it.

480 x 480   a black sign of 48 x 48 somewhere, in its upper left quarter a digit 8 pixels high
 84 x  84   as the model sees it: the digit is 1.4 pixels high, with the same ink for each
 84 x  84   the crop of that quarter: the digit is 22 pixels high
"""

from __future__ import annotations

import json
import random
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from swift_vlrft.demo.rows import FORMAT, Row, grey
from swift_vlrft.zoom.calls import TOOL, call_of
from swift_vlrft.zoom.crops import PICTURE, cut, shown

DIGITS = "0147"
SIDE, SIGN, QUARTER, HEIGHT = 480, 48, 24, 8
PLACES = (24, 96, 168, 264, 336, 408)
"""A sign's left and upper edges: on a twentieth of the picture, and inside one of the 6 x 6
patches that the model's ViT cuts it into.
"""


def sign_rows(rng: random.Random, n: int) -> list[Row]:
    """Draw ``n`` rows of the task."""
    return [_sign_row(rng) for _ in range(n)]


def _sign_row(rng: random.Random) -> Row:
    image, digit = grey(rng, SIDE), rng.choice(DIGITS)
    x, y = rng.choice(PLACES), rng.choice(PLACES)
    sign, mask = Image.new("RGB", (SIGN, SIGN)), masks()[digit]
    share = rng.uniform(0.8, 1.0)
    dimmed = mask.point([round(value * share) for value in range(256)])
    place = [(QUARTER - side) // 2 for side in mask.size]
    sign.paste(Image.new("RGB", mask.size, "white"), (place[0], place[1]), dimmed)
    image.paste(sign, (x, y))
    box = [round(1000 * v / SIDE) for v in (x, y, x + QUARTER, y + QUARTER)]
    text = f"Which digit is on the sign? {FORMAT} To look closer, call {TOOL} with bbox_2d first."
    columns = {"zoom_box": json.dumps(box), "task": "classification"}
    return Row(image, text, f"<answer>{digit}</answer>", columns)


def sign_call(zoom_box: str) -> str:
    """Return the call of the tool that looks at a row's sign."""
    return call_of(zoom_box.strip("[]"))


def crop_turns(picture: str, zoom_box: str, thought: str) -> tuple[list[dict[str, str]], bytes]:
    """Return the turns of such a call and its reply, and the crop that the reply shows."""
    image = Image.open(picture)
    part = cut(json.loads(zoom_box), image.size, "norm1000")
    assert part is not None, "a sign lies inside its picture"
    call = {"role": "assistant", "content": thought + sign_call(zoom_box)}
    return [call, {"role": "user", "content": PICTURE}], shown(image, part)


@cache
def masks() -> dict[str, Image.Image]:
    """Return the mask of each digit, as faint as gives all digits the same ink: how bright the sign
    is from afar does not tell the digit.
    """
    drawn = {digit: _mask(digit) for digit in DIGITS}
    ink = {d: sum(v * n for v, n in enumerate(mask.histogram())) for d, mask in drawn.items()}
    least = min(ink.values())
    return {
        digit: mask.point([round(value * least / ink[digit]) for value in range(256)])
        for digit, mask in drawn.items()
    }


def _mask(digit: str) -> Image.Image:
    font = ImageFont.load_default(size=HEIGHT * 1.4)
    left, up, right, down = font.getbbox(digit)
    mask = Image.new("L", (int(right - left), int(down - up)))
    ImageDraw.Draw(mask).text((-left, -up), digit, fill=255, font=font)
    return mask
