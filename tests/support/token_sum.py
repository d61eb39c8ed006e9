"""A second plugin that registers the reward ``token_sum``: the sum of a completion's token ids
modulo 97, in [0, 1].

A random model writes tokens that decode to nothing: this tells completions apart, and a group has a
spread.
"""

from swift.rewards import orms


def token_sum(completions, response_token_ids, **_):
    return [
        sum(ids[0] if isinstance(ids[0], list) else ids) % 97 / 96 for ids in response_token_ids
    ]


orms["token_sum"] = lambda args=None, **_: token_sum
