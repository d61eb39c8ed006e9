"""A second plugin that registers the reward ``token_sum``: the sum of a completion's token ids
modulo 3, in [0, 1].

A random model writes tokens that decode to nothing: this tells completions apart, and two in three
pairs of them have a spread.
"""

from swift.rewards import orms


def token_sum(completions, response_token_ids, **_):
    return [sum(ids[0] if isinstance(ids[0], list) else ids) % 3 / 2 for ids in response_token_ids]


orms["token_sum"] = lambda args=None, **_: token_sum
