"""Score temporal grounding: when in a video does something happen? Spans are boxes of one side."""

from collections.abc import Sequence

from swift_vlrft.geometry.assignment import match
from swift_vlrft.geometry.boxes import EPSILON, Box, array_of, overlap_table
from swift_vlrft.parsing.answers import Answer
from swift_vlrft.parsing.spans import read_spans
from swift_vlrft.rewards.contract import SPAN, Task, reward


def read_gold_spans(text: str) -> list[Box] | None:
    """Return the gold spans; None if there is none, or one whose end is not behind its start."""
    spans = read_spans(text) or [None]
    return None if None in spans else [span for span in spans if span is not None]


TEMPORAL = Task(
    "temporal",
    read_gold_spans,
    "spans in seconds, such as 12.5 to 18.2",
    has_spans=True,
    asks_also=SPAN,
    headline="mean_iou",
    hub_category="video-text-to-text",
)


@reward(TEMPORAL)
def vlrft_temporal_iou(answer: Answer, gold: list[Box]) -> float:
    """Sum of IoU over spans matched one to one / max(spans given, gold spans). Overlapping spans
    count as spans given. Source: TimeR1's and VideoChat-R1's IoU of one span.

    >>> vlrft_temporal_iou(["<answer>10 to 20</answer>", "<answer>9</answer>"], ["15 to 20"] * 2)
    [0.5, 0.0]
    """
    spans = answer.spans or []
    return matched_iou(spans, gold) / max(len(spans), len(gold))


@reward(TEMPORAL, needs=(), scores_format=True)
def vlrft_temporal_format(answer: Answer) -> float:
    """1 if ``vlrft_format`` is 1 and the answer reads as spans, each ending behind its start.
    Source: ours.

    >>> thought = "<think>t</think><answer>{}</answer>"
    >>> vlrft_temporal_format([thought.format(text) for text in ("1 to 2", "2 to 1", "soon")])
    [1.0, 0.0, 0.0]
    """
    return 1.0 if answer.well_formed and answer.spans and None not in answer.spans else 0.0


def matched_iou(spans: Sequence[Box | None], gold: Sequence[Box]) -> float:
    """Return the largest sum of IoU over spans and gold spans matched one to one."""
    table = overlap_table(array_of(spans), array_of(gold), EPSILON)
    return sum(value for _, _, value in match(table))
