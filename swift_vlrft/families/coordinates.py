"""The one place that knows frames and how each model family resizes an image.

    resized_size("qwen2_5_vl", 640, 480)                                     (644, 476)
    resized_size("qwen2_5_vl", 640, 480, max_pixels=100_000)                 (364, 252)
    image_tokens("qwen2_5_vl", 640, 480)                                     391
    convert_box((254, 303, 291, 365), "norm1000", "pixels", size=(644, 476)) (164, 144, 187, 174)

A box is measured in ``norm1000`` (thousandths of the image's width and height) or in ``pixels`` of
the image as the model sees it, after the resize. Families go by ms-swift's ``--model_type``.
Sources: qwen-vl-utils (``smart_resize``, which ms-swift calls for Qwen), transformers' GLM-4.1V
image processor (``smart_resize`` with a time axis of two frames).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BOX_FORMATS = ("norm1000", "pixels")

Size = tuple[int, int]
"""Width, height."""

NORM1000: Size = (1000, 1000)

MAX_RATIO = 200
"""Images longer than this in one direction are refused by every family's processor."""


@dataclass(frozen=True)
class Family:
    """How a family sees images. ``min_pixels`` and ``max_pixels`` bound the resized area times
    ``frames``; both sides become multiples of ``factor``, and ``factor`` x ``factor`` pixels one
    token.
    """

    native_box_format: str
    factor: int
    min_pixels: int
    max_pixels: int
    frames: int = 1
    from_environment: bool = True
    """Whether ms-swift reads the limits from MIN_PIXELS and MAX_PIXELS; else from the
    checkpoint's preprocessor_config.json.
    """


# qwen-vl-utils: 4 to 16384 tokens an image. GLM: size of the published preprocessor_config.json.
_QWEN2 = Family("norm1000", 28, 4 * 28**2, 16384 * 28**2)
_QWEN2_5 = Family("pixels", 28, 4 * 28**2, 16384 * 28**2)
_QWEN3 = Family("norm1000", 32, 4 * 32**2, 16384 * 32**2)
_GLM = Family("norm1000", 28, 112**2, 2 * 28**2 * 6144, frames=2, from_environment=False)

FAMILIES: dict[str, Family] = {
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2_5,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "glm4v": _GLM,  # GLM-4.1V, GLM-4.6V-Flash
    "glm4v_moe": _GLM,  # GLM-4.5V, GLM-4.6V
}


def known_family(name: str) -> Family:
    """The family of that ms-swift model type; a ValueError lists the known ones."""
    if name not in FAMILIES:
        raise ValueError(f"unknown model family {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def resized_size(
    family: str,
    width: int,
    height: int,
    *,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
) -> Size:
    """Width and height of the image that the model sees; ValueError for an image no processor
    takes.

    Limits left out are the family's own. For GLM they count the image twice, as its processor's
    ``size`` does (two frames).
    """
    rule = known_family(family)
    low = rule.min_pixels if min_pixels is None else min_pixels
    high = rule.max_pixels if max_pixels is None else max_pixels
    if width < 1 or height < 1:
        raise ValueError(f"an image of {width} x {height} pixels has no area")
    if high < low:
        raise ValueError(f"max_pixels {high} is smaller than min_pixels {low}")
    if rule.frames > 1 and min(width, height) < rule.factor:  # GLM first enlarges what is tiny
        scale = max(rule.factor / width, rule.factor / height)
        width, height = int(width * scale), int(height * scale)
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ValueError(
            f"an image of {width} x {height} pixels is more than {MAX_RATIO} times as long as wide"
        )
    factor = rule.factor
    sides = [max(factor, round(side / factor) * factor) for side in (width, height)]
    area = rule.frames * sides[0] * sides[1]
    # The order of the operations is the processors' own: it decides how a tie rounds.
    if area > high:
        scale = math.sqrt(rule.frames * width * height / high)
        sides = [
            max(factor, math.floor(side / scale / factor) * factor) for side in (width, height)
        ]
    elif area < low:
        scale = math.sqrt(low / (rule.frames * width * height))
        sides = [math.ceil(side * scale / factor) * factor for side in (width, height)]
    return sides[0], sides[1]


def loses_a_side(family: str, width: int, height: int, *, max_pixels: int | None = None) -> bool:
    """Whether qwen-vl-utils, which ms-swift calls for Qwen, leaves a thin image no pixel in one
    direction and fails, where the processors themselves keep ``factor`` pixels.
    """
    rule = known_family(family)
    high = rule.max_pixels if max_pixels is None else max_pixels
    sides = [max(rule.factor, round(side / rule.factor) * rule.factor) for side in (width, height)]
    scale = math.sqrt(width * height / high)
    return (
        rule.from_environment
        and sides[0] * sides[1] > high
        and min(width, height) / scale < rule.factor
    )


def image_tokens(
    family: str,
    width: int,
    height: int,
    *,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
) -> int:
    """Tokens that an image takes in the prompt, without the two that mark its begin and end."""
    seen = resized_size(family, width, height, min_pixels=min_pixels, max_pixels=max_pixels)
    return seen[0] * seen[1] // known_family(family).factor ** 2


RESOLUTION = ("MAX_PIXELS", "MIN_PIXELS", "IMAGE_MAX_TOKEN_NUM", "IMAGE_MIN_TOKEN_NUM")
"""The variables that bound what a Qwen-VL model sees of a picture."""


def pixel_limits(
    family: str,
    *,
    model: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[int, int]:
    """min_pixels and max_pixels as ms-swift's template will have them.

    Qwen: IMAGE_MAX_TOKEN_NUM, else MAX_PIXELS in whole tokens, else the default; the same for
    MIN. GLM: ``size`` in the preprocessor_config.json of the folder ``model``; MAX_PIXELS does not
    reach it.
    """
    rule = known_family(family)
    if not rule.from_environment:
        return _limits_of_checkpoint(model) or (rule.min_pixels, rule.max_pixels)
    values = os.environ if environ is None else environ
    per_token = rule.factor**2
    limits = []
    for name, default in (("MIN", rule.min_pixels), ("MAX", rule.max_pixels)):
        tokens = _number(values, f"IMAGE_{name}_TOKEN_NUM")
        if tokens is None and (pixels := _number(values, f"{name}_PIXELS")) is not None:
            tokens = pixels // per_token
        limits.append(default if tokens is None else tokens * per_token)
    return limits[0], limits[1]


def _number(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text} is no whole number; a count of pixels is needed") from None


def _limits_of_checkpoint(model: str | os.PathLike[str] | None) -> tuple[int, int] | None:
    if model is None:
        return None
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            config = json.loads((Path(model) / name).read_text())
        except (OSError, ValueError):
            continue
        size = config.get("size") or config.get("image_processor", {}).get("size") or {}
        if "shortest_edge" in size and "longest_edge" in size:
            return int(size["shortest_edge"]), int(size["longest_edge"])
    return None


def capped_size(width: int, height: int, max_pixels: int | None) -> Size:
    """An image's size after ms-swift's flag ``--max_pixels``, which scales the picture itself
    before the family's own resize.
    """
    if max_pixels is None or max_pixels <= 0 or width * height <= max_pixels:
        return width, height
    ratio = width / height
    scaled = math.sqrt(max_pixels / ratio)
    return int(scaled * ratio), int(scaled)


def convert_box(
    box: tuple[float, float, float, float],
    from_format: str,
    to_format: str,
    *,
    size: Size,
    to_size: Size | None = None,
) -> tuple[int, int, int, int]:
    """``box`` in whole numbers of another frame, kept inside the image and never without area.

    ``size`` is the width and height that pixels refer to; ``to_size`` those that the result's
    pixels refer to, where it is another picture (the original and the resized one). There and
    back again is within one pixel, for sides up to 2000.
    """
    for frame in (from_format, to_format):
        if frame not in BOX_FORMATS:
            raise ValueError(f"unknown frame {frame!r}; known: {', '.join(BOX_FORMATS)}")
    before = NORM1000 if from_format == "norm1000" else size
    after = NORM1000 if to_format == "norm1000" else to_size or size
    x1, x2 = _whole(box[0] * after[0] / before[0], box[2] * after[0] / before[0], after[0])
    y1, y2 = _whole(box[1] * after[1] / before[1], box[3] * after[1] / before[1], after[1])
    return x1, y1, x2, y2


def _whole(start: float, end: float, limit: int) -> tuple[int, int]:
    first = min(max(math.floor(start + 0.5), 0), limit)
    last = min(max(math.floor(end + 0.5), 0), limit)
    if last <= first and start < end:  # a thin box: widen it by one, inside the image
        first = min(max(math.floor((start + end) / 2), 0), limit - 1)
        last = first + 1
    return first, last
