"""Texts that a reward must survive: sizes, nesting, quotes, bytes."""

# ruff: noqa: E501 - rows of a table stay on one line

MEGABYTE = 1_000_000
_BOX = "{'Position': [%d, 303, 991, 965], 'Confidence': 0.5}"


def answered(text: str) -> str:
    return f"<think>t</think><answer>{text}</answer>"


def _many(pattern: str, count: int = 20_000, joint: str = ", ") -> str:
    return joint.join(pattern % (n % 290) for n in range(count))


def _filled(unit: str) -> str:
    return unit * (MEGABYTE // len(unit))


TEXTS: dict[str, str] = {
    **{f"a megabyte of {unit!r}": answered(_filled(unit)) for unit in (
        "[", "<", '{"a":', "[[1,2,3,4],", "(1)", "<1", "['", '["', "\\", "\x00", "\ud800", "\u0301", "\ufdfa", " ", "1,", "a-_ ", "yes not ",
        "A. ", "True ", "['a\"b']", "<|object_ref_start|>", "<|box_start|>", "```json\n", "<think>", "<answer>",
        "\\boxed{", "**", "$", "`", "\\text{", "答案：", "→",
    )},
    **{f"a megabyte of {tag!r} alone": _filled(tag) for tag in (
        "<answer>", "</answer>", "<answer></answer>", "</think>", "<think></think>", "<", "</answer", "\\boxed{", "{", "\\",
    )},
    "20,000 characters of wrappers": answered("\\boxed{$**`" * 1_800),
    "a lead-in for each": answered("Answer: " * 2_400),
    "an order of blanks": answered("a" + " " * 9_900 + "then"),
    "fractions": answered("1/" * 4_900),
    "a megabyte in an open quote": answered('["' + "a" * MEGABYTE + "]"),
    "a coordinate of 90,000 digits": answered("[" + "1" * 90_000 + ", 2, 3, 4]"),
    "escaped quotes in an open string": answered("['" + "\\'" * 49_000 + "]"),
    "a megabyte of combining marks": answered("a" + "\u0300\u0315" * (MEGABYTE // 2)),
    "20,000 characters of combining marks": answered("a" + "\u0300\u0315" * 9_900),
    "5,000 numbers": answered("1 " * 4_999),
    "10,000 items": answered("a," * 9_999),
    "3,900 items in a list": answered("[" + ",".join(map(str, range(3_900))) + "]"),
    "20,000 letters": answered("".join(chr(0x4E00 + n * 7919 % 3000) for n in range(19_990))),
    "4,000 points": answered(" ".join(f"({n % 977},{n % 613})" for n in range(4_000))),
    "4,000 tags of points": answered("<point x='1' y='2'>" * 4_000),
    "4,000 boxes for points": answered("<box>(1,2),(3,4)</box>" * 4_000),
    "boxes for points that are not closed": answered("<box>(1,2),(3,4)" * 6_000),
    "numbered items": answered("1. a and b\n" * 1_800),
    "one item of many": answered("a and " * 3_300),
    "bullets": answered("• " * 9_900),
    "raised units": answered("1 m^2 " * 1_600),
    "digits and blanks": answered("1" + " " * 9_900 + "kg/m^2"),
    "a tag of points that is not closed": answered("<points " + "x1=2 " * 19_000),
    "a megabyte of blanks in a list": answered("[" + " " * MEGABYTE),
    "20,000 boxes": answered(f"[{_many(_BOX)}]"),
    "20,000 JSON boxes": answered(f"[{_many(_BOX)}]".replace("'", '"')),
    "20,000 boxes in mixed quotes": answered(f"[{_many(_BOX)}, {{\"bbox\": [1, 2, 3, 4]}}]"),
    "20,000 bare boxes": answered(_many("[%d, 303, 991, 965]", joint=" ")),
    "20,000 corners": answered(_many("(%d,303),(991,965)", joint=" ")),
    "1,500 boxes": answered(f"[{_many(_BOX, 1500)}]"),
    "1,500 equal boxes": answered("[" + ", ".join([_BOX % 254] * 1500) + "]"),
    "1,500 boxes in mixed quotes": answered(f"[{_many(_BOX, 1500)}, {{\"bbox\": [1, 2, 3, 4]}}]"),
    "1e400": answered("[{'Position': [1e400, -1e400, 1e400, 1e400], 'Confidence': 1e400}]"),
    "990 brackets deep": answered("[" * 990 + "]" * 990),
    "990 objects deep": answered('{"objects":[' * 990 + "]}" * 990),
    "40,000 brackets deep, quoted": answered("['" + "[" * 40_000 + "]" * 40_000 + "']"),
    "lone surrogates": answered("[{'Position': [1, 2, 3, 4], 'label': '\ud800\udfff\udbff'}]"),
    "NUL bytes": "\x00" + answered("[\x00{'Position': [1, 2, 3, 4]}\x00]"),
    "code": answered("__import__('os').system('true')"),
}  # fmt: skip
