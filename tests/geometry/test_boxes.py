"""Geometry against independent implementations: torchvision and pycocotools."""

import numpy as np
import pytest
from evaluation.scored import pycocotools_evaluator

from swift_vlrft.geometry.boxes import (
    RECALLS,
    array_of,
    average_precision,
    giou,
    iou,
    overlap_table,
)


def random_boxes(rng, n, side=1000.0, least=0.5, most=400.0):
    corner = rng.uniform(0, side, (n, 2))
    return np.hstack([corner, corner + rng.uniform(least, most, (n, 2))])


def as_tuples(boxes):
    return [tuple(box) for box in boxes.tolist()]


@pytest.mark.slow
def test_iou_and_giou_agree_with_torchvision():
    import torch
    from torchvision import ops

    rng = np.random.default_rng(0)
    for _ in range(4):
        a, b = random_boxes(rng, 500), random_boxes(rng, 500)
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        found = overlap_table(array_of(as_tuples(a)), array_of(as_tuples(b)), 1e-9)
        np.testing.assert_allclose(found, ops.box_iou(ta, tb).numpy(), atol=1e-9)
        for ours, theirs in ((iou, ops.box_iou), (giou, ops.generalized_box_iou)):
            pairs = [[ours(p, q) for q in as_tuples(b[:60])] for p in as_tuples(a[:60])]
            np.testing.assert_allclose(pairs, theirs(ta[:60], tb[:60]).numpy(), atol=1e-12)


def test_a_box_overlaps_itself_exactly():
    for box in [(0.1, 0.2, 0.3, 0.7), (254.0, 303.0, 291.0, 365.0), (-1e8, -3.0, 1e8, 7.0)]:
        assert iou(box, box) == giou(box, box) == 1.0


@pytest.mark.parametrize("n", [0, 1, 7, 70])
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9])
def test_the_table_of_overlaps_misses_none(n, threshold):
    rng = np.random.default_rng(n)
    gold = as_tuples(random_boxes(rng, n, side=200))
    predicted = as_tuples(random_boxes(rng, n, side=200))
    moved = [tuple(v + rng.uniform(0, 5) for v in box[:2]) + box[2:] for box in gold]
    predicted += [box if box[0] < box[2] and box[1] < box[3] else None for box in moved] + [None]
    expected = {
        (i, j): iou(a, b)
        for i, a in enumerate(predicted)
        for j, b in enumerate(gold)
        if a is not None and iou(a, b) >= threshold
    }
    table = overlap_table(array_of(predicted), array_of(gold), threshold)
    found = {(i, j): table[i, j] for i, j in np.argwhere(table).tolist()}
    assert found == pytest.approx(expected, abs=1e-12)


def test_average_precision_by_hand():
    assert np.linspace(0.0, 1.0, 101).tolist() == RECALLS
    assert average_precision([True], 1) == average_precision([True, False], 1) == 1.0
    assert average_precision([False, True], 1) == 0.5
    assert average_precision([True], 2) == pytest.approx(51 / 101)
    assert average_precision([], 3) == 0.0


def cocos(gold, predicted):
    """mAP and mAP50 of labelled boxes, and of boxes with scores, by pycocotools."""
    ids = {label: n for n, label in enumerate(sorted({label for _, label in gold}), 1)}

    def row(box, label):
        bbox = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
        return {"image_id": 1, "category_id": ids[label], "bbox": bbox, "area": bbox[2] * bbox[3]}

    rows = [row(box, label) | {"iscrowd": 0} for box, label in gold]
    results = [row(box, label) | {"score": p} for box, label, p in predicted if label in ids]
    return pycocotools_evaluator(rows, results, [1], ids.values()).stats[:2] if results else None


def test_map_agrees_with_pycocotools():
    from swift_vlrft.rewards import REWARDS

    rng, compared = np.random.default_rng(5), 0
    for _ in range(40):
        n, m = int(rng.integers(1, 12)), int(rng.integers(1, 25))
        names = ["dog", "cat", "bird"][: int(rng.integers(1, 4))]
        boxes = random_boxes(rng, n, side=600, least=20, most=300)
        moved = boxes[rng.integers(0, n, m)] + rng.normal(0, 12, (m, 4))
        moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
        scores = (rng.permutation(m) / m + 0.5 / m).tolist()  # all distinct
        stated = [names[int(k)] for k in rng.integers(0, len(names), m)]
        gold = [(box, names[k % len(names)]) for k, box in enumerate(boxes.tolist())]
        predicted = list(zip(moved.tolist(), stated, scores, strict=True))
        if (theirs := cocos(gold, predicted)) is None:
            continue
        compared += 1
        answer = [{"bbox_2d": box, "label": label, "score": p} for box, label, p in predicted]
        truth = str([{"bbox_2d": box, "label": label} for box, label in gold])
        for name, expected in zip(("map", "map50"), theirs, strict=True):
            (ours,) = REWARDS[f"vlrft_detection_{name}"]([f"<answer>{answer}</answer>"], [truth])
            assert ours == pytest.approx(expected * min(1.0, n / m), abs=1e-6)
    assert compared > 30
