"""Read answers of a few words: a number, an option letter, yes or no.

    number("I count four dogs")         4.0         number("more than 4")     None
    decimal("$1,234.50")                1234.5      decimal("30 M")           None
    choice("Option B: two dogs")        "B"         choice("B. or C")         None
    yes_no("Yes, there are no cats.")   "yes"       yes_no("yes or no")       None

Texts are unwrapped first (unwrap.py). A text that leaves its answer open states none. Every pass is
linear in the text.
"""

import math
import re

from swift_vlrft.parsing.labels import is_empty_set
from swift_vlrft.parsing.unwrap import unwrapped

MAX_SHORT_ANSWER = 10_000
"""A longer answer is not read."""


def short(text: str) -> str:
    """Return a short answer, unwrapped; an empty text for one that is too long to be read."""
    return unwrapped(text) if len(text) <= MAX_SHORT_ANSWER else ""


_CLAUSE_END = re.compile(
    r"(?i)((?:[;:!?\n。；：，？！]|[.,](?!\d)|\b(?:so|therefore|thus|hence|because|since)\b)\s*)"
)
_NEGATION = (
    r"\b(?:not|never|cannot|neither|nor|without|hardly|non|unless|(?:anything|all)\s+but)\b|n['’]t\b"
    r"|\b(?:is|are|was|were|do|does|did|ca|wo|would|could|should|has|have|had)nt\b|不|没|非"
)
_DOUBT = (
    r"\b(?:maybe|perhaps|possibly|probably|likely|unsure|uncertain|guess(?:ing)?|might"
    r"|(?:may|could)\s+be)\b"
)
# Comments on the answer after it: 4 is wrong, yes, maybe
_IS_WRONG = r"(?:is|are|was|were|would\s+be)(?:n['’]t|\s+(?:not|wrong|incorrect|false))(?!\w)"
_TAKEN_BACK = re.compile(rf"(?i)(?:\W++(?:no|nope|not|never|wrong|false|incorrect|{_DOUBT})\b)+\W*")


# ---- a number --------------------------------------------------------------------------------

# A letter, a digit or "_", but no Chinese character, as Chinese has no blanks: 有4只狗.
_LETTER = r"[^\W\u3400-\u9fff]"
_NUMBER = re.compile(
    rf"(?<!{_LETTER})(?<!\.)-?(?:\d{{1,3}}(?:,\d{{3}})+(?!,\d{{3}})|\d++)(?:\.\d++)?(?!{_LETTER}|\.\d)"
)
_DECIMAL = re.compile(
    rf"(?<!{_LETTER})(?<!\.)[-+]?(?:\d{{1,3}}(?:,\d{{3}})+(?!,\d{{3}})|\d++|(?=\.\d))(?:\.\d++)?"
    rf"(?:[eE][-+]?\d{{1,3}})?(?!{_LETTER}|\.\d)"
)
# What may stand at a number without changing it: $4.50, 12 %, 5kg. Not k, M or B, which multiply.
_CURRENCY = re.compile(r"(?:\b[A-Z]{1,3})?[$€£¥₹₩]\s*(?=[-+.\d])|(?<=\d)\s*(?:\\?%|[$€£¥₹₩])")
_UNIT = re.compile(
    r"(?<=\d)\s*(?:千[克米瓦]|岁|(?:m\s?s\^\{?-[12]\}?|(?:[kcmµμn]?m|km/h|mph|m/s|ft|in|mi|yd)[23]?"
    r"|[kmµμ]?g|lbs?|oz|t|[mcd]?[lL]|(?<![12]\d\d0)m?s|secs?|min|hr?s?|°|°?\s?[CF]|[kMG]?W|[kM]?Wh"
    r"|m?[VA]|[kMG]?Hz|[kMGT]B|k?cal|k?Pa|k?J|k?N|px|pt|pp|[kMm]?[ΩΩ]|USD|EUR|GBP|CNY|RMB|JPY)(?![\w/]))"
)
# 3 m2, 3 kg/m^3, 9.81 m/s^2: what is raised is the unit.
_RAISED = re.compile(
    r"(?<=\d)(\s*(?:[A-Za-zµμ]{1,3}/)?(?:[kcdmµμn]?m|ft|in|yd|mi|s))(?:\^\{?[23]\}?|[23])(?!\w)"
)
# Between two equal numbers that are not one said twice: 4 of 4, 4 x 4
_COMBINED = re.compile(r"\s*(?:out\s+of|of|by|x|times|to|per)\s*", re.IGNORECASE)
# Dashes, and what stands between Arabic digits
SIGNS = str.maketrans("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u066b\u066c", "-------.,")
_MINUS = re.compile(r"(^|[:=]|\bis\b)\s*(?:-|minus\b)\s*(?=[\d.$])", re.IGNORECASE)
# As LaTeX writes 1,234, 3e5, 30°, 5 cm and 1/2.
_TIMES_TEN = re.compile(
    r"(?<=\d)\s*(?:\\times|\\cdot|×|·|[*x])\s*10\s*\^\s*(?:\{\s*([-+]?\d{1,3})\s*\}|([-+]?\d{1,3}))"
)
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ\b)|\\degree\b")
_TIE = re.compile(r"(?<=\d)(?:~|\\[,;: ])\s*(?=[A-Za-z\\])")
_TEXT = re.compile(r"\\(?:text|math)(?:rm|bf)?\s*\{([^{}]*)\}")
_FRAC = re.compile(
    r"\\[dt]?frac\s*(?:\{\s*(-?\d{1,15})(?:\.0+)?\s*\}|(\d))"
    r"\s*(?:\{\s*(\d{1,15})(?:\.0+)?\s*\}|(\d))"
)
_FRACTION = re.compile(
    r"(?<![\w.,/])(\d{1,15})(?:\.0+)?\s*[/⁄]\s*(\d{1,15})(?:\.0+)?(?![\w/]|[.,]\d|\s*/)"
)
# 30 M and 30 B are not 30, ...
_MULTIPLIED = re.compile(
    r"\d\s*(?:[kKMBbTG]|MM|[kmbt]n|(?i:m(?:l[nd]|i[lod]|rd)|scores?|gross|tens))(?!\w)"
    r"|\b(?i:pairs?|couples?|dozens?)\b|\d\s*[打双对]"
)
# ... nor are 3 quarters, 3 times and 3!, unless they are counted.
_TAKEN_TIMES = re.compile(r"(?i)\d\s*(?:!|(?:times|halves|thirds|quarters|orders|factorial)\b)")
# Tags, heading marks and emphasis do not change a number, nor does the arrow of "dogs -> 4".
_TAG = re.compile(r"</?[A-Za-z]\w*+>|(?<![-=<>])[-=]>|^\s*#+\s")
_EMPHASIS = re.compile(r"\*\*|(?<![\w*])\*(?=-?\d[\d.,]*+\*)|(?<=\d)\*(?![\w*(]|\s*\d)")
_VALUES = {"zero": 0, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_VALUES |= {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14}
_VALUES |= {"fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19}
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50}
_TENS |= {"sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_WORDS = f"(?a:{'|'.join(_VALUES)})"  # (?i) alone takes ı and İ, too, for i
_VALUES["one"] = 1  # left out of the words: "4 dogs, one of them black"
_IN_WORDS = re.compile(rf"\b(?ai:({'|'.join(_TENS)})(?:[\s-]+(one|{_WORDS}))?|(one|{_WORDS}))\b")
_COUNTERS = "个只条头匹辆架艘位名张把块件本朵棵"
_CHINESE = dict(zip("零一二两三四五六七八九十", (0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10), strict=True))
_IN_CHINESE = re.compile(
    rf"(?<![第\w])([{''.join(_CHINESE)}])(?=$|\s?[{_COUNTERS}])|(?<=有)([{''.join(_CHINESE)}])(?=\s?[{_COUNTERS}])"
)
_NUMBER_WORD = re.compile(
    rf"(?i)\b(?:{_WORDS}|{'|'.join(_TENS)}|hundreds?|thousands?|[a-z]{{1,5}}illions?|lakhs?|crores?)\b"
    rf"|[二两三四五六七八九十百千万亿几][{_COUNTERS}]"
)
# The same number again, or its parts: four (4), 4 dogs (two red, two blue), 4 cats: 1 old, 3 young
_WITH_PARTS = re.compile(
    rf"(?i)\b(\d{{1,9}}|{_WORDS})((?:\s+[^\W\d_]+){{0,2}})"
    r"(?:\s*\(([^()]{1,200})\)|\s*:\s+([^:()]{1,200})$)"
)
_PART = re.compile(rf"(?<!\S)(?:\d{{1,9}}|{_WORDS}|one)\b", re.IGNORECASE)
# What leaves a number open wherever it stands, ...
_OPEN = re.compile(
    rf"(?i){_DOUBT}|\b(?:than|at\s+(?:the\s+)?(?:least|most|minimum|maximum)|min(?:imum)?|max(?:imum)?"
    r"|or|either|could|plus|minus|negative|divided|multiplied|squared|cubed|root|except|excluding"
    r"|instead|estimated?|approx(?:imately)?|roughly|no\s+idea)\b"
    rf"|(?:{_NEGATION})\s+(?:know|sure|certain)\b"
    r"|约(?!会)|約(?!會)|超[过過]|[或猜]|至[少多]|最[少多]|[大小多少高低][于於]|左右|以[上下]|上下"
    r"|之[间間]|可能|也[许許]|大概|估[计計]|好像|似乎|差不多|接近|[将將]近|不[到足知]|[≈≠≤≥<>±√^×÷~∞π|]|\d\s*\.\.+\s*\d|^\s*!|!="
)
# ... before it in its clause, ...
_DENIED_NUMBER = re.compile(rf"{_NEGATION}|\b(?:no|none|wrong|incorrect|false)\b|无", re.IGNORECASE)
# ... right before it, ...
_FUNCTION = "(?:sqrt|log|ln|exp|(?:arc)?(?:sin|cos|tan))"
_BEFORE = re.compile(
    r"(?i)\b(?:about|around|circa|ca\.?|nearly|almost|over|under|above|below|beyond"
    r"|exceed(?:s|ing)?|some|near|between|half|double|twice|times|more|less|fewer|(?:up|close)\s+to"
    r"|(?:half|excess|upwards?|north|south|shy|short|out|order|region)\s+of)"
    r"\s+(?:(?:the|an?|number|of|exactly|just|only)\s+)*$"
    r"|(?:分之|[加减乘除负第近零一二两三四五六七八九十百千万亿几数半每])了?\s*$"
    r"|\b(?:after|before)\s*$|[\w)*/+-]\s*[*+·⋅]\s*$|[-\u2010-\u2015/#%]\s*$|[-+*/%!]=\s*$"
    r"|[A-Za-z]\(\s*$|_\s*\{\s*$|\\(?!boxed)[A-Za-z]+[\s{(]*$"  # f(3), a_{3}, \sqrt 3
    rf"|\b{_FUNCTION}(?:_?\d+)?\s*$"  # log 3
)
# ... and right after it.
_AFTER = re.compile(
    r"(?i)\s*(?:[个只位名人条张件]?[多余来半](?![\u3400-\u9fff])|[至到多来余几十百千万亿成倍半号点岁折加减乘除、]"
    r"|分之|[+%/=]|[-\u2010-\u2015]\s*\w|[*·⋅]\s*[\w(]|ish\b|\(?(?:and\s+(?:more|up|counting|above"
    r"|over|beyond|a\s+half|some)|upwards?|give\s+or\s+take|odd|(?:and\s+)?(?:one|another)\s+more)\b)"
    rf"|\W*(?:\w+\s+)?{_IS_WRONG}|[^.!\n]*\?"
    rf"|\s*(?:{_FUNCTION}\b|\\(?!Omega|mu\b)[A-Za-z]|(?-i:[b-zB-HJ-Z])(?![\w/'’-]|\.\w))"  # 3 x
)


def number(text: str) -> float | None:
    """Return the number that a short text states as its answer, in digits or words. None if it
    states none or leaves it open.

    "4", "four", "1,000", "There are four dogs.", "four (4)", "有4只狗", "4 cats: 1 black, 3 white".
    "There are no dogs in the image." states 0.

    None for two numbers, equal ones too ("4-5", "1/2", "4 of 4", "4 dogs and two cats"); for one
    that is denied, bounded, doubted, rounded or multiplied ("not 4", "4 or more", "maybe 4", "~4",
    "4 K"), asked ("4?") or part of a word ("A320", "4th").
    """
    plain = short(text)
    if not any(map(str.isdecimal, plain)):
        if plain[:6].casefold() == "there " and is_empty_set(plain):
            return 0.0
        plain = _IN_WORDS.sub(_in_digits, plain)
        plain = _IN_CHINESE.sub(lambda match: str(_CHINESE[match[1] or match[2]]), plain)
    return _stated(plain, _NUMBER)


def _in_digits(match: re.Match[str]) -> str:
    tens, ones, small = (word and word.casefold() for word in match.groups())
    if tens and ones and _VALUES[ones] not in range(1, 10):
        return match[0]  # twenty eleven
    return str(_TENS.get(tens, 0) + _VALUES.get(ones or small, 0))


def decimal(text: str) -> float | None:
    r"""Return the one finite number that a short text states, in any of the usual forms. None if it
    states none or leaves it open, as under ``number``.

    Further than there: "minus 5", ".5", "1.2 \times 10^3", "1/2", "$1,234.50", "45 %" (45), "5kg",
    "30^\circ"; and the same number again ("12. Yes, 12.0"), but not "4 of 4". No number words.
    """
    plain = short(text).translate(SIGNS).replace("{,}", ",")
    if not _DECIMAL.fullmatch(plain):
        plain = _without_units(plain)
    value = _stated(plain, _DECIMAL, again=True)
    is_one = value is not None and math.isfinite(value) and not _TAKEN_TIMES.search(plain)
    return value if is_one else None


def _without_units(plain: str) -> str:
    if "\\" in plain or "^" in plain or "×" in plain:
        plain = _DEGREES.sub("°", _TEXT.sub(r"\1", plain))
        plain = _TIMES_TEN.sub(lambda match: f"e{match[1] or match[2]}", plain)
        plain = _FRAC.sub(lambda f: f" {f[1] or f[2]}/{f[3] or f[4]}", plain)
    plain = _FRACTION.sub(_divided, _MINUS.sub(r"\1 -", _TIE.sub(" ", plain)))
    return _UNIT.sub(" ", _CURRENCY.sub("", _RAISED.sub(r"\1", plain))).strip()


def _divided(match: re.Match[str]) -> str:
    above, below = int(match[1]), int(match[2])
    return f"{above / below!r}" if below else match[0]


def _stated(plain: str, pattern: re.Pattern[str], *, again: bool = False) -> float | None:
    """The one number of ``pattern`` that is not left open; ``again``: it may be said twice."""
    if pattern.fullmatch(plain):
        return float(plain.replace(",", ""))
    plain = _TAG.sub(" : ", plain.translate(SIGNS))
    plain = _WITH_PARTS.sub(_without_parts, _EMPHASIS.sub(" ", plain))
    matches = list(pattern.finditer(plain))
    values = {float(n[0].replace(",", "")) for n in matches}
    if len(values) != 1 or _OPEN.search(plain):
        return None
    if _NUMBER_WORD.search(plain) or _MULTIPLIED.search(plain):
        return None
    end = 0
    for n in matches:
        between, after = plain[end : n.start()], plain[n.end() : n.end() + 80]
        clause = _CLAUSE_END.split(between)[-1]
        if _DENIED_NUMBER.search(clause) or _BEFORE.search(clause[-80:]) or _AFTER.match(after):
            return None
        if end and (not again or _COMBINED.fullmatch(between)):
            return None  # counted on: 4, 4 or 4 dogs, 4 cats
        end = n.end()
    return None if _TAKEN_BACK.fullmatch(plain, end) else values.pop()


def _without_parts(match: re.Match[str]) -> str:
    """The number alone, if the numbers in brackets add up to it."""
    said = match[3] or match[4]
    whole, *parts = (
        _VALUES[word] if (word := part.casefold()) in _VALUES else int(word)
        for part in (match[1], *_PART.findall(said))
    )
    open_ = _OPEN.search(said) or _DENIED_NUMBER.search(said)
    return f"{whole}{match[2]}" if parts and sum(parts) == whole and not open_ else match[0]


# ---- an option -------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"(?is)(?:(?:option|choice)\s+|故?选择?:?\s*)?"
    r"(?:[(\[](?P<enclosed>[A-Za-z])[)\]]|(?P<letter>[A-Za-z])(?!\w))"
    r"(?P<rest>.*)"
)
_PARTED = re.compile(r"\s*$|\.(?![A-Za-z]\.)|[):。、]|\s*\n|\s+[-–—]\s")
# What states another answer behind the first: C, or C, the answer is C; but not a cat, and a cat
_OTHER = re.compile(
    r"(?:[,;/&|+\n→、和与或及]|(?i:\b(?:or|and|nor|not|but|vs|then|actually|rather|maybe|answer|option|choice"
    r"|choose|chose|select|pick|boxed|be|it(?:['’]s)?)\b))\W*(?i:\b(?:is|the|answer|option)\b\W*)*"
    r"(?<![A-Za-z0-9_'’-])(?:(?P<sure>[B-HJ-Z])(?![\w'’-])|(?P<word>[A-Za-z])(?=\W*$|[.,;:!?)\]]))"
)
_ALONE = re.compile(
    r"(?:^\W*(?=\w\W*$)|(?<!\bMr)(?<!\bDr)(?<!\bSt)(?<=\w)[.;:!?。]\s+)([A-Ha-h])(?=\W*$|[.;:!?]\s)"
)
_OF_OPTIONS = re.compile(
    r"(?i)\b(?:both|neither)\s+[A-Z]\s+(?:and|nor)\s+[A-Z]\b|\b[A-Z]\s+(?:and|or|nor)\s+[A-Z]\s+(?=(?:are|is)\b)"
    r"|^\W+(?-i:[A-Z])(?:,\s*[A-Z])*,?\s+and\s+[A-Z](?:\s+only)?\W*$"
    r"|\b(?-i:[a-z]/[a-z])\b"
)


def choice(text: str) -> str | None:
    """Return the option letter that begins the text: "(A)", "A: text", "A - text", "Option A",
    "选A". None if what follows states another answer ("A or B", "A. dog, B", "a) cat b) dog"), and
    for prose ("A dog").
    """
    match = _CHOICE.fullmatch(short(text).replace("项", ""))
    if match is None or (match["letter"] and not _PARTED.match(match["rest"])):
        return None
    letter = (match["letter"] or match["enclosed"]).upper()
    rest = _OF_OPTIONS.sub(" ", match["rest"])
    others = [other["sure"] or other["word"] for other in _OTHER.finditer(rest)]
    others += _ALONE.findall(rest)
    # The next option: A. cat B. dog, (b); but not the C. of "B. C. elegans"
    mark = re.escape(chr(ord(letter) + 1))
    marks = rf"(?:\w\W+|[^\x00-\x7f])(?<!['’.-]){mark}[.:、]|(?<![\w'’.-])[(\[]?{mark}[)\]]"
    listed = re.search(marks, rest, re.IGNORECASE)
    return None if listed or any(other.upper() != letter for other in others) else letter


# ---- yes or no -------------------------------------------------------------------------------

_YES = r"yes(?![\w-])|true(?!\w)|(?:是|对|正确)[的了啊呀]?(?!\w)"
_NO = r"no(?![\w-]|\s+(?:objects?|doubt|question|idea|clue|way)\b|\.?\s*\d)|false(?!\w)"
_NO += r"|(?:否|错误?|不是|不对|不正确)[的了]?(?!\w)"
_EITHER = re.compile(rf"(?P<yes>{_YES})|(?P<no>{_NO})", re.IGNORECASE)
# The other word, joined to the first, ...
_JOINED = re.compile(
    rf"(?i)\s*(?:or\b|and\b|[/,&|、和]|或者?|还是)\s*(?:(?P<yes>{_YES})|(?P<no>{_NO}))"
)
# ... or among words that say nothing else.
_UNDECIDED = re.compile(r"(?i)(?:\W*\b(?:yes|no|true|false|not|never|or|and|but|maybe)\b)*\W*")
_WORD = re.compile(r"\w+")
_INTRODUCED = re.compile(r"[^.:!?\n]{1,80}:\s*")
_NOT_STATED = re.compile(rf"{_NEGATION}|{_DOUBT}|\b(?:if|whether|yes|no)\b", re.IGNORECASE)
_WRONG = re.compile(rf"\W*\s{_IS_WRONG}|[^.,;:!\n]*\?")


def yes_no(text: str) -> str | None:
    """Return ``"yes"`` or ``"no"``: the first word, behind words that end in a colon; also true,
    false, 是, 否, 对, 错, 正确, 错误, 不是, 不对.

    None if the other word is joined to it by "or", "and", "/" or a comma alone, or if it is taken
    back: "yes or no", "yes, no", "not yes", "maybe yes", "yes is wrong", "yes?". "There is no dog"
    states neither.
    """
    plain = short(text)
    start = _INTRODUCED.match(plain)
    if start is not None and not _NOT_STATED.search(start[0]):
        plain = unwrapped(plain[start.end() :])
    word = _EITHER.match(plain)
    if word is None or _WRONG.match(plain[word.end() :][:80]):
        return None
    said, rest = str(word.lastgroup), plain[word.end() :]
    other = _JOINED.match(rest)
    if (other and other.lastgroup != said) or _TAKEN_BACK.fullmatch(rest):
        return None
    words = {*_WORD.findall(rest.casefold())} if _UNDECIDED.fullmatch(rest) else set()
    return said if words <= {word[0].casefold(), said} else None
