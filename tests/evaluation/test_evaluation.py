"""`vlrft eval` and `vlrft compare` on existing predictions: forms, metrics, protocols, refusals."""

import json
import math
import random
from fractions import Fraction

import pytest
from scored import (
    AP_NAMES,
    REFUSED_PREDICTIONS,
    answer,
    classification_rows,
    detection_set,
    eval_json,
    pycocotools_evaluator,
    refusal,
    run_json,
    write_lines,
)
from support.command_line import vlrft

from swift_vlrft.evaluation import read_predictions, summarise
from swift_vlrft.evaluation.annotations import Gold, open_annotations
from swift_vlrft.evaluation.detections import boxes_of_rows
from swift_vlrft.evaluation.predictions import Problems


@pytest.fixture
def file(tmp_path):
    return tmp_path / "p.jsonl"


@pytest.fixture
def gold(tmp_path):
    """The annotations of ``detection_set``."""
    (tmp_path / "gold.json").write_text(json.dumps(detection_set()[1]))
    return tmp_path / "gold.json"


# ---- metrics ---------------------------------------------------------------------------------


def test_the_interval_of_an_accuracy_is_the_binomials_and_wider_for_shared_pictures(file):
    rows = classification_rows([("rose", "rose")] * 60 + [("tulip", "rose")] * 40)
    summary = summarise(read_predictions(write_lines(file, rows)))
    assert summary.by_class["rose"]["accuracy"] == 0.6
    assert summary.notes == []
    apart = summary.metrics["accuracy"]
    spread = 1.96 * (0.6 * 0.4 / 100) ** 0.5
    assert (apart.low, apart.high) == pytest.approx((0.6 - spread, 0.6 + spread), abs=0.02)
    for n, row in enumerate(rows):
        row["image_id"] = f"{n // 10}.png"  # ten pictures of ten rows, all right or all wrong
    together = summarise(read_predictions(write_lines(file, rows))).metrics["accuracy"]
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_a_count_of_any_number_of_digits_leaves_the_summary_json(file):
    row = {"task": "counting", "completion": answer("9" * 5000), "solution": "3"}
    write_lines(file, [row, row | {"completion": answer("3")}])
    shown, infinite = vlrft("eval", "--predictions", file, "--json").stdout, []
    json.loads(shown, parse_constant=infinite.append)
    assert not infinite


def test_rows_annotations_and_lists_of_boxes_give_the_numbers_of_pycocotools(file, gold):
    rows, coco, results = detection_set()
    boxes = gold.parent / "visual_rft.json"
    boxes.write_text(json.dumps(results))
    expected = pycocotools_evaluator(coco["annotations"], results, range(1, 21), [1, 2, 3]).stats
    of, every = open_annotations(gold), write_lines(file, rows)
    for path, against in ((every, Gold()), (every, Gold(of)), (boxes, Gold(of))):
        metrics = summarise(read_predictions(path), against, bootstrap=100).metrics
        values = [metrics[name].value for name in AP_NAMES]
        known = [-1 if value is None else value for value in values]
        assert known == pytest.approx(list(expected[:6]), abs=1e-6)
        assert metrics["AP"].low < expected[0] < metrics["AP"].high


def test_boxes_become_pixels_with_one_rounding(file):
    """An IoU that is exactly at a threshold must not be moved by how a box is scaled."""
    rows = detection_set()[0]
    boxes = boxes_of_rows(read_predictions(write_lines(file, rows)).rows, Problems())
    assert [entry["bbox"][:2] for entry in boxes.gold] == [
        [float(Fraction(v * side, 1000)) for v, side in zip(box["Position"], size, strict=False)]
        for row in rows
        for size in [(row["width"], row["height"])]
        for box in (json.loads(row["solution"].replace("'", '"')) if "[" in row["solution"] else [])
    ]


def test_an_image_whose_gold_cannot_be_read_leaves_the_others_their_intervals(file):
    rows = detection_set()[0]
    whole = summarise(read_predictions(write_lines(file, rows)), bootstrap=100)
    bad = rows[0] | {"id": "z", "image_id": "z", "solution": "no box at all"}
    summary = summarise(read_predictions(write_lines(file, [*rows, bad])), bootstrap=100)
    assert summary.metrics["AP"].value == whole.metrics["AP"].value
    assert summary.metrics["AP"].low is not None
    assert summary.problems == {"gold solutions that cannot be read, not scored": 1}


def test_images_that_no_row_asks_about_are_not_scored(file, gold):
    rows = detection_set()[0]
    left = rows[0]["image_id"]
    write_lines(file, [row for row in rows if row["image_id"] != left])
    summary = eval_json(file, "--gold", gold)
    kind = "images of the annotations that no row asks about, not scored"
    assert summary["problems"] == {kind: 1} and summary["named"][kind] == [left]


# ---- forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("bare", "said"), [(40, "40 of 40"), (30, "30 of 40"), (20, None)])
def test_answers_without_tags_are_counted_where_most_have_none(bare, said, file):
    box, shared = "[[102, 104, 395, 590]]", {"task": "detection", "image_id": "1"}
    texts = [box] * bare + [answer(box)] * (40 - bare)
    write_lines(file, [shared | {"completion": text, "solution": box} for text in texts])
    found = [note for note in eval_json(file)["notes"] if "have no answer block" in note]
    assert [note[: len(said)] for note in found] == [said] if said else not found


# ---- bad input -------------------------------------------------------------------------------


def test_duplicates_and_unknown_names_are_counted_and_named(file, gold):
    rows = detection_set()[0]
    bad = [rows[0], rows[1] | {"id": "x", "image_id": "777"}]
    bad.append(rows[2] | {"id": "y", "category": "unicorn"})
    expected = eval_json(write_lines(file, rows), "--gold", gold)
    summary = eval_json(write_lines(file, [*rows, *bad]), "--gold", gold)
    assert summary["rows"] == len(rows) and summary["metrics"] == expected["metrics"]
    assert eval_json(file, "--gold", gold, "--categories", "cat")["rows"] == len(rows) / 3
    assert summary["problems"] == {
        "duplicates, of which the first counts": 1,
        "rows of unknown images, left out": 1,
        "rows of unknown categories, left out": 1,
    }
    assert summary["named"]["rows of unknown images, left out"] == ["777"]
    assert summary["named"]["rows of unknown categories, left out"] == ["unicorn"]
    right = {"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "score": 0.5}
    wrong = {"image_id": 777}, {"category_id": 99}, {"bbox": [1, 1, -5, 5]}, {"score": math.nan}
    file.write_text(json.dumps([*(right | one for one in wrong), right, right, right]))
    assert eval_json(file, "--gold", gold)["problems"] == {
        "invalid boxes or scores, left out": 2,
        "boxes of unknown images, left out": 1,
        "boxes of unknown categories, left out": 1,
    }


@pytest.mark.parametrize("case", REFUSED_PREDICTIONS, ids=lambda case: case["why"])
def test_bad_predictions_are_refused_with_a_reason(file, gold, monkeypatch, case):
    monkeypatch.chdir(gold.parent)
    content = case["content"]
    file.write_text((content if isinstance(content, str) else json.dumps(content)) + "\n")
    assert case["said"] in refusal("eval", "--predictions", "p.jsonl", *case["arguments"].split())


def test_of_several_tasks_the_rows_of_the_chosen_one_are_read(file):
    rows = classification_rows([("red", "red")])
    rows.append({"id": "c", "task": "counting", "completion": answer("4"), "solution": "4"})
    predictions = read_predictions(write_lines(file, rows), "counting")
    assert [row.id for row in predictions.rows] == ["c"]
    assert predictions.problems.counts == {"rows of another task, left out": 1}


def test_results_of_other_predictions_are_not_written_over(tmp_path):
    out, files = tmp_path / "out", {}
    for name, texts in {"good": ["red"] * 3, "bad": ["red", "x", "y"]}.items():
        rows = classification_rows([(text, "red") for text in texts])
        files[name] = write_lines(tmp_path / f"{name}.jsonl", rows)
    for _ in range(2):
        assert eval_json(files["good"], "--out", out)["rows"] == 3
    kept = (out / "summary.json").read_bytes()
    text = refusal("eval", "--predictions", files["bad"], "--out", out)
    assert "good.jsonl, not of" in text and "Give another --out, or remove this" in text
    assert (out / "summary.json").read_bytes() == kept


# ---- comparison ------------------------------------------------------------------------------


@pytest.fixture
def sides(tmp_path):
    """Files of two models' answers."""
    return lambda a, b: (write_lines(tmp_path / "a.jsonl", a), write_lines(tmp_path / "b.jsonl", b))


def test_compare_is_paired_and_names_what_flipped(sides):
    rng = random.Random(0)
    golds = [rng.choice(["red", "blue"]) for _ in range(200)]
    before = [(g if rng.random() < 0.5 else "green", g) for g in golds]
    # B is A, but for 20 more rows that are right.
    wrong = [n for n, (said, gold) in enumerate(before) if said != gold][:20]
    after = [(g if n in wrong else said, g) for n, (said, g) in enumerate(before)]
    files = sides(classification_rows(before), classification_rows(after)[::-1])
    result = run_json("compare", *files)
    accuracy = result["metrics"]["accuracy"]
    assert accuracy["difference"] == pytest.approx(0.1)
    # Unpaired, the interval would be more than twice as wide: sqrt(2 * 0.25 / 200) * 1.96 = 0.098.
    spread = 1.96 * (0.1 * 0.9 / 200) ** 0.5
    interval = accuracy["low"], accuracy["high"]
    assert interval == pytest.approx((0.1 - spread, 0.1 + spread), abs=0.012)
    assert {flip["id"] for flip in result["gained"]} == {str(n) for n in wrong}
    assert result["lost"] == [] and "green" in result["gained"][0]["why_a"]


@pytest.mark.slow
def test_compare_of_average_precision(sides):
    rows = detection_set(images=8)[0]
    a, b = sides(rows, [row | {"completion": answer(row["solution"])} for row in rows])
    draws = ("--bootstrap", "50")
    same = run_json("compare", a, a, *draws)["metrics"]
    assert all(one["difference"] in (0.0, None) for one in same.values())
    better = run_json("compare", a, b, *draws)["metrics"]["AP50"]
    assert better["b"] == pytest.approx(1.0) and 0 < better["low"] <= better["difference"]
    # Of a size that one side has no boxes of, the other's value stays; of no known size, none.
    small = [row | {"width": row["width"] // 9, "height": row["height"] // 9} for row in rows]
    large = run_json("compare", *sides(rows, small), *draws)["metrics"]["AP_large"]
    assert large["a"] > 0 and large["b"] is None and large["difference"] is None
    unknown = [{key: row[key] for key in row.keys() - {"width", "height"}} for row in rows]
    metrics = run_json("compare", *sides(rows, unknown), *draws)["metrics"]
    assert metrics["AP"]["a"] is not None and metrics["AP_large"]["b"] is None


def test_compare_refuses_other_data(sides):
    a, b = sides(classification_rows([("red", "red")]), classification_rows([("red", "blue")]))
    assert "1 of 1 shared rows" in refusal("compare", a, b)
