"""Read the column ``turns``: what a model said, and was told, before the turn that answers.

[{"text": "<think>..</think><tool_call>..", "said": "<image>", "crop": [390, 410, 450, 470]}]

``text`` is the model's, ``said`` the reply to it, and ``crop`` the part of the picture that the
reply shows, in thousandths of width and height.
"""

from typing import Any

from swift_vlrft.parsing.answers import plain


def earlier_turns(turns: Any) -> list[dict[str, Any]]:
    """Return the turns of a row; turns of another form, from another program, are left out."""
    turns = plain(turns)
    listed = turns if isinstance(turns, (list, tuple)) else []
    return [turn for turn in listed if isinstance(turn, dict) and isinstance(turn.get("text"), str)]
