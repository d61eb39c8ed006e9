"""What a warm-started checkpoint can do."""

import msgspec


class Start(msgspec.Struct):
    """The longest answer that it learnt, in tokens, how many rows have a longer one, and its number
    of parameters.
    """

    longest: int
    left_out: int
    parameters: int
