"""Score the format of the full text, for every task."""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.rewards.contract import reward


@reward(needs=(), scores_format=True)
def vlrft_format(answer: Answer) -> float:
    """1 if the text is one non-empty think block, then one non-empty answer block; else 0.

    Blanks around them do not count. Source: DeepSeek-R1's format reward, matched against the full
    text.

    >>> text = "<think>Two.</think><answer>2</answer>"
    >>> vlrft_format([text, f"{text} or 3"])
    [1.0, 0.0]
    """
    return 1.0 if answer.well_formed else 0.0
