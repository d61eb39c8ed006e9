"""A reward of your own, in a plugin file of your own.

swift rlhf ... --external_plugins "$(vlrft plugin)" my_reward.py --reward_funcs short_answer
"""

from swift.rewards import orms

from swift_vlrft.parsing.answers import read


def short_answer(completions, solution=None, **columns):
    """1 if the answer has at most 100 characters."""
    return [float(0 < len(read(text).text or "") <= 100) for text in completions]


orms["short_answer"] = lambda args=None, **kwargs: short_answer
