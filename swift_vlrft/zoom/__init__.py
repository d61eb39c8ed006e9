"""Looking closer: the model names a box, sees that part of the stored picture, and answers.

calls.py   the call of the tool in a model's turn
crops.py   the part of the picture that is shown, or the line that says why there is none

ms-swift's scheduler of turns is swift_plugin/zoom.py, the rewards are in rewards/zoom.py, and the
rule of recipes is in recipe/rules/turns.py. Other folders know only that a row may have earlier
turns with images: its column ``turns`` (parsing/turns.py).
"""

SCHEDULER = "vlrft_zoom"
"""The name for --multi_turn_scheduler."""
