"""Define the box formats, and convert boxes between them.

    norm1000  [254, 303, 291, 365]                thousandths of the image's width and height
    pixels    [164, 144, 187, 174]                pixels of the image as the model sees it, resized
    unit      [0.254, 0.303, 0.291, 0.365]        shares of width and height, three decimals
    yx1000    {"box_2d": [303, 254, 365, 291]}    thousandths, y first

    convert_box((254, 303, 291, 365), "norm1000", "pixels", size=(644, 476)) (164, 144, 187, 174)

How a prompt asks for each is in datasets/prompt_sentences.toml.
"""

import math
from dataclasses import dataclass

Size = tuple[int, int]
"""Width, height."""
Corners = tuple[float, float, float, float]


@dataclass(frozen=True)
class BoxFormat:
    """The right and the lower edge are at ``scale``, None in pixels. Numbers have ``decimals``;
    ``key`` is the only key of a box that can be read in this format, None for any.
    """

    name: str
    scale: int | None
    decimals: int = 0
    key: str | None = None

    @property
    def y_first(self) -> bool:
        return self.key == Y_FIRST_KEY

    def edges(self, size: Size) -> Size:
        """Return the largest x and y of a box, in an image of that size."""
        return size if self.scale is None else (self.scale, self.scale)

    def __str__(self) -> str:
        return self.name if self.scale is None else f"{self.name} (0 to {self.scale})"


Y_FIRST_KEY = "box_2d"
"""Google's key: numbers under it are y1, x1, y2, x2 (parsing/boxes.py reads them so)."""
FORMATS = {
    form.name: form
    for form in (
        BoxFormat("norm1000", 1000),
        BoxFormat("pixels", None),
        BoxFormat("unit", 1, decimals=3),
        BoxFormat("yx1000", 1000, key=Y_FIRST_KEY),
    )
}
BOX_FORMATS = tuple(FORMATS)
NATIVE = "native"
"""The subset of a data set that is in the format that the command's model was trained on."""
SUBSETS = (*BOX_FORMATS, NATIVE)


def box_format(name: str) -> BoxFormat:
    """Return the format of that name; a ValueError lists the known names."""
    if name not in FORMATS:
        raise ValueError(f"unknown box format {name!r}; known: {', '.join(BOX_FORMATS)}")
    return FORMATS[name]


def convert_box(
    box: Corners, from_format: str, to_format: str, *, size: Size, to_size: Size | None = None
) -> Corners:
    """Convert the numbers of ``box`` to another format, each in the order of its format.

    They are rounded to the unit of the result (a pixel, a thousandth), kept inside the image and
    never without area.

    ``size`` is the width and height that pixels refer to; ``to_size`` those of the result, if they
    differ (the original and the resized image). An edge inside the image moves by at most half a
    unit; of a box so thin that both of its edges round to one, one edge moves by up to a unit.
    """
    before, after = box_format(from_format), box_format(to_format)
    return _in_order(rescaled(_in_order(box, before), before, after, size, to_size), after)


def rescaled(
    box: Corners, before: BoxFormat, after: BoxFormat, size: Size, to_size: Size | None = None
) -> Corners:
    """Do ``convert_box`` for corners x1, y1, x2, y2 in every format, as ``read_boxes`` gives."""
    (width, height), (right, bottom) = before.edges(size), after.edges(to_size or size)
    unit = 10**after.decimals
    right, bottom = right * unit, bottom * unit
    # Multiplied first: of whole numbers, only the division rounds.
    x1, x2 = _rounded(box[0] * right / width, box[2] * right / width, right)
    y1, y2 = _rounded(box[1] * bottom / height, box[3] * bottom / height, bottom)
    return (x1, y1, x2, y2) if unit == 1 else (x1 / unit, y1 / unit, x2 / unit, y2 / unit)


def _in_order(box: Corners, of: BoxFormat) -> Corners:
    """Corners from x-first to the order of a format, or back."""
    return (box[1], box[0], box[3], box[2]) if of.y_first else box


def _rounded(start: float, end: float, limit: int) -> tuple[int, int]:
    first = min(max(math.floor(start + 0.5), 0), limit)
    last = min(max(math.floor(end + 0.5), 0), limit)
    if last <= first and start < end:  # a thin box: widen it by one, inside the image
        first = min(max(math.floor((start + end) / 2), 0), limit - 1)
        last = first + 1
    return first, last
