"""What a prompt says about coordinates, converted to another box format.

    norm1000   "the bounding boxes (between 0 and 1000, integer) ... {'Position': [x1, y1, x2, y2]}"
    pixels     "the bounding boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) ..."
    unit       "the bounding boxes (between 0 and 1, with three decimals) ..."
    yx1000     "(between 0 and 1000, integer) ... {'box_2d': [y1, x1, y2, x2]}"

    "坐标归一化到[0,1000)"  ->  "坐标以像素为单位，x 从 0 到 644，y 从 0 到 476"
    "in absolute pixel coordinates"  ->  "in coordinates between 0 and 1000"

A phrase that gives the range, of both axes or of each, is replaced as a whole. An amount with its
unit ("$1000", "1000 m") is left alone, and so is the range of a confidence. Whatever else still
speaks of the other format is not understood: the prompt might contradict its gold boxes, and it is
refused.
"""

import re
from collections.abc import Callable
from contextlib import suppress

from swift_vlrft.datasets.box_keys import (
    DEFAULT_KEY,
    EXAMPLE,
    HEIGHT,
    POINTS,
    WIDTH,
    WRITE,
    ZERO,
    refuse,
    with_key,
)
from swift_vlrft.geometry.box_format import BoxFormat, Size

# ---- thousandths ------------------------------------------------------------------------------

_ZERO = r"(?<![0-9A-Za-z_.$€£¥])0(?:\.0+)?"
_TOP = r"(?:1000|1,000|1[ \u00a0\u202f]000|999)(?:\.0+)?(?![0-9A-Za-z_]|[.,][0-9])"
_TO = r"\s*(?:-to-|[-–—−~～〜∼…]|\.{2,3}=?|(?:,\s*)?(?:up\s+)?to|and|through|until|到|至)\s*"
_UNITS_CHINESE = r"个?人|艘|路|元|米|公里|公斤|辆"
_NOUN = (
    r"(?:(?:normali[sz]ed|integer)\s+)?(?:coordinates?(?:\s+(?:system|space|frame))?|range|scale"
    r"|grid|interval|space|system|format|pixels?)"
)
# What may follow without a sign between; after any other word the number may count things.
_GOES_ON = (
    r"and|or|but|where|with|as|for|in|on|is|are|so|then|that|which|please|inclusive|integers?"
)
_COUNTS = rf"[ \t-]*(?!(?:{_GOES_ON})\b)[A-Za-z]"
_NO_FORMULA = r"(?<![∈=])(?<![∈=]\s)(?<![∈=][\[(])(?<![∈=]\s[\[(])"  # x ∈ [0, 1000] is no phrase
_WORD = r"(?<![A-Za-z])"
Phrases = tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]


def _phrases(top: str, call: str) -> Phrases:
    """How English, a range for each axis, and Chinese say that coordinates go from 0 to ``top``;
    ``call`` is the argument of Python's range.
    """
    span = (
        rf"(?:(?<!range)[\[(【]\s*{_ZERO}(?:\s*[,，;]\s*|{_TO}){top}\s*[\])】]"  # [0, 1000]
        rf"|range\(\s*(?:0\s*,\s*)?{call}\s*\)|{_ZERO}{_TO}{top}(?!\s?(?:{_UNITS_CHINESE})))"
    )
    english = (
        rf"(?:{_WORD}(?:(?:re)?(?:normali[sz]|scal|quanti[sz]|discreti[sz])ed|mapped|ranging|lying"
        r"|expressed)\s+)?"
        rf"(?:{_WORD}(?:to|into|in|between|within|from|on|as|onto|over|using|with)\s+)?"
        rf"(?:{_WORD}(?:an?|the)\s+)?(?:{_WORD}(?:(?:closed|integer|numeric(?:al)?|coordinate)\s+)?"
        r"(?:range|interval|scale)\s+(?:(?:of|from|is)\s+)?)?"
        rf"(?:{_WORD}(?:between|from|within|in)\s+)?"
        rf"{_NO_FORMULA}{span}(?!\s*(?:[\^²]|[x×*]\s*[\[(]))"  # nor is [0, 1000] x [0, 1000]
        rf"(?P<noun>[ \t-]+{_NOUN}\b)?(?!{_COUNTS})"
    )
    # "x from 0 to 1000, y from 0 to 1000", "0 <= x <= 1000 and 0 <= y <= 1000"
    x, y = (
        rf"(?:{axis}\s*+(?:(?::|ranges?|goes|runs|is|的?(?:取值)?范围)\s*+)?"
        rf"(?:(?:from|between|in|within|是|为|在|从)\s*+)?{span}|{_ZERO}\s*(?:<=?|≤)\s*{axis}\s*(?:<=?|≤)\s*{top})"
        for axis in "xy"
    )
    both = (
        rf"(?<![A-Za-z0-9_])(?<!\b\w, )(?<!\b\w and ){x}\s*(?:[,;，；、]|\band\b)\s*(?:and\s+)?"
        rf"{y}(?!{_COUNTS})"
    )
    chinese = (
        r"(?:(?:归一化|规范化|标准化|缩放|映射|量化)(?:到|至|为|在|于)?\s*)?"
        r"(?:(?:数值|取值)?(?:范围|区间)(?:为|是|在|从|：|:)?\s*)?(?:(?:介于|位于|在|从|为|是|以)\s*)?"
        rf"{_NO_FORMULA}{span}"
        r"(?:[ \t]*(?:之间|以内|之内|的?(?:范围|区间)(?:之?内)?|为(?:范围|区间|单位)))?"
    )
    return re.compile(english, re.I), re.compile(both, re.I), re.compile(chinese)


_ENGLISH, _BOTH_AXES, _CHINESE = THOUSANDTHS = _phrases(_TOP, "100[01]")
SHARES = _phrases(r"1(?:\.0+)?(?![0-9A-Za-z_%]|[.,][0-9])", "[12]")
# Before a range of x alone, which no phrase of both can replace
_ONE_AXIS = re.compile(
    r"(?<![\w,])(?<![xy] and )(?<![xy], )[xy]\s++(?:(?:ranges?|goes|runs|is)\s*+)?$", re.I
)
# The word that a prompt in pixels does without
_NORMALISED = re.compile(
    r"\b(?:normali[sz]ed|relative)\s+(?=(?:integer\s+)?(?:coordinates?|bounding|bbox|box)(?![A-Za-z]))"
    r"|(?:归一化|相对)的?(?=坐标)",
    re.IGNORECASE,
)
_THOUSANDTHS_LEFT = re.compile(
    r"(?<![0-9])(?<![0-9]\.)(?:1[, \u00a0\u202f]?000|999)(?![0-9]|\.[0-9]*[1-9])|\bthousand\w*"
    r"|(?<![0-9A-Za-z])1k\b|\b1e3\b|10\^3|\bper[\s-]?mill?e?\b|\bnormali[sz]ed\b|‰|归一|一千|千分",
    re.IGNORECASE,
)
# An amount or a name, which is no range of coordinates: $1000, 0 to 1000 m, bus 1000
_N = r"(?:1[, \u00a0\u202f]?000|999)(?:\.0+)?(?![0-9]|[.,][0-9])"
_UP_TO_N = rf"(?:{_ZERO}{_TO})?{_N}"
_AMOUNT = re.compile(
    rf"[$€£¥]\s?(?:0{_TO}[$€£¥]?)?{_N}"
    rf"|{_UP_TO_N}\s?-?\s?(?:dollars?|euros?|pounds?|yen|yuan|people|men|women|children|years?|hours?"
    r"|[ckm]?m|met(?:er|re)s?|feet|ft|miles?|k?g|piece)\b"
    rf"|\b(?:how\s+many|which|any|some|none)\s+of\s+(?:the|these|those)\s+{_N}\s+[a-z]"
    rf"|\b(?:bus|tram|train|flight|room|route|highway)\s+{_N}\b"
    rf"|{_UP_TO_N}\s?(?:{_UNITS_CHINESE})",
    re.IGNORECASE,
)

# ---- pixels -----------------------------------------------------------------------------------

_PIXELS = re.compile(r"[Ii]n pixels, x from 0 to \d+ and y from 0 to \d+")
_PIXELS_CHINESE = re.compile(r"以像素为单位，x 从 0 到 \d+，y 从 0 到 \d+")
# In other words than ours, and what says thousandths in their place
_KIND = r"(?:(?:absolute|actual|raw|real|integer|image|original)\s+)*"
_OTHER_PIXELS = (
    (
        rf"\b(?:in|as)\s+(?:the\s+)?{_KIND}pixels(?:\s+units)?\b(?:\s+of\s+the\s+(?:\w+\s+)?"
        r"(?:image|picture))?|\bin\s+pixel\s+units\b",
        "between 0 and 1000",
    ),
    (
        rf"\b(?:{_KIND}pixel|absolute(?=\s+c))\s+(coordinates?|values?)\b",
        r"\1 between 0 and 1000",
    ),
    (r"(?:以|用)像素(?:为|作为|做)单位|单位[为是：:]\s*像素", "在 0 到 1000 之间"),
    (r"(?:绝对)?(?:像素|绝对)的?(?=坐标)", "0 到 1000 之间的"),
)
_PIXELS_LEFT = re.compile(
    r"(?<!\d )(?<!\d)\bpixels\b|\bpx\b|\bpixel[\s-]+(?:level|wise|based|accurate|coord|value|pos|"
    r"space|unit|loc|ind|grid|frame|system|range|dim|num|box|bound)\w*|像素(?!艺术|风|画|游戏|块)"
    r"|\babsolute\s+(?:pos|loc|box|bound)\w*|绝对位置",
    re.IGNORECASE,
)
_ORIGINAL = re.compile(
    r"\b(?:pixels|coordinates|size|resolution)\s+of\s+the\s+original\b"
    r"|\boriginal\s+(?:(?:image|picture)\s+)?(?:resolution|size|pixels?|coordinates?|dimensions|scale)"
    r"\b|原(?:图|始图像)的?(?:像素|坐标|尺寸|大小|分辨率)",
    re.IGNORECASE,
)
_UP_TO = re.compile(rf"{_ZERO}(?:\s*[,，]\s*|{_TO})(\d{{3,5}})(?![0-9]|[.,][0-9])")
_BY = re.compile(r"(?<![0-9])(\d{2,5})\s*[x×*]\s*(\d{2,5})(?![0-9])")
_IDEOGRAPH = re.compile(r"[\u3400-\u9fff]")
# Said with what is refused: 1000 alone does not tell where
_SENTENCE = "\nCoordinates are whole numbers "

# ---- shares of the sides ----------------------------------------------------------------------

_UNIT = "between 0 and 1, with three decimals"
_UNIT_CHINESE = "以 0 到 1 的三位小数表示"
_UNIT_SENTENCE = f"\nCoordinates are numbers {_UNIT}."
_DECIMALS_AFTER = re.compile(
    r"(?<=between 0 and 1000),?\s*\(?(?:(?:with|to|in|rounded to|of)\s+)?(?:up to\s+)?"
    r"(?:two|three|four|five|six|[2-6])\s+decimal(?:\s+(?:places?|digits?)|s)\b\)?",
    re.IGNORECASE,
)
# The last of these before a range from 0 to 1 tells whose it is: a confidence has one too.
_OWNER = re.compile(
    r"(?P<score>confiden\w*|scores?\b|probab\w*|certain\w*|置信|概率|分数)|coord\w*|box\w*|bbox\w*"
    r"|\b[xy]\d?\b|坐标|框",
    re.IGNORECASE,
)
_UNIT_LEFT = re.compile(
    r"\bfloat\w*|\bfractions?\s+of\b|\bunit\s+(?:interval|square)|\bzero\s+(?:and|to)\s+one\b"
    r"|\bper\s?cent\w*|\brelative\s+(?:coord|pos|to)\w*|小数|百分",
    re.IGNORECASE,
)
_WHOLE_NUMBERS = (
    (r"\b(?:integer|whole)[ \t]+(?=(?:numbers?|values?|coord\w*|bounding|box\w*)\b)", ""),
    (r"\bintegers\b", "numbers"),
    (r"整数", "小数"),
)
_KIND_OF_NUMBERS = re.compile(
    r",?\s*\b(?:integers?|(?:whole\s+)?numbers)\b|整数|小数", re.IGNORECASE
)
_INTEGER_LEFT = re.compile(r"\bintegers?\b|\bwhole\s+numbers?\b", re.IGNORECASE)

_HERE = f"in pixels, x from {ZERO} to {WIDTH} and y from {ZERO} to {HEIGHT}"
_HERE_CHINESE = f"以像素为单位，x 从 {ZERO} 到 {WIDTH}，y 从 {ZERO} 到 {HEIGHT}"


def prompt_in(
    problem: str,
    before: BoxFormat,
    after: BoxFormat,
    size: Size,
    stored: Size,
    key: str | None,
    *,
    points: bool = False,
) -> str:
    """The prompt in another box format, its boxes asked for under ``key`` (None: as it says), or
    its points under the key for points that goes with it.
    ``size``: that of the image as the model sees it; ``stored``: the stored image's. ValueError if
    the prompt still speaks of the other format.
    """
    if before.decimals:
        problem = _from_unit(problem)
    if after.scale is None:
        problem = in_pixels(problem, size, stored)
    else:
        problem = in_thousandths(problem, stored if before.scale is None else None)
        if after.decimals:
            problem = _in_unit(problem)
    return problem if key is None else with_key(problem, key, points=points)


def in_thousandths(problem: str, stored: Size | None = None) -> str:
    """The prompt in norm1000: the phrase that said pixels is replaced, else a sentence is added.
    ``stored``: the size of the stored image. ValueError if the prompt still says pixels.
    """
    text = _PIXELS.sub("between 0 and 1000", problem)
    text = _PIXELS_CHINESE.sub("在 0 到 1000 之间", text)
    for pattern, words in _OTHER_PIXELS:
        text = re.sub(pattern, lambda m, w=words: _as_begun(m, m.expand(w)), text, flags=re.I)  # type: ignore[misc]
    left = _PIXELS_LEFT.search(text) or _ORIGINAL.search(text) or _side(text, stored)
    refuse(left, "norm1000 (0 to 1000)", "'in pixels'")
    if any(phrase.search(text) for phrase in THOUSANDTHS):
        return text
    return f"{text}{_SENTENCE}between 0 and 1000."


def in_pixels(problem: str, size: Size, stored: Size | None = None) -> str:
    """The prompt in pixels of an image of that width and height: the phrase that gave a range is
    replaced, else a sentence is added. ``stored``: the size of the stored image, which the prompt
    may name. ValueError if it still says thousandths, or another size.
    """
    text = _PIXELS.sub(lambda m: _as_begun(m, _HERE), problem)
    text = _PIXELS_CHINESE.sub(_HERE_CHINESE, text)
    text = _replaced(text, THOUSANDTHS, _HERE, _HERE_CHINESE)
    if ZERO in text:
        text = _NORMALISED.sub("", text)
    refuse(_thousandths_left(text), "pixels", "'between 0 and 1000'")
    if stored not in (None, size):
        named = (by for by in _BY.finditer(text) if (int(by[1]), int(by[2])) == stored)
        left = next(named, None) or _ORIGINAL.search(text) or _side(text, stored)
        refuse(left, f"pixels of the image at {size[0]} x {size[1]}")
    if ZERO not in text:
        text += f"{_SENTENCE}{_HERE}."
    return text.translate({ord(WIDTH): str(size[0]), ord(HEIGHT): str(size[1]), ord(ZERO): "0"})


def _in_unit(problem: str) -> str:
    """A prompt in thousandths, in shares of width and height."""
    here, here_chinese = (text.replace("0", ZERO, 1) for text in (_UNIT, _UNIT_CHINESE))
    text = _replaced(problem, THOUSANDTHS, here, here_chinese)
    text = re.sub(
        rf"(?<={here}),?\s+(?:as\s+)?(?:integers?|whole numbers?)\b", "", text, flags=re.I
    )
    text = re.sub(rf"(?<={here_chinese})\s*的?整数(?:表示|值)?", "", text)
    for pattern, words in _WHOLE_NUMBERS:
        text = re.sub(pattern, words, text, flags=re.I)
    refuse(_INTEGER_LEFT.search(text), "unit (0 to 1)")
    left = _thousandths_left(text, normalised=False)
    refuse(left, "unit (0 to 1)", "'between 0 and 1000'")
    return text.replace(ZERO, "0")


def _from_unit(problem: str) -> str:
    """A prompt in shares of width and height, in thousandths where it gives a range."""
    text = problem.replace(_UNIT_SENTENCE, f"{_SENTENCE}between 0 and 1000.")
    text = text.replace(_UNIT, "between 0 and 1000, integer")
    text = text.replace(_UNIT.capitalize(), "Between 0 and 1000, integer")
    text = text.replace(_UNIT_CHINESE, "在 0 到 1000 之间")
    text = _replaced(text, SHARES, "between 0 and 1000", "在 0 到 1000 之间", kept=_of_score)
    text = _DECIMALS_AFTER.sub("", text)
    refuse(_UNIT_LEFT.search(text), "another format than unit", "'between 0 and 1'")
    return text


def without_box_format(problem: str) -> str:
    """The prompt without what it says of coordinates, for comparison across box formats."""
    problem = EXAMPLE.sub("", problem)
    problem = problem.replace(_UNIT_SENTENCE, "").replace(_UNIT, "between 0 and 1000")
    problem = problem.replace(_UNIT_CHINESE, "在 0 到 1000 之间")
    with suppress(ValueError):
        problem = with_key(problem, DEFAULT_KEY, points=POINTS.key.search(problem) is not None)
    with suppress(ValueError):
        problem = in_thousandths(problem)
    with suppress(ValueError):
        problem = in_pixels(problem, (0, 0))
    problem = problem.split(_SENTENCE)[0].split(WRITE)[0]
    problem = problem.split(POINTS.sentence)[0]
    problem = _PIXELS_CHINESE.sub("", _PIXELS.sub("", problem))
    return _KIND_OF_NUMBERS.sub("", problem)


def stated_size(problem: str) -> Size | None:
    """The image size named in a prompt in pixels."""
    found = _PIXELS.search(problem) or _PIXELS_CHINESE.search(problem)
    if not found:
        return None
    _, width, _, height = re.findall(r"\d+", found[0])
    return int(width), int(height)


def _replaced(
    text: str,
    phrases: Phrases,
    here: str,
    here_chinese: str,
    kept: Callable[[re.Match[str]], bool] = lambda found: False,
) -> str:
    """``text`` with other words for the ranges of coordinates that it gives, but for those kept."""

    def say(found: re.Match[str]) -> str:
        return here_chinese if _in_chinese(found) else _as_begun(found, here)

    def say_in_english(found: re.Match[str]) -> str:
        if kept(found) or _ONE_AXIS.search(found.string[: found.start()]):
            return found[0]
        if "coordinates" in (found["noun"] or "").lower().split():
            return f"coordinates {here}"
        return _as_begun(found, here)

    english, both, chinese = phrases
    text = both.sub(say, text)
    if _IDEOGRAPH.search(text):
        text = chinese.sub(lambda m: say(m) if _in_chinese(m) and not kept(m) else m[0], text)
    return english.sub(say_in_english, text)


def _of_score(found: re.Match[str]) -> bool:
    """Whether a range is that of a confidence rather than of coordinates."""
    owners = list(_OWNER.finditer(found.string, max(0, found.start() - 80), found.start()))
    return bool(owners) and owners[-1]["score"] is not None


def _thousandths_left(text: str, *, normalised: bool = True) -> re.Match[str] | None:
    """What still speaks of thousandths; "normalised" too, unless it may."""
    amounts = [amount.span() for amount in _AMOUNT.finditer(text)]
    for found in _THOUSANDTHS_LEFT.finditer(text):
        allowed = not normalised and re.match("normali|归一", found[0], re.I)
        if not allowed and not any(start <= found.start() < end for start, end in amounts):
            return found
    return None


def _side(problem: str, stored: Size | None) -> re.Match[str] | None:
    """Where coordinates go from 0 to a side of the stored image."""
    sides = set(stored or ()) - {999, 1000}
    return next((m for m in _UP_TO.finditer(problem) if int(m[1]) in sides), None)


def _as_begun(found: re.Match[str], text: str) -> str:
    """``text`` with a capital where the phrase that it replaces had one."""
    return text[0].upper() + text[1:] if found[0][0].isupper() else text


def _in_chinese(found: re.Match[str]) -> bool:
    """Whether the phrase stands in Chinese text, rather than between English words."""
    if _IDEOGRAPH.search(found[0].replace("到", "").replace("至", "")):
        return True
    before, after = found.string[: found.start()], found.string[found.end() :]
    near = before[-2:] + after[:2] + found[0]
    return bool(_IDEOGRAPH.search(near)) and not re.search(r"[A-Za-z]\s*$", before[-9:])
