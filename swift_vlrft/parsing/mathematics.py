"""Write a mathematical answer as LaTeX.

mathematics("2√3π cm²")       "2\\sqrt{3}\\pi cm^{2}"
"""

import re
import unicodedata

from swift_vlrft.parsing.short_answers import SIGNS, decimal, short

_RAISED_TO = re.compile("[⁺⁻]?[⁰¹²³⁴-⁹]+")
_IN_LATEX = {"°": r"^\circ ", "π": r"\pi ", "×": r"\times ", "·": r"\cdot ", "÷": r"\div "}
_IN_LATEX |= {"∞": r"\infty ", "≤": r"\leq ", "≥": r"\geq ", "∪": r"\cup ", "±": r"\pm "}
_IN_LATEX["∠"] = r"\angle "
_TO_LATEX = SIGNS | str.maketrans(_IN_LATEX)
_ROOT = re.compile(
    r"(?:√|(?<![A-Za-z\\])sqrt(?=\())\s*(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-z]))"
)
_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
# Units that math-verify takes for factors; m and m^2 may be some.
_LENGTH = re.compile(r"(?<![A-Za-z\\])(?:[mcdk]m(?:\^\{?[23]\}?)?|[\u4e00-\u9fff]{1,4})$")
# $30, 30 m/s, 30 people; but 30 x and 30m² are products.
_MEASURED = re.compile(
    r"(?:\\?\$\s*)?(-?\d[\d,]*(?:\.\d+)?)"
    r"(?:[\s~]+(?:N|m|[cmdk]m|[A-Za-z]{3,})(?:/[a-z]{1,3})?(?:\^\{?[23]\}?)?)?"
)
_EXPONENT = re.compile(r"(?<=\d)[eE]([-+]?\d{1,3})(?!\w)")
_VULGAR = re.compile(r"(\d{1,9})⁄(\d{1,9})")


def mathematics(text: str) -> str:
    """Write ``text`` as LaTeX: unwrapped, "2√3π cm²" as "2\\sqrt{3}\\pi cm^{2}"."""
    raised = _RAISED_TO.sub(lambda match: f"^{{{unicodedata.normalize('NFKC', match[0])}}}", text)
    plain = _PI.sub(r"\\pi ", short(raised).translate(_TO_LATEX))
    measured = _MEASURED.fullmatch(plain)
    if measured is not None and decimal(plain) is not None:
        return measured[1]
    plain = _EXPONENT.sub(r"\\times 10^{\1}", _VULGAR.sub(r"\\frac{\1}{\2}", plain))
    plain = plain.removeprefix("m\\angle").replace("\\varnothing", "\\emptyset")
    plain = _LENGTH.sub("", plain).strip()
    return _ROOT.sub(lambda match: f"\\sqrt{{{match[1] or match[2] or match[3]}}}", plain)
