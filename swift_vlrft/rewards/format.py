"""Score the format of the full text, for every task.

<think>Two of them.</think><answer>2</answer>             1.0
<think>Two.</think><answer>2</answer> or <answer>3</answer>   0.0
"""

from swift_vlrft.parsing.answers import Answer
from swift_vlrft.rewards.contract import reward


@reward(needs=(), scores_format=True)
def vlrft_format(answer: Answer) -> float:
    """1 if the text is one non-empty think block, then one non-empty answer block; else 0.

    Blanks around them do not count. Source: DeepSeek-R1's format reward, matched against the full
    text.
    """
    return 1.0 if answer.well_formed else 0.0
