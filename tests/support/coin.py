"""A second plugin that registers the reward ``coin``: 1 for every second completion.

A random model earns nothing, and without spread in a group there is no gradient.
"""

from swift.rewards import orms


def coin(completions, **_):
    return [float(i % 2) for i in range(len(completions))]


orms["coin"] = lambda args=None, **_: coin
