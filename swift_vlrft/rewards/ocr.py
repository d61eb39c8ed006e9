"""Text in images: write down what stands there.

    "What does the sign say?"
    completion  <think>..</think><answer>Grand Hotel</answer>
    solution    <answer>Grand Hôtel</answer>

    vlrft_ocr 0.909 (1 edit of 11 characters), vlrft_ocr_exact 0.0

Texts are compared in NFKC, with runs of blanks as one and none outside; case and marks count.
"""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.texts import MAX_TEXT, plain_text
from swift_vlrft.rewards.contract import Task, reward

MAX_GOLD = MAX_TEXT // 2
"""A text of twice the gold's length scores 0 whatever it says, and a longer one is not read."""


def read_text(text: str) -> str | None:
    """The gold text; None if it is empty or longer than ``MAX_GOLD`` characters."""
    plain = plain_text(text)
    return plain if plain and len(plain) <= MAX_GOLD else None


OCR = Task("ocr", read_text, f"a text of 1 to {MAX_GOLD} characters", reads_most=True)


@reward(OCR)
def vlrft_ocr(answer: Answer, gold: str) -> float:
    """max(0, 1 - edits / characters of the gold): Levenshtein distance, by rapidfuzz."""
    return 1.0 - edits(answer.plain or "", gold) / len(gold)


@reward(OCR)
def vlrft_ocr_exact(answer: Answer, gold: str) -> float:
    """1 if the texts are equal, else 0."""
    return 1.0 if answer.plain == gold else 0.0


def edits(text: str, gold: str) -> int:
    """The Levenshtein distance of two texts, at most the gold's length."""
    from rapidfuzz.distance import Levenshtein  # here: most runs read no text

    if len(text) >= 2 * len(gold):
        return len(gold)
    return min(Levenshtein.distance(text, gold, score_cutoff=len(gold)), len(gold))
