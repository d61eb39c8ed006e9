"""Geometry against independent implementations: torchvision and pycocotools."""

import contextlib
import io

import numpy as np
import pytest

from swift_vlrft.geometry.boxes import (
    RECALLS,
    array_of,
    average_precision,
    by_left,
    giou,
    iou,
    overlapping_in_arrays,
    overlapping_pairs,
)


def random_boxes(rng, n, side=1000.0, least=0.5, most=400.0):
    corner = rng.uniform(0, side, (n, 2))
    return np.hstack([corner, corner + rng.uniform(least, most, (n, 2))])


def as_tuples(boxes):
    return [tuple(box) for box in boxes.tolist()]


def table(a, b):
    """IoU of all pairs, as the form for many boxes finds it."""
    found = np.zeros((len(a), len(b)))
    i, j, overlaps = overlapping_in_arrays(array_of(as_tuples(a)), array_of(as_tuples(b)), 1e-9)
    found[i, j] = overlaps
    return found


def test_iou_and_giou_agree_with_torchvision():
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    rng = np.random.default_rng(0)
    for _ in range(4):
        a, b = random_boxes(rng, 500), random_boxes(rng, 500)
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        np.testing.assert_allclose(table(a, b), ops.box_iou(ta, tb).numpy(), atol=1e-9)
        theirs = ops.generalized_box_iou(ta[:100], tb[:100]).numpy()
        ours = [[giou(p, q) for q in as_tuples(b[:100])] for p in as_tuples(a[:100])]
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_one_pair_agrees_with_the_form_for_many():
    rng = np.random.default_rng(1)
    a, b = random_boxes(rng, 60, side=300), random_boxes(rng, 60, side=300)
    ours = [[iou(p, q) for q in as_tuples(b)] for p in as_tuples(a)]
    np.testing.assert_allclose(ours, table(a, b), atol=1e-9)


def test_a_box_overlaps_itself_exactly():
    for box in [(0.1, 0.2, 0.3, 0.7), (254.0, 303.0, 291.0, 365.0), (-1e8, -3.0, 1e8, 7.0)]:
        assert iou(box, box) == giou(box, box) == 1.0


@pytest.mark.parametrize("n", [0, 1, 7, 70])
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9])
def test_overlapping_pairs_misses_none(n, threshold):
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
    few = overlapping_pairs(predicted, by_left(gold), threshold)
    many = overlapping_in_arrays(array_of(predicted), array_of(gold), threshold)
    for pairs in (few, zip(*(column.tolist() for column in many), strict=True)):
        assert {(i, j): overlap for i, j, overlap in pairs} == pytest.approx(expected, abs=1e-12)


def test_recall_levels_are_cocos():
    assert np.linspace(0.0, 1.0, 101).tolist() == RECALLS


def test_average_precision_by_hand():
    assert average_precision([True], 1) == 1.0
    assert average_precision([False, True], 1) == 0.5
    assert average_precision([True, False], 1) == 1.0
    assert average_precision([True], 2) == pytest.approx(51 / 101)
    assert average_precision([], 3) == 0.0


def test_map_agrees_with_pycocotools():
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    from swift_vlrft.rewards import REWARDS

    rng = np.random.default_rng(5)
    for _ in range(40):
        n, m = int(rng.integers(1, 12)), int(rng.integers(1, 25))
        names = ["dog", "cat", "bird"][: int(rng.integers(1, 4))]
        gold = random_boxes(rng, n, side=600, least=20, most=300)
        predicted = gold[rng.integers(0, n, m)] + rng.normal(0, 12, (m, 4))
        predicted[:, 2:] = np.maximum(predicted[:, 2:], predicted[:, :2] + 1)
        scores = rng.permutation(m) / m + 0.5 / m  # all distinct
        labels = [names[k % len(names)] for k in range(n)]
        stated = [names[int(k)] for k in rng.integers(0, len(names), m)]
        classes = sorted(set(labels))
        ids = {name: k + 1 for k, name in enumerate(names)}

        def coco_box(box):
            x1, y1, x2, y2 = box.tolist()
            return [x1, y1, x2 - x1, y2 - y1]

        with contextlib.redirect_stdout(io.StringIO()):
            truth = coco.COCO()
            truth.dataset = {
                "images": [{"id": 1, "width": 2000, "height": 2000}],
                "categories": [{"id": ids[name], "name": name} for name in classes],
                "annotations": [
                    {"id": k + 1, "image_id": 1, "category_id": ids[labels[k]], "iscrowd": 0}
                    | {"bbox": coco_box(gold[k]), "area": float(np.prod(gold[k, 2:] - gold[k, :2]))}
                    for k in range(n)
                ],
            }
            truth.createIndex()
            results = [
                {"image_id": 1, "category_id": ids[stated[k]], "score": float(scores[k])}
                | {"bbox": coco_box(predicted[k])}
                for k in range(m)
                if stated[k] in classes
            ]
            if not results:
                continue
            evaluation = cocoeval.COCOeval(truth, truth.loadRes(results), "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        text = [
            {"bbox_2d": predicted[k].tolist(), "score": float(scores[k]), "label": stated[k]}
            for k in range(m)
        ]
        gold_text = [{"bbox_2d": gold[k].tolist(), "label": labels[k]} for k in range(n)]
        factor = min(1.0, n / m)
        for name, theirs in (("map", evaluation.stats[0]), ("map50", evaluation.stats[1])):
            reward = REWARDS[f"vlrft_detection_{name}"]
            ours = reward([f"<answer>{text}</answer>"], [str(gold_text)])[0]
            assert ours == pytest.approx(theirs * factor, abs=1e-6)
