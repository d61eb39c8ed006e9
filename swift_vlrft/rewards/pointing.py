"""Score pointing: one point in each object, or in the one thing to click."""

from swift_vlrft.geometry.assignment import match
from swift_vlrft.geometry.boxes import array_of
from swift_vlrft.parsing.answers import BoxList
from swift_vlrft.parsing.points import Point
from swift_vlrft.rewards.contract import Task, compares, reward
from swift_vlrft.rewards.matching import read_valid_boxes


def centres(gold: BoxList) -> str:
    """Return the gold as an answer: the centre of each box."""
    middle = [[(b[0] + b[2]) / 2, (b[1] + b[3]) / 2] for b in gold.boxes if b is not None]
    return str(middle) if middle else "No Objects"


POINTING = Task(
    "pointing",
    read_valid_boxes,
    "one or several boxes or 'No Objects'",
    has_points=True,
    reads_most=True,
    answer_of=centres,
    headline="point_accuracy",
)


@reward(POINTING)
@compares("points")
def vlrft_pointing(points: list[Point | None], gold: BoxList) -> float:
    """2 matched / (points + boxes): points and boxes are matched one to one, a point with a box
    that it lies in or on.

    A point that cannot be read lies in no box and counts. Source: GUI-R1's point in box, as an F1.

    >>> points = '<answer>[{"point_2d": [180, 220]}, {"point_2d": [9, 9]}, [5, 5]]</answer>'
    >>> vlrft_pointing([points], ["[100, 100, 300, 300]"])
    [0.5]
    """
    return 2.0 * matched_points(points, gold) / (len(points) + len(gold))


def matched_points(points: list[Point | None], gold: BoxList) -> int:
    """Count the most pairs of a point and a box that it lies in or on, each used once."""
    x, y = array_of([point and (*point, *point) for point in points])[:2, :, None]
    x1, y1, x2, y2 = gold.array
    inside = (x1 <= x) & (x <= x2) & (y1 <= y) & (y <= y2)
    return len(match(inside.astype(float)))
