"""A second plugin that registers the reward ``coin``: 1 or 0 by a checksum of the text, so that
groups have spread.
"""

import zlib

from swift.rewards import orms


def coin(completions, **_):
    return [float(zlib.crc32(text.encode("utf-8", "replace")) % 2) for text in completions]


orms["coin"] = lambda args=None, **_: coin
