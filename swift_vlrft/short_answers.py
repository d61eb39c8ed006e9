"""Answers of a few words: a number, an option letter, yes or no.

    number("I count 4 dogs, so 4")      4.0         number("more than 4")     None
    choice("(b) two dogs")              "B"         choice("a. or b.")        None
    yes_no("I know it: yes")            "yes"       yes_no("not yes")         None

The reading is strict: a text that leaves its answer open states none. Every pass is linear in the
text, and texts longer than ``MAX_SHORT_ANSWER`` are not read.
"""

import re
import unicodedata

MAX_SHORT_ANSWER = 10_000
"""A longer answer is no number, choice or yes/no."""

_BOX_TOKENS = re.compile(r"<\|(?:begin|end)_of_box\|>")
_CLAUSE_END = re.compile(
    r"((?:[;:!?\n。；：，？！]|[.,](?!\d)|\b(?:so|therefore|thus|hence)\b)\s*)", re.IGNORECASE
)
_NEGATION = (
    r"\b(?:not|never|cannot|neither|nor|without|hardly|non|unless)\b|n['’]t\b"
    r"|\b(?:is|are|was|were|do|does|did|ca|wo|would|could|should|has|have|had)nt\b|不|没|非"
)


def without_box_tokens(text: str) -> str:
    """``text`` without the tokens that GLM puts around its answer."""
    if "<" in text and "<|" in text:  # looking for one character is many times faster
        return _BOX_TOKENS.sub(" ", text).strip()
    return text


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", without_box_tokens(text)).strip()


# ---- a number --------------------------------------------------------------------------------

# A letter, a digit or "_"; Chinese is written without blanks, so its signs are none: 有4只狗.
_LETTER = r"[^\W\u3400-\u9fff]"
_NUMBER = re.compile(
    rf"(?<!{_LETTER})(?<!\.)-?(?:\d{{1,3}}(?:,\d{{3}})++|\d++)(?:\.\d++)?+(?!{_LETTER}|\.\d)"
)
# Tags and emphasis around a number say nothing about it, nor does the arrow of "dogs -> 4".
_TAG = re.compile(r"</?[A-Za-z]\w*+>|(?<![-=<>])[-=]>")
_EMPHASIS = re.compile(r"\*\*|(?<![\w*])\*(?=-?\d[\d.,]*+\*)|(?<=\d)\*(?![\w*(]|\s*\d)")
_SMALL_FORMS = ("<super>", "<sub>", "<fraction>")  # of which NFKC makes digits in a row
# "one" is left out: "4 dogs, one of them black".
_WORDS = {"zero": 0, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_WORDS |= {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_NUMBER_WORD = re.compile(
    rf"\b(?:{'|'.join(_WORDS)}|(?:thir|four|fif|six|seven|eigh|nine)teen|hundreds?|thousands?"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|[mb]illions?|dozens?)\b"
    r"|[二两三四五六七八九十百千万亿几][个只条头匹辆架艘位名张把块件本朵棵]",
    re.IGNORECASE,
)
_TWICE = re.compile(  # four (4), 4 (four)
    rf"\b(?:(?P<word>{'|'.join(_WORDS)})\s*\(\s*(?P<digits>\d+)\s*\)"
    rf"|(?P<number>\d+)\s*\(\s*(?P<spelt>{'|'.join(_WORDS)})\s*\))",
    re.IGNORECASE,
)
# What a clause must not hold beside its number, ...
_OPEN = re.compile(
    r"\b(?:than|at\s+(?:the\s+)?(?:least|most|minimum|maximum)|minimum|maximum|min|max|or"
    r"|either|maybe|perhaps|possibly|probably|likely|unsure|guess|might|may\s+be|could|plus|minus"
    r"|negative|divided|multiplied|squared|cubed|root|except|excluding|instead|estimated|approx(?:imately)?|roughly)\b"
    r"|[或约超负加减除乘猜]|至[少多]|最[少多]|[大小多少高低]于|左右|以[上下]|上下|之间|可能|也许"
    r"|大概|估计|好像|似乎|差不多|接近|将近|不[到足]|[≈≠≤≥<>±√^×÷~]",
    re.IGNORECASE,
)
# ... nor before it, ...
_DENIED_NUMBER = re.compile(rf"{_NEGATION}|\b(?:no|none|wrong|incorrect|false)\b|无", re.IGNORECASE)
# ... what must not stand right before it, and right after it.
_BEFORE = re.compile(
    r"\b(?:about|around|circa|ca|nearly|almost|over|under|above|below"
    r"|beyond|up\s+to|exceed(?:s|ing)?|some|close\s+to|near|between|half|double|twice|times|more"
    r"|less|fewer|half\s+of|all\s+but)\s+(?:(?:the|an?|number|of|exactly|just|only)\s+)*$"
    r"|(?:分之|[第近零一二两三四五六七八九十百千万亿几数半每])\s*$"
    r"|[\w)*/+-]\s*[*+]\s*$|[-\u2010-\u2015/#%]\s*$|[-+*/%!]=\s*$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\s*(?:[个只位名人条张件]?[多余来半](?![\u3400-\u9fff])|[至到多来余几十百千万亿成倍半号点岁折、]"
    r"|分之|[+%/=]|[-\u2010-\u2015]\s*\w|\*\s*[\w(]|ish\b|\(?(?:and\s+(?:more|up|counting|above"
    r"|over|beyond|a\s+half|some)|upwards?|give\s+or\s+take|odd|max|min)\b)"
    r"|\W*(?:\w+\s+)?(?:is|are|was|were|would\s+be)(?:n['’]t|\s+(?:not|wrong|incorrect|false))\b",
    re.IGNORECASE,
)
# The same with marks that would end a clause: approx. 4, 4..5, !4, != 4.
_OPEN_MARKS = re.compile(r"\b(?:approx|ca|max|min)\.|\d\s*\.\.+\s*\d|^\s*!|!=", re.IGNORECASE)
# What is counted, where it is one word or none; "in total" aside.
_COUNTED = re.compile(r"\W*+([^\W\d_]*+)\W*+(?:(?:in\s+(?:total|all)|altogether|overall)\b\W*+)?")
_CONCLUDES = re.compile(r"[.!\n]|\b(?:so|therefore|thus|hence)\b|[^\W\d_]", re.IGNORECASE)
_TAKEN_BACK = re.compile(r"\W+(?:no|nope|not|wrong|false|incorrect)\W*", re.IGNORECASE)


def number(text: str) -> float | None:
    """The number that a short text states as its answer; None where it states none or leaves it
    open.

    "4", "4.", "4.0", "1,000", "**4**", "4 dogs", "There are 4 dogs.", "four (4)", "有4只狗". A
    number may be said again in a further clause: "I count 4 dogs, so 4".

    None for two numbers, equal ones too ("4 or 5", "4-5", "1/2", "4+4", "4 of 4", "4 dogs, 4
    cats", "4 dogs and two cats"); for a number that its clause denies, bounds, doubts or
    approximates ("not 4", "no 4", "at least 4", "4 or more", "about 4", "maybe 4", "~4", "4+",
    "4%"); and for a question ("4?"). Digits that belong to a word ("A320", "4th") and number words
    alone ("four") are not read.
    """
    if len(text) > MAX_SHORT_ANSWER or _has_small_forms(text):
        return None
    plain = _TAG.sub(" : ", _plain(text).replace("\u2212", "-"))
    plain = _TWICE.sub(_said_once, _EMPHASIS.sub(" ", plain))
    values = {n.replace(",", "") for n in _NUMBER.findall(plain)}
    if not values or len({float(v) for v in values}) > 1:
        return None
    if _NUMBER_WORD.search(plain) or _OPEN_MARKS.search(plain):
        return None
    stated, noun, between = False, "", ""
    *pieces, last = _CLAUSE_END.split(plain)
    for clause, mark in [*zip(pieces[::2], pieces[1::2], strict=True), (last, "")]:
        found = list(_NUMBER.finditer(clause))
        if not found:
            between += clause + mark
            continue
        before, after = clause[: found[0].start()], clause[found[0].end() :]
        if (
            len(found) > 1
            or "?" in mark
            or _OPEN.search(clause)
            or _DENIED_NUMBER.search(before)
            or _BEFORE.search(before[-80:])
            or _AFTER.match(after[:80])
            or (stated and not _repeats(noun, between + before, after))
        ):
            return None
        stated, between = True, mark
        noun = noun or _COUNTED.match(after.casefold())[1]  # type: ignore[index]
    return None if _TAKEN_BACK.fullmatch(between) else float(values.pop())


def _repeats(noun: str, between: str, after: str) -> bool:
    """Whether a number is said again, and not counted on: "4 dogs, so 4" but neither "4, 4" nor
    "4 dogs, 4 cats".
    """
    counted = _COUNTED.fullmatch(after.casefold())
    return (
        counted is not None
        and counted[1] in ("", noun)
        and bool(noun or _CONCLUDES.search(between))
    )


def _has_small_forms(text: str) -> bool:
    """Whether ``text`` holds 4², of which NFKC would make 42."""
    return not text.isascii() and any(
        unicodedata.decomposition(c).startswith(_SMALL_FORMS) for c in text
    )


def _said_once(found: re.Match[str]) -> str:
    digits, word = found["digits"] or found["number"], found["word"] or found["spelt"]
    return digits if _WORDS[word.casefold()] == float(digits) else found[0]


# ---- an option -------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"(?:\((?P<enclosed>[A-Za-z])\)[.:。、]?|(?P<letter>[A-Za-z])[.):。、]?)"
    r"(?P<text>(?<=[.):。、])\s*\S.*)?",
    re.DOTALL,
)
_BEFORE_OPTION = (
    r"(?:\b(?:and|or|nor|not|but|plus|vs\.?|versus|option|answer|choice|either|both|also|maybe"
    r"|perhaps|then|rather|instead)\s+|[、和或与及跟]\s*)"
)
_NO_WORD = r"(?!\w|['’-]\w|\.[A-Za-z]\.)"  # neither O'Hare nor T-shirt nor U.S.
# "a" and "I" are words too, so a letter counts as another option by its mark or by its place.
_ANOTHER_CHOICE = re.compile(
    r"[\[({](?!s[)\]}])[A-Za-z][)\]}]"  # (A) cat (B) dog, but not cat(s)
    r"|(?<![\w'’.(-])[A-Za-z]\)"  # A) or b)
    r"|(?<![A-Za-z0-9_'’.-])[A-Za-z][.:](?:\s+\S|[A-Za-z]{2}|\d|[^\x00-\x7f])"  # A. cat b. dog
    r"|^[A-Za-z][.:]"  # A.B. and e.g.
    r"|\n\s*[A-Za-z][.:]?\s*$"  # A. cat\nB
    rf"|\n\s*[B-Hb-h]{_NO_WORD}"  # A. cat\nB dog
    r"|[.!?→>–—-]\s+[A-Za-z]\W*$"  # A. cat. B
    rf"|{_BEFORE_OPTION}(?:[B-HJ-Z]|A(?!\s+[A-Z]\w)|[b-h]|a(?!\s+\w)){_NO_WORD}"  # A. or b
    # A. b | A. cat, b, but neither "A. a cat" nor "A. a/b"
    r"|(?:^\s*|[,;&]\s*|\s/\s*)[a-h]\s*[.:]?\s*(?:$|[,;&]|\b(?:and|or)\b)"
    # A. B | A. and B | A, B, but neither "A. A dog" nor "A. I am"
    r"|(?:^\s*|\b(?:and|or)\s+|[,;/&+|]\s*)[A-Z](?:(?!['’-]\w|\.[A-Z]\.)\W|$)(?!\s*[a-z])"
    r"(?!(?<=A\s)[A-Z][\w-])"
)


def choice(text: str) -> str | None:
    """The option letter of "A", "(A)", "A)", "A.", "A. text" or "A: text".

    None for prose ("A dog", "The answer is A") and for two options, in either case of the letters
    ("a) cat b) dog", "A. or b"). "a" and "I" in the text are words: "A. a dog", "A. I am not sure".
    Quotes and ``*`` around all of it are dropped.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    stated = _CHOICE.fullmatch(_plain(text).strip("*`\"'").strip())
    if stated is None or _ANOTHER_CHOICE.search(stated["text"] or ""):
        return None
    return str(stated["letter"] or stated["enclosed"]).upper()


# ---- yes or no -------------------------------------------------------------------------------

_YES_NO = re.compile(r"(?<![\w-])(yes|no)(?!\w|-\w)")
_DENIED = re.compile(_NEGATION)
_WRONG = re.compile(r"\W*\s(?:is|was|would\s+be)(?:n['’]t|\s+(?:not|wrong|incorrect|false))(?!\w)")
_DASH = re.compile(r"\s[-–—]+\s")


def yes_no(text: str) -> str | None:
    """The one of the words yes and no that the text holds.

    None where it holds both, and where its clause denies it: "not yes", "I would not say yes",
    "yes is wrong"; but "Yes, it is not red" and "I do not see one, so no" state one.
    """
    if len(text) > MAX_SHORT_ANSWER:
        return None
    plain = _DASH.sub(" : ", _plain(text).casefold())
    found: set[str] = set(_YES_NO.findall(plain))
    if len(found) != 1:
        return None
    for clause in _CLAUSE_END.split(plain)[::2]:
        words = list(_YES_NO.finditer(clause))
        denied = _DENIED.search(clause) if words else None
        if denied and denied.start() < words[-1].start():
            return None
        if any(_WRONG.match(clause, word.end()) for word in words):
            return None
    return found.pop()
