"""Say in words why a completion scored what it did.

    explain("vlrft_detection_iou", "<answer>[10, 10, 20, 20]</answer>", "[10, 10, 20, 40]")
    Reason(score=0.0, code="low_iou", text="best IoU 0.33 under 0.5")

Parsing and matching are those of the rewards, so a reason cannot disagree with a score.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from swift_vlrft.geometry.boxes import Box, iou
from swift_vlrft.parsing.answers import Answer, BoxList, read, with_prefix
from swift_vlrft.parsing.boxes import too_long
from swift_vlrft.parsing.items import meant
from swift_vlrft.rewards import REWARDS, Reward
from swift_vlrft.rewards.classification import right_names
from swift_vlrft.rewards.contract import logged_means
from swift_vlrft.rewards.detection import threshold_after, threshold_at
from swift_vlrft.rewards.grounding import overlaps
from swift_vlrft.rewards.listing import tau
from swift_vlrft.rewards.matching import agreement, matching
from swift_vlrft.rewards.number import read_tolerance
from swift_vlrft.rewards.ocr import edits, nearest, right_texts
from swift_vlrft.rewards.pointing import matched_points
from swift_vlrft.rewards.temporal import matched_iou

UNREAD = frozenset(
    {"no_answer", "not_boxes", "not_points", "not_spans", "too_long", "no_label", "no_number"}
    | {"no_choice", "no_text", "no_items"}
)
"""Codes of answers that could not be read: they lower the parse rate."""
MOST_NAMES = 10  # accepted ones that a reason lists
_NO_FORMAT = "ask for the answer's form in the prompt, or train on such answers first (SFT)"
ADVICE = {
    **dict.fromkeys(UNREAD | {"bad_format"}, _NO_FORMAT),
    "no_answer": f"{_NO_FORMAT}; if answers are cut off, raise --max_completion_length",
    "low_iou": "for detection `vlrft_detection_iou_soft` pays for any overlap; else easier rows",
    "invalid_boxes": "ask for x1, y1, x2, y2 with x1 < x2 and y1 < y2 in the prompt",
    "false_empty_prediction": "take only rows with objects until the model finds some",
    "missed_empty_prediction": "mix in rows with objects, and say in the prompt what to answer "
    "where there is none",
    "own": "the reward is a plugin's, and only the plugin knows why",
    "label_mismatch": "name the labels in the prompt",
}
"""What to do, by the code of most answers."""

Losses = Iterator[tuple[str, str]]


def advice(codes: Counter[str]) -> str:
    """Say what to do where answers earn nothing, for these reasons."""
    (code, number), *_ = codes.most_common(1)
    told = ADVICE.get(code, "take easier rows, or train on golds first (SFT)")
    return f"Most answers ({number} of {codes.total()}): {code.replace('_', ' ')}; {told}."


@dataclass(frozen=True, slots=True)
class Reason:
    """Holds the score (None: not scored), the main loss's ``code``, and all losses as ``text``."""

    score: float | None
    code: str
    text: str

    @property
    def was_read(self) -> bool:
        return self.code not in UNREAD


def explain(name: str, completion: Any, solution: Any, **row: Any) -> Reason:
    """Return score and reason of one completion under the reward ``name`` (a key of REWARDS).

    ``row``: values of further columns, such as ``task`` and ``aliases``, and ``trainer_state``.
    """
    state = row.pop("trainer_state", None)
    completion = with_prefix(completion, row.pop("response_prefix", None))
    columns = {key: [value] for key, value in row.items()}
    reward = REWARDS[name]
    task = reward.task
    gold: Any = None
    if task is not None:
        if (row.get("task") or task.name) != task.name:
            return Reason(None, "other_task", f"a {row['task']!s:.40} row")
        gold = task.read_gold(solution)
        if gold is None and "solution" in reward.needs:
            return Reason(None, "bad_gold", f"the gold solution cannot be read as {task.holds}")
    score = reward([completion], [solution], trainer_state=state, **columns)[0]
    if score == 1.0:
        return Reason(score, "ok", "full score")
    found = list(_losses(reward, read(completion), gold, row, state))
    losses = found or [("low_iou", "no box matched")]
    return Reason(score, losses[0][0], "; ".join(text for _, text in losses))


def _losses(reward: Reward, answer: Answer, gold: Any, row: dict[str, Any], state: Any) -> Losses:
    """Code and text of each reason why points were lost, the main one first."""
    task, of_format = reward.task, reward.scores_format
    kind, states = (task.name, task.states) if task else ("", None)
    text = answer.short if states and states.may_be_boxed else answer.text
    if reward.reason is not None and (answer.well_formed or not of_format):
        yield reward.reason
    elif of_format and not task and answer.well_formed:
        yield "bad_format", "not one non-empty think block, then text with one non-empty \\boxed{}"
    elif of_format and not answer.well_formed:
        yield "bad_format", "not one non-empty think block, then one non-empty answer block"
    elif text is None:
        yield "no_answer", "no complete answer block after the reasoning"
    elif task and task.has_spans:
        yield from _spans(answer.spans, gold)
    elif of_format or (task and task.gold_has_boxes):
        points = bool(task and task.has_points)
        what, noun = ("points", "point") if points else ("boxes", "box")
        placed: Any = answer.points if points else answer.boxes
        if placed is None and too_long(text) and not of_format:
            yield "too_long", f"answer of {len(text)} characters is too long to be read"
        elif placed is None:
            yield f"not_{what}", f"answer is not a list of {what}"
        elif of_format:
            invalid = placed.boxes.count(None)
            yield "invalid_boxes", f"{invalid} of {len(placed)} boxes invalid"
        elif isinstance(gold, BoxList) and not gold:
            told = f"{_count(len(placed), noun)} where there is no object"
            yield "missed_empty_prediction", told
        elif not placed:
            there = f"; there are {len(gold)}" if isinstance(gold, BoxList) else ""
            yield "false_empty_prediction", f"says there is no object{there}"
        elif kind == "grounding":
            yield from _grounding(placed, gold)
        elif points:
            yield from _pointing(placed, gold)
        else:
            threshold = threshold_at(state) if reward.changes_in_training else reward.least_iou
            if reward.sees_means:
                threshold = threshold_after(logged_means(state, reward.__name__))
            yield from _detection(reward, placed, gold, threshold)
    elif task is None or states is None:
        yield "wrong_answer", f"{_short(text)} does not earn full score"
    else:
        stated, what = getattr(answer, states.field), states.noun
        if stated is None or stated == "":
            yield f"no_{what}", states.missing
        elif kind == "classification":
            names = list(map(_short, sorted(right_names(gold, row.get("aliases")))))
            right = " or ".join(names[:MOST_NAMES] + ["..."] * (len(names) > MOST_NAMES))
            yield "wrong_label", f"label mismatch: {_short(stated)} is not {right}"
        elif kind == "ocr":
            yield _text(stated, right_texts(gold, row.get("aliases")))
        elif task.has_items:
            yield from _items(meant(stated, gold), gold)
        else:
            said, right = (
                f"{v:.12g}" if what == "number" else v if len(v) < 4 else _short(v)
                for v in (stated, gold)
            )
            tolerance = read_tolerance(row.get("tolerance"))
            within = f" within {tolerance:.3g} of it" if tolerance else ""
            yield f"wrong_{what}", f"{said} is not {right}{within}"


def _invalid(boxes: BoxList) -> Losses:
    if invalid := boxes.boxes.count(None):
        yield "invalid_boxes", f"{invalid} of {_count(len(boxes), 'box')} invalid"


def _grounding(predicted: BoxList, gold: Box) -> Losses:
    ious = overlaps(predicted, gold)
    yield from _invalid(predicted)
    if len(ious) > 1:
        yield "extra_boxes", _count(len(ious) - 1, "extra box")
    if max(ious) < 0.5:
        yield "low_iou", f"best IoU {max(ious):.2f} under 0.5"
    elif max(ious) < 1.0:
        yield "loose_boxes", f"IoU {max(ious):.2f}"


def _pointing(points: list[Any], gold: BoxList) -> Losses:
    matched, invalid = matched_points(points, gold), points.count(None)
    if invalid:
        yield "invalid_points", f"{invalid} of {len(points)} points cannot be read"
    if other := len(points) - invalid - matched:
        yield "points_outside", f"{other} of {len(points)} points lie in no box of their own"
    if missed := len(gold) - matched:
        yield "missed_boxes", f"{missed} of {_count(len(gold), 'gold box')} missed"


def _spans(spans: list[Box | None] | None, gold: list[Box] | None) -> Losses:
    """Why spans earn less than 1; without gold, why their format does."""
    if spans is None:
        yield "not_spans", "answer is not a list of spans in seconds, such as 12.5 to 18.2"
        return
    if invalid := spans.count(None):
        yield "invalid_spans", f"{invalid} of {_count(len(spans), 'span')} ends before it starts"
    if gold is not None:
        if len(spans) != len(gold):
            what = "extra_spans" if len(spans) > len(gold) else "missed_spans"
            yield what, f"{_count(len(spans), 'span')}; there are {len(gold)}"
        yield "loose_spans", f"summed IoU {matched_iou(spans, gold):.2f} of {len(gold)}"


def _text(text: str, right: list[str]) -> tuple[str, str]:
    gold = nearest(text, right)
    number = edits(text, gold)
    of = f", the nearest of {len(right)} accepted texts" if len(right) > 1 else ""
    if number == len(gold):
        far = f"{_short(text)} is as far from {_short(gold)} as no text at all"
        return "wrong_text", far + of
    told = f"{_count(number, 'edit')} of {len(gold)} characters"
    return "edits", f"{told}: {_short(text)} is not {_short(gold)}{of}"


def _items(items: list[str], gold: list[str]) -> Losses:
    missed, extra = Counter(gold) - Counter(items), Counter(items) - Counter(gold)
    told = ("missed_items", missed, "missed"), ("extra_items", extra, "not in the gold")
    for code, of_kind, what in told:
        if of_kind:
            yield code, f"{_count(of_kind.total(), 'item')} {what}: {_short(next(iter(of_kind)))}"
    if not missed and not extra:
        yield "wrong_order", f"tau {tau(items, gold) or 0.0:.2f}"


def _detection(reward: Reward, predicted: BoxList, gold: BoxList, threshold: float) -> Losses:
    matched = matching(predicted, gold, threshold)
    yield from _invalid(predicted)
    yield from _unmatched(predicted, gold, matched, threshold)
    if (extra := len(predicted) - len(gold)) > 0:
        yield "extra_boxes", _count(extra, "extra box")
    elif extra < 0:
        yield "missed_boxes", f"{_count(-extra, 'gold box')} missed"
    if reward.reads_confidence:
        if without := predicted.confidences.count(None):
            yield "no_confidence", f"{without} of {len(predicted)} without a confidence in [0, 1]"
        stated = {i: c for i, c in enumerate(predicted.confidences) if c is not None}
        of_hits = [stated.pop(i) for i, _, _ in matched if i in stated]
        if of_hits and min(of_hits) < 1.0:
            yield "underconfident", f"confidence {min(of_hits):g} for a matched box"
        if stated and (most := max(stated.values())) > 0.0:
            yield "overconfident", f"confidence {most:g} for an unmatched box"
    if matched:
        mean = sum(overlap for _, _, overlap in matched) / len(matched)
        yield "loose_boxes", f"{len(matched)} matched, mean IoU {mean:.2f}"


def _unmatched(predicted: BoxList, gold: BoxList, matched: list[Any], threshold: float) -> Losses:
    """Why gold boxes have no prediction: another label, or too little overlap."""
    free_predictions = sorted(set(range(len(predicted))) - {i for i, _, _ in matched})
    free_gold = sorted(set(range(len(gold))) - {j for _, j, _ in matched})
    if not 0 < len(free_predictions) * len(free_gold) <= 10_000:
        return  # would take seconds
    agree = agreement(predicted, gold)
    best, mismatch = 0.0, ""
    for i, j in product(free_predictions, free_gold):
        box, gold_box, label = predicted.boxes[i], gold.boxes[j], predicted.labels[i]
        overlap = iou(box, gold_box) if box and gold_box else 0.0
        if agree[label][j]:
            best = max(best, overlap)
        elif overlap >= threshold and not mismatch:
            shown = "no label" if label is None else _short(label)
            mismatch = f"label mismatch: {shown} where the gold says {_short(str(gold.labels[j]))}"
    if mismatch:
        yield "label_mismatch", mismatch
    if threshold < 0.01 and not mismatch:
        yield "no_overlap", "no overlap with a gold box that has no better match"
    elif best > 0.0 or not mismatch:
        yield "low_iou", f"best IoU {best:.2f} under {threshold:g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 'es' if what.endswith('x') else 's'}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
