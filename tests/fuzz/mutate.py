"""Changes of good examples: of texts, of decoded JSON, of bytes. All from a ``random.Random``."""

# ruff: noqa: E501 - rows of a table stay on one line

import random
from typing import Any

TERMINAL = [
    "\x1b[31mred", "\x1b]0;title\x07", "\x1b]8;;http://a.b\x1b\\x\x1b]8;;\x1b\\", "\x1b]52;c;cm0=\x07", "\x1bc",
    "\x9b2J", "\x9d52;c;cm0=\x9c", "\x90q\x9c", "\x07", "\x08\x08", "\r", "\x7f", "\x00", "\u202egnp.exe", "\u2066a\u2069",
    "\u200b", "\ufeff", "\u2028", "\u2029", "\x85", "\x0b", "\U000e0041", "[red]", "[/]", "[link=http://a.b]x[/link]", ":boom:",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "' onload='x", "\"><b>", "&lt;", "{{ 7*7 }}", "${7*7}", "![a](b)", "|",
    "=1+1", "+1", "@SUM(1)", "-2+3", "\ud800", "\udcff", "$\\frac{", "%s %d {0} {x}", "\\x41",
]  # fmt: skip
"""What a model or a stranger's file may write, and an output must show and not do."""

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, -(10**40), 0.5, -0.0, 1e308, -1e308, 1e-320, float("nan"), float("inf"),
    float("-inf"), "", " ", "\n", "nan", "None", "null", "1e400", "0", "-1", "9" * 5000, "a" * 5000, "\u0301" * 300, [], {}, [[]], [None],
    {"": None}, [[[[[[]]]]]], {"a": {"b": {"c": []}}}, [1, "a", None, {}], ["\x00"], {"path": None, "bytes": None},
    "../../../etc/passwd", "/etc/passwd", "/dev/zero", "/dev/stdin", "file:///etc/passwd", "http://127.0.0.1:9/a.png", "a\x00b", ".", "/", "~",
    "data:image/png;base64,", "data:,x", "data:image/png;base64,!!!", "con", "a" * 300 + ".png", *TERMINAL,
]  # fmt: skip


def text(rng: random.Random, base: str, pieces: list[str], seeds: list[str]) -> str:
    """Cut, double and splice a text."""
    for _ in range(rng.randint(1, 6)):
        a, b = sorted((rng.randint(0, len(base)), rng.randint(0, len(base))))
        insert = rng.choice(
            ["", rng.choice(pieces), base[a:b] * rng.randint(1, 3), rng.choice(seeds)]
        )
        base = (base[:a] + insert + base[rng.choice([a, b]) :])[:20_000]
    return base


def value(rng: random.Random, base: Any, depth: int = 0) -> Any:
    """Decoded JSON with one to three of its leaves, keys or levels changed."""
    if depth == 0:
        for _ in range(rng.choice((1, 1, 2, 3))):
            base = value(rng, base, 1)
        return base
    if isinstance(base, dict) and base and rng.random() < 0.95:
        key = rng.choice(list(base))
        chance = rng.random()
        if chance < 0.06:
            return {k: v for k, v in base.items() if k != key}
        if chance < 0.1:
            return base | {rng.choice(TERMINAL): base[key]}
        if chance < 0.12:
            return {(rng.choice(TERMINAL) if k == key else k): v for k, v in base.items()}
        return base | {key: value(rng, base[key], depth + 1)}
    if isinstance(base, list) and base and rng.random() < 0.9:
        at, chance = rng.randrange(len(base)), rng.random()
        if chance < 0.08:
            return base[:at] + base[at + 1 :]
        if chance < 0.15:
            return base[:at] + [base[at]] * rng.randint(2, 4) + base[at + 1 :]
        if chance < 0.2:
            return base[::-1]
        return [*base[:at], value(rng, base[at], depth + 1), *base[at + 1 :]]
    chance = rng.random()
    if isinstance(base, str) and chance < 0.5:
        return text(rng, base, TERMINAL, [base])
    if isinstance(base, int | float) and not isinstance(base, bool) and chance < 0.5:
        return rng.choice(
            [-base, base + 1, base * 1000, base / 1000, str(base), f" {base} ", [base]]
        )
    if chance < 0.6:
        return [base]
    if chance < 0.65:
        return {"text": base}
    return rng.choice(ODD)


RAW = (
    b'\x00 \xff \xfe\xff \xff\xfe \xef\xbb\xbf \x1f\x8b \n \r\n { } [ ] , - 0 " \\ \xed\xa0\x80 '
    b"\\ud800 NaN 1e999 null \x80 \xe2\x80\xa8 \x7f\xff\xff\xff"
).split(b" ")
RAW += [b" ", b"[" * 3000, b'{"a":' * 3000]


def raw(rng: random.Random, base: bytes, most: int = 4) -> bytes:
    """Bytes flipped, cut out, doubled, overwritten, cut off."""
    for _ in range(rng.randint(1, most)):
        a = rng.randint(0, len(base))
        b = min(len(base), a + rng.choice((0, 1, 1, 2, 4, 8, 64, 1000)))
        chance = rng.random()
        if chance < 0.35 and base:
            at = rng.randrange(len(base))
            base = base[:at] + bytes([base[at] ^ (1 << rng.randrange(8))]) + base[at + 1 :]
        elif chance < 0.5:
            base = base[:a] + rng.choice(RAW) + base[b:]
        elif chance < 0.6:
            base = base[:a] + base[b:]
        elif chance < 0.7:
            base = base[:b] + base[a:b] * rng.randint(1, 5) + base[b:]
        elif chance < 0.8:
            base = base[:a] + rng.randbytes(b - a) + base[b:]
        elif chance < 0.88:
            base = base[:a] + b"\xff" * (b - a) + base[b:]
        elif chance < 0.94:
            base = base[:a] + bytes(b - a) + base[b:]
        else:
            base = base[:a]
    return base
