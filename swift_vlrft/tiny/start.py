"""A warm-started checkpoint says what it can do."""

import msgspec


class Start(msgspec.Struct):
    """A start states the longest answer that it learnt, in tokens, how many rows have a longer
    answer, and its number of parameters.
    """

    longest: int
    left_out: int
    parameters: int
