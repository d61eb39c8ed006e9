"""A second plugin: what a random model writes first counts as a call of the zoom tool, for a part
of its picture that depends on the text. Its last turn is left as it is.
"""

from copy import deepcopy
from zlib import crc32

from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns

from swift_vlrft.swift_plugin.zoom import ZoomScheduler
from swift_vlrft.zoom import SCHEDULER

CALL = (
    '<tool_call>{{"name": "image_zoom_in_tool", "arguments": {{"bbox_2d": [{0}, {0}, {1}, {1}]}}}}'
    "</tool_call>"
)


class AlwaysZooms(ZoomScheduler):
    def check_finished(self, infer_request, response_choice, current_turn):
        # As ever: what is cut off in the middle of a turn has no next one.
        return MultiTurnScheduler.check_finished(self, infer_request, response_choice, current_turn)

    def step(self, infer_request, response_choice, current_turn):
        start = crc32((response_choice.message.content or "").encode()) % 8
        choice = deepcopy(response_choice)
        choice.message.content = CALL.format(start, start + 20)
        return super().step(infer_request, choice, current_turn)


multi_turns[SCHEDULER] = AlwaysZooms
