"""A reward that sees all answers to its row, in a plugin file of your own.

swift rlhf ... --external_plugins "$(vlrft plugin)" group_reward.py --reward_funcs boxes_agree

``others``: what the decorator hands over beside the answer and the gold boxes, the other answers of
the group, wherever in the run they were scored.
"""

from swift.rewards import orms

from swift_vlrft.rewards import vlrft_detection_iou
from swift_vlrft.rewards.contract import reward
from swift_vlrft.rewards.matching import DETECTION


@reward(DETECTION, sees_group=True)
def boxes_agree(answer, gold, others):
    """``vlrft_detection_iou`` x its mean with the other answers in the gold's place.

    Agreement alone would pay a group that draws the same wrong box.
    """
    alike = [vlrft_detection_iou.score(answer, other.boxes) for other in others if other.boxes]
    return vlrft_detection_iou.score(answer, gold) * sum(alike) / max(len(others), 1)


def agreement(completions, solution, **columns):
    """ms-swift logs a function by its name, and a reward of the decorator as "Reward"."""
    return boxes_agree(completions, solution, **columns)


agreement.__name__ = "boxes_agree"
orms["boxes_agree"] = lambda args=None, **kwargs: agreement
