"""What a prompt says about coordinates, in another box format.

    "the bounding boxes (between 0 and 1000, integer)"      a prompt in norm1000
    "the bounding boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer)"

    "坐标归一化到[0,1000)"  ->  "坐标以像素为单位，x 从 0 到 644，y 从 0 到 476"
    "in absolute pixel coordinates"  ->  "in coordinates between 0 and 1000"

A phrase that gives the range is replaced as a whole. Whatever else still speaks of thousandths, or
of pixels, is not understood: the prompt might contradict its gold boxes, and it is refused.
"""

import re
from contextlib import suppress

from swift_vlrft.families.coordinates import Size

# ---- thousandths ------------------------------------------------------------------------------

_ZERO = r"(?<![0-9A-Za-z_.])0(?:\.0+)?"
_TOP = r"(?:1000|1,000|1[ \u00a0\u202f]000|999)(?:\.0+)?(?![0-9A-Za-z_]|[.,][0-9])"
_TO = r"\s*(?:-to-|[-–—−~～〜∼…]|\.{2,3}=?|(?:,\s*)?(?:up\s+)?to|and|through|until|到|至)\s*"
_RANGE = (
    rf"(?:(?<!range)[\[(【]\s*{_ZERO}(?:\s*[,，;]\s*|{_TO}){_TOP}\s*[\])】]"  # [0, 1000], (0-1000)
    rf"|range\(\s*(?:0\s*,\s*)?100[01]\s*\)|{_ZERO}{_TO}{_TOP})"
)
_NOUN = (
    r"(?:(?:normali[sz]ed|integer)\s+)?(?:coordinates?(?:\s+(?:system|space|frame))?|range|scale"
    r"|grid|interval|space|system|format|pixels?)"
)
# What may follow without a sign between; after any other word the number may count things.
_GOES_ON = (
    r"and|or|but|where|with|as|for|in|on|is|are|so|then|that|which|please|inclusive|integers?"
)
_NO_FORMULA = r"(?<![∈=])(?<![∈=]\s)(?<![∈=][\[(])(?<![∈=]\s[\[(])"  # x ∈ [0, 1000] is no phrase
_WORD = r"(?<![A-Za-z])"
_ENGLISH = re.compile(
    rf"(?:{_WORD}(?P<verb>ranges?|runs?|goes|go)\s+(?:from|between|over|in)\s+"
    rf"|(?:{_WORD}(?:(?:re)?(?:normali[sz]|scal|quanti[sz]|discreti[sz])ed|mapped|ranging|lying"
    r"|expressed)\s+)?"
    rf"(?:{_WORD}(?:to|into|in|between|within|from|on|as|onto|over|using|with)\s+)?"
    rf"(?:{_WORD}(?:an?|the)\s+)?(?:{_WORD}(?:(?:closed|integer|numeric(?:al)?|coordinate)\s+)?"
    r"(?:range|interval|scale)\s+(?:(?:of|from|is)\s+)?)?"
    rf"(?:{_WORD}(?:between|from|within|in)\s+)?)"
    rf"{_NO_FORMULA}{_RANGE}(?!\s*(?:[\^²]|[x×*]\s*[\[(]))"  # nor is [0, 1000] x [0, 1000]
    rf"(?P<noun>[ \t-]+{_NOUN}\b)?(?![ \t-]*(?!(?:{_GOES_ON})\b)[A-Za-z])",
    re.IGNORECASE,
)
_CHINESE = re.compile(
    r"(?:(?:归一化|规范化|标准化|缩放|映射|量化)(?:到|至|为|在|于)?\s*)?"
    r"(?:(?:数值|取值)?(?:范围|区间)(?:为|是|在|从|：|:)?\s*)?(?:(?:介于|位于|在|从|为|是|以)\s*)?"
    rf"{_NO_FORMULA}{_RANGE}"
    r"(?:[ \t]*(?:之间|以内|之内|的?(?:范围|区间)(?:之?内)?|为(?:范围|区间|单位)))?"
    r"(?:[ \t]*的?(?:(?:相对|归一化)的?)?(?P<what>整数坐标|坐标值?|整数))?"
)
# x from 0 to 1000, where y is said apart
_ONE_AXIS = re.compile(
    r"(?P<start>(?<![\w,])(?<![xy] and )(?<![xy], )(?<![xy]\d, )(?<![xy]\d and )(?P<axis>[xy])"
    r"(?:[- ](?:coordinates?|values?|axis))?\s+(?:(?:ranges?|runs?|goes|go|is|are)\s+)?"
    rf"(?:from|between|in|within)\s+[\[(]?{_ZERO}(?:\s*,\s*|{_TO})){_TOP}",
    re.IGNORECASE,
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

# ---- pixels -----------------------------------------------------------------------------------

_PIXELS = re.compile(r"[Ii]n pixels, x from 0 to \d+ and y from 0 to \d+")
_PIXELS_CHINESE = re.compile(
    r"以像素为单位(?:的(?P<what>整数坐标|坐标值?|整数))?，x 从 0 到 \d+，y 从 0 到 \d+"
)
# In other words than ours, and what they leave where thousandths take their place
_KIND = r"(?:(?:absolute|actual|raw|real|integer|image|original)\s+)*"
_OTHER_PIXELS = re.compile(
    rf"\b(?:in|as)\s+(?:the\s+)?{_KIND}pixels(?:\s+units)?\b(?:\s+of\s+the\s+(?:\w+\s+)?"
    rf"(?:image|picture))?|\bin\s+pixel\s+units\b"
    rf"|\b(?:{_KIND}pixel|absolute(?=\s+c))\s+(?P<what>coordinates?|values?)\b",
    re.IGNORECASE,
)
_OTHER_PIXELS_CHINESE = re.compile(
    r"(?:以|用)像素(?:为|作为|做)单位|单位[为是：:]\s*像素|(?:绝对)?(?:像素|绝对)(?:的?(?P<what>坐标值?))"
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
_ONE_MORE = "\nCoordinates are whole numbers "

# Characters that no text holds, for the sides of the picture and for our own 0
WIDTH, HEIGHT, NOUGHT = "\ufdd0", "\ufdd1", "\ufdd2"
_HERE = f"in pixels, x from {NOUGHT} to {WIDTH} and y from {NOUGHT} to {HEIGHT}"


def in_thousandths(problem: str, stored: Size | None = None) -> str:
    """The prompt saying norm1000: in the place where it said pixels, else in a sentence more.
    ``stored``: the picture's own size. ValueError where the prompt still says pixels.
    """
    made = _PIXELS.sub("between 0 and 1000", problem)
    made = _PIXELS_CHINESE.sub(
        lambda said: f"在 0 到 1000 之间{'的' + said['what'] if said['what'] else ''}", made
    )
    made = _OTHER_PIXELS.sub(_in_thousandths, made)
    made = _OTHER_PIXELS_CHINESE.sub(
        lambda said: f"0 到 1000 之间的{said['what']}" if said["what"] else "在 0 到 1000 之间",
        made,
    )
    left = _PIXELS_LEFT.search(made) or _ORIGINAL.search(made) or _side(made, stored)
    _refuse(left, "norm1000 (0 to 1000)", "'in pixels'")
    if _ENGLISH.search(made) or _CHINESE.search(made):
        return made
    return f"{made}{_ONE_MORE}between 0 and 1000."


def in_pixels(problem: str, size: Size, stored: Size | None = None) -> str:
    """The prompt saying pixels of an image of that width and height: in the place where it said
    a frame, else in a sentence more. ``stored``: the size of the picture as it is stored, which the
    prompt may name. ValueError where it still says thousandths, or another size.
    """
    made = _PIXELS.sub(lambda said: said[0][0] + _HERE[1:], problem)
    made = _PIXELS_CHINESE.sub(_chinese, made)
    made = _ONE_AXIS.sub(
        lambda said: said["start"] + (WIDTH if said["axis"] in "xX" else HEIGHT), made
    )
    if _IDEOGRAPH.search(made):
        made = _CHINESE.sub(lambda m: _chinese(m) if _in_chinese(m) else m[0], made)
    made = _ENGLISH.sub(_english, made)
    if NOUGHT in made:
        made = _NORMALISED.sub("", made)
    _refuse(_THOUSANDTHS_LEFT.search(made), "pixels", "'between 0 and 1000'")
    if stored not in (None, size):
        named = (by for by in _BY.finditer(made) if (int(by[1]), int(by[2])) == stored)
        left = next(named, None) or _ORIGINAL.search(made) or _side(made, stored)
        _refuse(left, f"pixels of the image at {size[0]} x {size[1]}")
    if NOUGHT not in made:
        made += f"{_ONE_MORE}{_HERE}."
    return made.translate({ord(WIDTH): str(size[0]), ord(HEIGHT): str(size[1]), ord(NOUGHT): "0"})


def without_box_format(problem: str) -> str:
    """The prompt without what it says of coordinates: the same in every frame, to compare it."""
    with suppress(ValueError):
        problem = in_thousandths(problem)
    with suppress(ValueError):
        problem = in_pixels(problem, (0, 0))
    problem = problem.split(_ONE_MORE)[0]
    return _PIXELS_CHINESE.sub("", _PIXELS.sub("", problem))


def stated_size(problem: str) -> Size | None:
    """The size that a prompt in pixels names."""
    found = _PIXELS.search(problem) or _PIXELS_CHINESE.search(problem)
    if not found:
        return None
    _, width, _, height = re.findall(r"\d+", found[0])
    return int(width), int(height)


def _refuse(left: re.Match[str] | None, frame: str, other: str = "") -> None:
    """ValueError naming what is left of another frame, if anything is."""
    if left is not None:
        phrase = left[0].translate({ord(WIDTH): "...", ord(HEIGHT): "...", ord(NOUGHT): "0"})
        remedy = (
            f"say it as {other}, which is rewritten, or leave it out" if other else "leave it out"
        )
        raise ValueError(
            f"the prompt says {phrase!r}, and its boxes are to be in {frame}; {remedy}"
        )


def _side(problem: str, stored: Size | None) -> re.Match[str] | None:
    """Where coordinates are said to go from 0 to a side of the stored picture."""
    sides = set(stored or ()) - {999, 1000}
    return next((m for m in _UP_TO.finditer(problem) if int(m[1]) in sides), None)


def _in_thousandths(said: re.Match[str]) -> str:
    made = f"{said['what'] + ' ' if said['what'] else ''}between 0 and 1000"
    return made[0].upper() + made[1:] if said[0][0].isupper() else made


def _chinese(said: re.Match[str]) -> str:
    what = f"的{said['what']}" if said["what"] else ""
    return f"以像素为单位{what}，x 从 {NOUGHT} 到 {WIDTH}，y 从 {NOUGHT} 到 {HEIGHT}"


def _in_chinese(found: re.Match[str]) -> bool:
    """Whether the phrase stands in Chinese text, rather than between English words."""
    if _IDEOGRAPH.search(found[0].replace("到", "").replace("至", "")):
        return True
    before, after = found.string[: found.start()], found.string[found.end() :]
    near = before[-2:] + after[:2] + found[0]
    return bool(_IDEOGRAPH.search(near)) and not re.search(r"[A-Za-z]\s*$", before[-9:])


def _english(found: re.Match[str]) -> str:
    """``_HERE`` with what the sentence needs: "they range from 0 to 1000" is "they are in ..."."""
    verb, noun = (found["verb"] or "").lower(), (found["noun"] or "").lower()
    if verb:
        return f"{'is' if verb in ('ranges', 'runs', 'goes') else 'are'} {_HERE}"
    if "coordinates" in noun.split():
        return f"coordinates {_HERE}"
    return _HERE[0].upper() + _HERE[1:] if found[0][0].isupper() else _HERE
