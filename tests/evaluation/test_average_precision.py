"""COCO's average precision: the numbers are pycocotools's, and those of resampled images follow."""

import random

import numpy as np
import pytest
from scored import AP_NAMES, answer, eval_json, pycocotools_evaluator, write_lines

from swift_vlrft.evaluation import average_precision, precision_recall_f1, task_metrics
from swift_vlrft.evaluation.coco import coco_scores


def drawn_set(seed: int, images: int = 40, categories: int = 5, crowds: bool = True):
    """Gold and detections near it, beside it, doubled, with equal scores, on crowds."""
    rng = random.Random(seed)
    gold, predicted = [], []
    for image in range(1, images + 1):
        for category in range(1, categories + 1):
            place = {"image_id": image, "category_id": category}
            for _ in range(rng.choice((0, 0, 1, 2, 5))):
                side = rng.choice((10, 50, 200))
                box = [rng.uniform(0, 400), rng.uniform(0, 400)]
                box += [rng.uniform(0.5, 1.5) * side, rng.uniform(0.5, 1.5) * side]
                area = box[2] * box[3] * rng.uniform(0.5, 1.0)
                crowd = int(crowds and rng.random() < 0.1)
                gold.append(place | {"bbox": box, "area": area, "iscrowd": crowd})
                for _ in range(rng.choice((0, 1, 1, 1, 3))):
                    slip = rng.choice((0.0, 0.05, 0.2, 0.5))
                    moved = [v + rng.uniform(-slip, slip) * side for v in box]
                    moved[2:] = [max(1.0, v) for v in moved[2:]]
                    predicted.append(place | {"bbox": moved, "score": round(rng.random(), 1)})
            if rng.random() < 0.2:
                far = [rng.uniform(500, 600), 500.0, 20.0, 20.0]
                predicted.append(place | {"bbox": far, "score": 0.9})
    return gold, predicted, list(range(1, images + 1)), list(range(1, categories + 1))


def by_order(images):
    return {image: n for n, image in enumerate(images)}


def ranked(drawn, seed=0):
    """The set, no two of whose detections have the same score."""
    rng = random.Random(seed)
    return drawn[0], [box | {"score": rng.random()} for box in drawn[1]], *drawn[2:]


def mappings(entries, images, *names):
    """COCO's entries as torchmetrics takes them, image by image."""
    of_image = {image: [e for e in entries if e["image_id"] == image] for image in images}
    keys = {"boxes": "bbox", "labels": "category_id", "scores": "score"}
    return [
        {name: [e[keys.get(name, name)] for e in held] for name in ("boxes", "labels", *names)}
        for held in of_image.values()
    ]


@pytest.mark.parametrize("seed", range(3))
def test_average_precision_is_that_of_pycocotools(seed):
    drawn = ranked(drawn_set(seed))
    images, categories = drawn[2:]
    expected = pycocotools_evaluator(*drawn)
    scores = coco_scores(*drawn, by_order(images))
    means = [scores.mean[name] for name in AP_NAMES]
    assert means == pytest.approx(list(expected.stats[:6]), abs=1e-9)
    for n, category in enumerate(categories):
        of_category = expected.eval["precision"][:, :, n, 0, 2]
        named = {"AP": of_category.mean(), "AP50": of_category[0].mean()}
        for name, value in named.items():
            assert scores.by_category[category][name] == pytest.approx(value, abs=1e-9)
    every_image_once = scores.resampled(np.ones((2, len(images))))
    for name in ("AP", "AP50", "f1_50"):
        assert every_image_once[name] == pytest.approx([scores.mean[name]] * 2, abs=1e-9)


@pytest.mark.slow
def test_lists_in_python_score_as_pycocotools():
    for seed in range(30):
        gold, found, images, categories = ranked(drawn_set(seed, images=3, categories=2), seed)
        sides = mappings(found, images, "scores"), mappings(gold, images, "area", "iscrowd")
        scores = average_precision(*sides, box_format="xywh")
        if not gold or not found:  # pycocotools has no word for either
            assert scores["AP"] == (0.0 if gold else None)
            continue
        expected = pycocotools_evaluator(gold, found, images, categories)
        values = [-1.0 if scores[name] is None else scores[name] for name in AP_NAMES]
        assert values == pytest.approx(list(expected.stats[:6]), abs=1e-9), seed
        held = [one for one in expected.evalImgs if one and one["aRng"] == [0, 1e10]]
        hits, ignored = (
            np.concatenate([one[key][0] for one in held]) > 0 for key in ("dtMatches", "dtIgnore")
        )
        right = (hits & ~ignored).sum()
        golds = sum((np.array(one["gtIgnore"]) == 0).sum() for one in held)
        f1 = 2 * right / ((~ignored).sum() + golds)
        assert precision_recall_f1(*sides, box_format="xywh")["f1_50"] == pytest.approx(f1)


@pytest.mark.slow
def test_equal_scores_rank_against_the_model_in_any_order(tmp_path):
    box, miss = [0, 0, 9, 9], [50, 50, 60, 60]
    for said in ([box, miss], [miss, box]):
        assert average_precision([f"<answer>{said}</answer>"], [str(box)])["AP50"] == 0.5
        rows = [{"id": "0", "task": "detection", "completion": answer(said), "solution": str(box)}]
        shown = eval_json(write_lines(tmp_path / "p.jsonl", rows))
        assert any(note.startswith("2 of 2 confidences") for note in shown["notes"])
        assert shown["metrics"]["f1_50"]["value"] == pytest.approx(2 / 3)
    drawn = drawn_set(5)  # scores are tenths
    rng, mean = random.Random(0), coco_scores(*drawn).mean
    for _ in range(3):
        rng.shuffle(drawn[1])
        assert coco_scores(*drawn).mean == mean
        expected = pycocotools_evaluator(*drawn).stats
        assert mean["AP"] < expected[0] and mean["AP50"] < expected[1]


def test_boxes_are_given_as_texts_arrays_or_mappings():
    gold, half = [10, 10, 20, 30], [10, 10, 20, 20]
    forms = {"xyxy": (gold, half), "xywh": ([10, 10, 10, 20], [10, 10, 10, 10])}
    forms["cxcywh"] = ([15, 20, 10, 20], [15, 15, 10, 10])
    for form, (right, said) in forms.items():
        sides = [{"boxes": np.array([box]), "labels": ["Dog"]} for box in (said, right)]
        scores = average_precision([sides[0]], [sides[1]], box_format=form)
        assert scores["AP50"] == 1.0 and scores["AP75"] == 0.0 and scores["AP_small"] is not None
    text = f"<answer>[{{'bbox': {gold}, 'label': 'dog'}}]</answer>"
    assert average_precision([text], [sides[1]], box_format="cxcywh")["AP"] == 1.0
    assert precision_recall_f1([text, "no tags"], [f"{gold}", f"{gold}"])["recall_50"] == 0.5
    for bad, message in (
        (([text], []), "1 predictions, but 0 solutions"),
        ((["", None], ["[]", "[]"]), "row 1: None"),
        ((["", ""], ["[]", "dog"]), "solutions, row 1: 'dog'"),
        (([{"boxes": [[1, 2, 3]]}], ["[]"]), "predictions, row 0: box 0"),
        (([{"boxes": [gold], "labels": []}], ["[]"]), "predictions, row 0: lists of one"),
        (([{"boxes": [gold], "scores": [1, 1]}], ["[]"]), "predictions, row 0: lists of one"),
    ):
        with pytest.raises(ValueError, match=message):
            average_precision(*bad)
    with pytest.raises(ValueError, match="xyxy, xywh, cxcywh"):
        average_precision([], [], box_format="yolo")


def test_a_tasks_metrics_are_those_of_the_command(tmp_path):
    said = ["[0, 0, 9, 9]", "[0, 0, 9, 4]", "nothing"], ["[0, 0, 9, 9]"] * 3
    rows = [
        {"id": str(n), "image_id": str(n), "completion": answer(text), "solution": gold}
        for n, (text, gold) in enumerate(zip(*said, strict=True))
    ]
    file = write_lines(tmp_path / "p.jsonl", rows)
    for task in ("grounding", "detection"):
        shown = eval_json(file, "--task", task)["metrics"]
        ours = task_metrics(task, [answer(text) for text in said[0]], said[1])
        assert ours == {name: measure["value"] for name, measure in shown.items()}
    assert ours["AP"] == average_precision([answer(text) for text in said[0]], said[1])["AP"]
    numbers = task_metrics("number", [answer("9")] * 2, ["10", "10"], tolerance=[0.1, None])
    assert numbers["accuracy"] == 0.5
    with pytest.raises(ValueError, match="solutions, row 1: 'many'"):
        task_metrics("counting", [answer("4")] * 2, ["4", "many"])


def test_an_image_drawn_twice_counts_as_two_images():
    gold, predicted, images, categories = drawn_set(3, images=8)
    counts = [2, 0, 1, 3, 0, 1, 1, 0]
    scores = coco_scores(gold, predicted, images, categories, by_order(images))
    resampled = scores.resampled(np.array([counts], float))
    copies = [i * 10 + turn for i, n in zip(images, counts, strict=True) for turn in range(n)]
    copied = [
        [box | {"image_id": one} for one in copies for box in side if box["image_id"] == one // 10]
        for side in (gold, predicted)
    ]
    expected = coco_scores(*copied, copies, categories).mean
    for name in ("AP", "AP50", "f1_50"):
        assert resampled[name][0] == pytest.approx(expected[name], abs=1e-9)


def test_nothing_found_is_zero_and_nothing_to_find_is_none():
    gold, _, images, categories = drawn_set(0, images=8, crowds=False)
    assert coco_scores(gold, [], images, categories).mean["AP"] == 0.0
    nothing = coco_scores([], [], [1], ["dog"])
    assert nothing.mean["AP"] is None and nothing.by_category["dog"]["AP50"] is None
    # Names serve as ids.
    box = {"image_id": "a.jpg", "category_id": "dog", "bbox": [1.0, 1.0, 50.0, 50.0]}
    scores = coco_scores([box], [box | {"score": 0.3}], ["a.jpg", "b.jpg"], ["cat", "dog"])
    assert scores.mean["AP"] == pytest.approx(1.0) and scores.by_category["cat"]["AP"] is None
