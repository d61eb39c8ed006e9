"""Rewards that show what a run lets them see: a random model's answers earn nothing."""

from functools import wraps

from swift.rewards import orms

from swift_vlrft.parsing.answers import read
from swift_vlrft.rewards import vlrft_detection_iou_adaptive
from swift_vlrft.rewards.contract import reward
from swift_vlrft.rewards.matching import DETECTION

IOU_08 = read("<answer>[0, 0, 100, 80]</answer>")


@reward(DETECTION, sees_means=True)
def adaptive(answer, gold, means):
    return vlrft_detection_iou_adaptive.score(IOU_08, gold, means)


@reward(DETECTION, sees_group=True)
def of_three_others(answer, gold, others):
    return float(len(others) == 3)


for own in (adaptive, of_three_others):
    # ms-swift logs a function by its name, and an object by its class.
    orms[own.__name__] = lambda args=None, own=own, **_: wraps(own)(lambda *a, **k: own(*a, **k))
