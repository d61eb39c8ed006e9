"""Answers of a few words: a number, an option letter, yes or no.

    number("I count 4 dogs, so 4")      4.0         number("more than 4")     None
    decimal("$1,234.50")                1234.5      decimal("1 to 2 kg")      None
    choice("(b) two dogs")              "B"         choice("a. or b.")        None
    yes_no("I know it: yes")            "yes"       yes_no("not yes")         None

The reading is strict: a text that leaves its answer open states none. Every pass is linear in the
text, and texts longer than ``MAX_SHORT_ANSWER`` are not read.
"""

import math
import re

from swift_vlrft.parsing.texts import nfkc, without_box_tokens

MAX_SHORT_ANSWER = 10_000
"""A longer answer is not read as a number, choice or yes/no."""
MOST_SAID = 20
"""Nor is one that says its number more often."""

_CLAUSE_END = re.compile(
    r"((?:[;:!?\n。；：，？！]|[.,](?!\d)|\b(?:so|therefore|thus|hence|because|since)\b)\s*)",
    re.IGNORECASE,
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
_TAKEN_BACK = re.compile(
    rf"(?:\W++(?:no|nope|not|never|wrong|false|incorrect|{_DOUBT})\b)+\W*", re.IGNORECASE
)


def _plain(text: str) -> str:
    return nfkc(without_box_tokens(text)).strip()


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
    r"(?<=\d)\s*(?:(?:[kcmµμn]?m|km/h|mph|m/s|ft|in|mi|yd)[23]?|[kmµμ]?g|lbs?|oz|t|[mcd]?[lL]"
    r"|m?s|secs?|min|hr?s?|°\s?[CF]?|K|[kMG]?W|[kM]?Wh|m?[VA]|[kMG]?Hz|[kMGT]B|k?cal|k?Pa|k?J|k?N"
    r"|px|pt|pp|[kMm]?[ΩΩ]|USD|EUR|GBP|CNY|RMB|JPY)(?![\w/])"
)
# 3 m², 3 kg/m^3, 9.81 m/s²: what is raised is the unit.
_RAISED = re.compile(
    r"(?<=\d)(\s*(?:[A-Za-zµμ]{1,3}/)?(?:[kcdmµμn]?m|ft|in|yd|mi|s))(?:\^\{?[23]\}?|[²³])(?!\w)"
)
# Between two equal numbers that are not one said twice: 4 of 4, 4 x 4
_COMBINED = re.compile(r"\s*(?:out\s+of|of|by|x|times|to|per)\s*", re.IGNORECASE)
_SIGNS = str.maketrans("\u2212\u066b\u066c", "-.,")
"""The minus sign, and the separators that stand between Arabic digits."""
_SMALL_DIGITS = re.compile("[²³¹⁰-₟¼-¾⅐-↉①-⓿]")  # of 4² NFKC would make 42
# Tags, heading marks and emphasis do not change a number, nor does the arrow of "dogs -> 4".
_TAG = re.compile(r"</?[A-Za-z]\w*+>|(?<![-=<>])[-=]>|^\s*#+\s")
_EMPHASIS = re.compile(r"\*\*|(?<![\w*])\*(?=-?\d[\d.,]*+\*)|(?<=\d)\*(?![\w*(]|\s*\d)")
# "one" is left out: "4 dogs, one of them black".
_VALUES = {"zero": 0, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_VALUES |= {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_WORDS = "|".join(_VALUES)
_NUMBER_WORD = re.compile(
    rf"\b(?:{_WORDS}|(?:thir|four|fif|six|seven|eigh|nine)teen|hundreds?|thousands?"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|[mb]illions?|trillions?|(?<=\d\s)(?:[bmt]n|ml[nd])|lakhs?|crores?"
    r"|dozens?)\b"
    r"|[二两三四五六七八九十百千万亿几][个只条头匹辆架艘位名张把块件本朵棵]",
    re.IGNORECASE,
)
# The same number again, or its parts: four (4), 4 dogs (two red, two blue)
_WITH_PARTS = re.compile(
    rf"\b(\d{{1,9}}|{_WORDS})((?:\s+[^\W\d_]+)?)\s*\(([^()]{{1,200}})\)", re.IGNORECASE
)
_PART = re.compile(rf"(?<!\S)(?:\d{{1,9}}|{_WORDS}|one)\b", re.IGNORECASE)
# What leaves a number open wherever it stands, ...
_OPEN = re.compile(
    rf"{_DOUBT}|\b(?:than|at\s+(?:the\s+)?(?:least|most|minimum|maximum)|min(?:imum)?|max(?:imum)?"
    r"|or|either|could|plus|minus|negative|divided|multiplied|squared|cubed|root|except|excluding"
    r"|instead|estimated?|approx(?:imately)?|roughly|no\s+idea)\b"
    rf"|(?:{_NEGATION})\s+(?:know|sure|certain)\b"
    r"|约(?!会)|約(?!會)|超[过過]|[或猜]|至[少多]|最[少多]|[大小多少高低][于於]|左右|以[上下]|上下"
    r"|之[间間]|可能|也[许許]|大概|估[计計]|好像|似乎|差不多|接近|[将將]近|不[到足知]|[≈≠≤≥<>±√^×÷~]|\d\s*\.\.+\s*\d|^\s*!|!=",
    re.IGNORECASE,
)
# ... before it in its clause, ...
_DENIED_NUMBER = re.compile(rf"{_NEGATION}|\b(?:no|none|wrong|incorrect|false)\b|无", re.IGNORECASE)
# ... right before it, ...
_BEFORE = re.compile(
    r"\b(?:about|around|circa|ca\.?|nearly|almost|over|under|above|below|beyond"
    r"|exceed(?:s|ing)?|some|near|between|half|double|twice|times|more|less|fewer|(?:up|close)\s+to"
    r"|(?:half|excess|upwards?|north|south|shy|short|out|order|region)\s+of)"
    r"\s+(?:(?:the|an?|number|of|exactly|just|only)\s+)*$"
    r"|(?:分之|[加减乘除负第近零一二两三四五六七八九十百千万亿几数半每])了?\s*$"
    r"|[\w)*/+-]\s*[*+]\s*$|[-\u2010-\u2015/#%]\s*$|[-+*/%!]=\s*$",
    re.IGNORECASE,
)
# ... and right after it.
_AFTER = re.compile(
    r"\s*(?:[个只位名人条张件]?[多余来半](?![\u3400-\u9fff])|[至到多来余几十百千万亿成倍半号点岁折加减乘除、]"
    r"|分之|[+%/=]|[-\u2010-\u2015]\s*\w|\*\s*[\w(]|ish\b|\(?(?:and\s+(?:more|up|counting|above"
    r"|over|beyond|a\s+half|some)|upwards?|give\s+or\s+take|odd)\b)"
    rf"|\W*(?:\w+\s+)?{_IS_WRONG}|[^.!\n]*\?",
    re.IGNORECASE,
)
# What is counted: its first word, if any.
_COUNTED = re.compile(r"[^\w.,:;!\n。]*+([^\W\d_]*+)")
_CONCLUDES = re.compile(
    r"(?=.*[^\W\d_]).*(?:[.:!\n。]|\b(?:so|therefore|thus|hence)\b|所以|因此)",
    re.DOTALL | re.IGNORECASE,
)


def number(text: str) -> float | None:
    """The number that a short text states as its answer; None if it states none or leaves it
    open.

    "4", "4.", "4.0", "1,000", "**4**", "4 dogs", "There are 4 dogs.", "four (4)", "有4只狗",
    "4 (two red, two blue)". A conclusion may say it again: "I count 4 dogs, so 4".

    None for two numbers, equal ones too ("4 or 5", "4-5", "1/2", "4+4", "4 of 4", "4 dogs, 4
    cats", "4 dogs and two cats"); for a number that is denied, bounded, doubted or approximated
    ("not 4", "no 4", "at least 4", "4 or more", "about 4", "maybe 4", "~4", "4+", "4%"); and for a
    question ("4?"). Digits that belong to a word ("A320", "4th") and number words alone ("four")
    are not read.
    """
    if len(text) > MAX_SHORT_ANSWER or _SMALL_DIGITS.search(text):
        return None
    return _stated(_plain(text), _NUMBER)


def decimal(text: str) -> float | None:
    """The one finite number that a short text states, in any of the usual forms; None if it states
    none or leaves it open, as under ``number``.

    Further than there: "-0.5", ".5", "1.2e3", "$1,234.50", "45 %" (45, as "45" is), "5kg"; and the
    same number again ("12. Yes, 12.0"), but not "4 of 4" and "4 x 4". "5k" and "5M" are not read.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    text = _RAISED.sub(r"\1", text)
    if _SMALL_DIGITS.search(text):
        return None
    plain = _UNIT.sub(" ", _CURRENCY.sub("", _plain(text)))
    value = _stated(plain, _DECIMAL, again=True)
    return value if value is not None and math.isfinite(value) else None


def _stated(plain: str, pattern: re.Pattern[str], *, again: bool = False) -> float | None:
    """The one number of ``pattern`` that is not left open; ``again``: it may be said twice."""
    plain = _TAG.sub(" : ", plain.translate(_SIGNS))
    plain = _WITH_PARTS.sub(_without_parts, _EMPHASIS.sub(" ", plain))
    found = list(pattern.finditer(plain))
    values = {float(n[0].replace(",", "")) for n in found}
    if (
        len(values) != 1
        or len(found) > MOST_SAID
        or _NUMBER_WORD.search(plain)
        or _OPEN.search(plain)
    ):
        return None
    end, noun = 0, ""
    for n in found:
        between, after = plain[end : n.start()], plain[n.end() : n.end() + 80]
        clause = _CLAUSE_END.split(between)[-1]
        if _DENIED_NUMBER.search(clause) or _BEFORE.search(clause[-80:]) or _AFTER.match(after):
            return None
        counted = _COUNTED.match(after.casefold())[1]  # type: ignore[index]
        if end and again and _COMBINED.fullmatch(between):
            return None
        concludes = _CONCLUDES.match(between) and (not noun or counted in ("", noun))
        if end and not again and not concludes:
            return None  # counted on: 4, 4 or 4 dogs, 4 cats
        end, noun = n.end(), noun or counted
    return None if _TAKEN_BACK.fullmatch(plain, end) else values.pop()


def _without_parts(found: re.Match[str]) -> str:
    """The number alone, if the numbers in brackets add up to it."""
    value = _VALUES.get(found[1].casefold())
    value = int(found[1]) if value is None else value
    parts = [part.casefold() for part in _PART.findall(found[3])]
    total = sum(1 if p == "one" else _VALUES[p] if p in _VALUES else int(p) for p in parts)
    open_ = _OPEN.search(found[3]) or _DENIED_NUMBER.search(found[3])
    return f"{value}{found[2]}" if parts and total == value and not open_ else found[0]


# ---- an option -------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"(?:\((?P<enclosed>[A-Za-z])\)[.:。、]?|(?P<letter>[A-Za-z])[.):。、]?)"
    r"(?P<text>(?<=[.):。、])\s*\S.*)?",
    re.DOTALL,
)
# Another option by its mark: (b), b), A.cat B.dog, but neither cat(s) nor p.m. today
_MARKED = re.compile(
    r"[\[({](?!s[)\]}])[A-Za-z][)\]}]|(?<![\w'’.(-])[A-Za-z]\)"
    r"|(?<![A-Za-z0-9_'’.-])[A-Za-z][.:](?:\s+\S|[A-Za-z]{2}|\d|[^\x00-\x7f])"
)
# By its position: between these, except after "Mr.", a letter that is not a word is an option.
_BETWEEN = re.compile(
    r"[,;&+|\n→>–—、和或与及跟]|\s[-/]\s|(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)[.!?](?=\s)"
    r"|\b(?:and|or|nor|not|but|plus|vs\.?|versus|option|answer|choice|either|both|also|maybe|perhaps"
    r"|then|rather|instead)\s"
)
_LONE = re.compile(r"\s*[A-Za-h]\W*")  # A. B
_LEADING = re.compile(r"\s*[B-HJ-Zb-h](?!\w|['’-]\w|\.[A-Za-z]\.)")  # A. cat or B dog


def choice(text: str) -> str | None:
    """The option letter of "A", "(A)", "A)", "A.", "A. text" or "A: text".

    None for prose ("A dog", "The answer is A") and for two options, in either case of the letters
    ("a) cat b) dog", "A. or b"). "a" and "I" in the text are words: "A. a dog", "A. I am not sure".
    Quotes and ``*`` around all of it are dropped.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    match = _CHOICE.fullmatch(_plain(text).strip("*`\"'").strip())
    if match is None or _MARKED.search(text_after := match["text"] or ""):
        return None
    first, *others = _BETWEEN.split(text_after)
    if _LONE.fullmatch(first) or any(_LONE.fullmatch(o) or _LEADING.match(o) for o in others):
        return None
    return str(match["letter"] or match["enclosed"]).upper()


# ---- yes or no -------------------------------------------------------------------------------

_YES_NO = re.compile(r"(?<![\w-])(yes|no)(?!\w|-\w)")
_NOT_STATED = re.compile(rf"{_NEGATION}|{_DOUBT}|\b(?:if|whether)\b")
_WRONG = re.compile(rf"\W*\s{_IS_WRONG}|[^.,;:!\n]*\?")
_DASH = re.compile(r"\s[-–—]+\s")


def yes_no(text: str) -> str | None:
    """``"yes"`` or ``"no"``, whichever word the text holds.

    None if it holds both, or if its clause denies, doubts or questions it: "not yes", "I would
    not say yes", "maybe yes", "yes is wrong", "yes?"; but "Yes, it is not red" and "I do not see
    one, so no" are read.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    plain = _DASH.sub(" : ", _plain(text).casefold())
    words = list(_YES_NO.finditer(plain))
    if len({word[0] for word in words}) != 1:
        return None
    end = 0
    for word in words:
        clause = _CLAUSE_END.split(plain[end : word.start()])[-1]
        end = word.end()
        if _NOT_STATED.search(clause) or _WRONG.match(plain[end : end + 80]):
            return None
    return None if _TAKEN_BACK.fullmatch(plain, end) else words[0][0]
