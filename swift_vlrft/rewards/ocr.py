"""Score text in images: write down what stands there.

Texts are compared in NFKC, with runs of blanks as one and none outside; case and marks count.
"""

from typing import Any

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.texts import MAX_TEXT, plain_text
from swift_vlrft.rewards.classification import alias_texts, problem_of_text
from swift_vlrft.rewards.contract import Stated, Task, reward

MAX_GOLD = MAX_TEXT // 2
"""A text of twice the gold's length scores 0 whatever it says, and a longer one is not read."""


def read_text(text: str) -> str | None:
    """Return the gold text; None if it is empty or longer than ``MAX_GOLD`` characters."""
    plain = plain_text(text)
    return plain if plain and len(plain) <= MAX_GOLD else None


def right_texts(gold: str, aliases: Any) -> list[str]:
    """Return the accepted texts: the solution's, then the row's aliases, of at most ``MAX_GOLD``
    characters together, so that comparing takes bounded time.
    """
    texts, room = [gold], MAX_GOLD
    for text in map(plain_text, alias_texts(aliases)):
        if text and len(text) <= room and text not in texts:
            texts.append(text)
            room -= len(text)
    return texts


OCR = Task(
    "ocr",
    read_text,
    f"a text of 1 to {MAX_GOLD} characters",
    as_written=True,
    reads_most=True,
    # Numbers in brackets and objects may stand in an image; a list of texts is accepted answers.
    problem_of=lambda row: problem_of_text(row) if row["solution"][:2] in ("['", '["') else None,
    states=Stated("plain", "text", "answer is empty or too long to be read", may_be_boxed=False),
    headline="anls",
    completion_tokens=1024,
    hub_category="image-to-text",
)


@reward(OCR, takes=("aliases",))
def vlrft_ocr(answer: Answer, gold: str, aliases: Any = None) -> float:
    """max(0, 1 - edits / characters) of the nearest accepted text: Levenshtein, by rapidfuzz.

    An optional column ``aliases`` holds further accepted texts per row (DocVQA, TextVQA have them).
    Source: ANLS (Biten et al. 2019), without its threshold.

    >>> vlrft_ocr(["<answer>Hotel</answer>"], ["Hôtel"])
    [0.8]
    """
    right = nearest(answer.plain or "", right_texts(gold, aliases))
    return 1.0 - edits(answer.plain or "", right) / len(right)


@reward(OCR, takes=("aliases",))
def vlrft_ocr_exact(answer: Answer, gold: str, aliases: Any = None) -> float:
    """1 if the text is the solution's or that of one of the row's ``aliases``, else 0.
    Source: exact match, as TextVQA has it.

    >>> vlrft_ocr_exact(["<answer>ITC</answer>"], ["ITC Limited"], aliases=[["ITC", "itc limited"]])
    [1.0]
    """
    return 1.0 if answer.plain in right_texts(gold, aliases) else 0.0


def nearest(text: str, right: list[str]) -> str:
    """Return the accepted text by which ``text`` earns most; of equally near texts the first."""
    return min(right, key=lambda gold: edits(text, gold) / len(gold))


def edits(text: str, gold: str) -> int:
    """Return the Levenshtein distance of two texts, at most the gold's length."""
    from rapidfuzz.distance import Levenshtein  # here: most runs read no text

    return min(Levenshtein.distance(text, gold, score_cutoff=len(gold)), len(gold))
