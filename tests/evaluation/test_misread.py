"""A list of boxes in another unit or order is refused, not worth AP 0."""

import json

import pytest
from PIL import Image
from scored import answer, detection_set, eval_json, refusal, write_lines
from support.command_line import vlrft
from support.written_boxes import written

from swift_vlrft.diagnostics import watch as watching
from swift_vlrft.evaluation.misread import COCO_FORM
from swift_vlrft.geometry.readings import READINGS, Reading
from swift_vlrft.rewards import REWARDS

SIZES = {image["id"]: (image["width"], image["height"]) for image in detection_set()[1]["images"]}


def boxes(change, results):
    return [
        one | {"bbox": [round(v, 4) for v in change(*one["bbox"], *SIZES[one["image_id"]])]}
        for one in results
    ]


def read_as(reading):
    return lambda x, y, w, h, *size: written((x, y, x + w, y + h), reading, size)


@pytest.fixture
def scored(tmp_path):
    def arguments(results, coco):
        (tmp_path / "p.json").write_text(json.dumps(results))
        (tmp_path / "gold.json").write_text(json.dumps(coco))
        return tmp_path / "p.json", "--gold", tmp_path / "gold.json"

    return arguments


@pytest.mark.parametrize("reading", [way for way in READINGS if way != COCO_FORM], ids=str)
def test_boxes_that_are_no_pixels_or_corners_are_refused(scored, reading):
    _, coco, results = detection_set()
    text = refusal("eval", "--predictions", *scored(boxes(read_as(reading), results), coco))
    assert f"as {reading}." in text and "Write bbox as x, y, width, height in pixels" in text
    assert text.count("error:") == 1


def test_thousandths_of_larger_pictures_are_found_where_they_lie_on_the_gold(scored):
    """None of them leaves its picture."""
    _, coco, results = detection_set()
    thousandths = boxes(read_as(Reading("xyxy", "norm1000")), results)
    for image in coco["images"]:
        image |= {"width": image["width"] * 4, "height": image["height"] * 4}
    for gold in coco["annotations"]:
        gold["bbox"] = [v * 4 for v in gold["bbox"]]
        gold["area"] *= 16
    text = refusal("eval", "--predictions", *scored(thousandths, coco))
    assert "corners x1, y1, x2, y2 in norm1000" in text


def test_boxes_far_outside_are_refused_in_any_reading(scored):
    _, coco, results = detection_set()
    far = boxes(lambda x, y, w, h, *_: (x + 5000, y, w, h), results)
    assert "boxes leave their images" in refusal("eval", "--predictions", *scored(far, coco))


def test_boxes_on_gold_boxes_of_another_category_are_said(scored):
    _, coco, results = detection_set(60)
    coco["annotations"] = [box for box in coco["annotations"] if box["category_id"] == 1]
    moved = [entry | {"category_id": 2} for entry in results if entry["category_id"] == 1]
    (named,) = eval_json(*scored(moved, coco))["problems"]
    assert "none lies on a gold box of its category" in named


def test_a_weak_model_and_an_empty_list_are_scored(scored):
    _, coco, results = detection_set()
    weak = boxes(lambda x, y, w, h, W, H: (W - w - x / 3, (H - h) / 2, w, h), results)
    summary = eval_json(*scored(weak, coco))
    assert summary["metrics"]["AP"]["value"] < 0.1
    halves = boxes(lambda x, y, w, h, *_: (x / 3, y / 3, w / 3, h / 3), results)
    (named,) = eval_json(*scored(halves, coco))["problems"]
    assert "none lies on a gold box" in named
    shown = vlrft("eval", "--predictions", *scored(halves, coco), "--bootstrap", "0").stdout
    assert shown.startswith("detection: a list of boxes, 20 images\n")
    summary = eval_json(*scored([], coco))
    assert "the list holds no box: every gold box counts as missed" in summary["notes"]


@pytest.mark.slow
def test_answers_that_are_joined_are_read_in_every_way(tmp_path):
    size, forms = (80, 60), {"pixels": "pixels", "norm1000": "norm1000", "unit": "unit"}
    boxes_in_pixels = [(30 + n, 4 + n, 66 + n, 14 + n) for n in range(12)]
    pictures = [f"{n}.png" for n in range(12)]
    for name in pictures:
        Image.new("RGB", size).save(tmp_path / name)
    for frame, unit in forms.items():
        golds = [written(box, Reading("xyxy", unit), size) for box in boxes_in_pixels]
        shared = {"problem": "Where?", "task": "grounding", "frame": frame}
        rows = [
            shared | {"id": str(n), "image": name, "solution": str(gold)}
            for n, (name, gold) in enumerate(zip(pictures, golds, strict=True))
        ]
        gold = write_lines(tmp_path / "set.jsonl", rows)
        for reading in READINGS:
            texts = [answer(str(written(box, reading, size))) for box in boxes_in_pixels]
            lines = [{"id": str(n), "completion": text} for n, text in enumerate(texts)]
            file = write_lines(tmp_path / "p.jsonl", lines)
            told = eval_json(file, "--gold", gold, "--join", "id", "--task", "grounding")
            assert told["run"]["box_formats"] == [frame] and told["run"]["gold"] == str(gold)
            notes = told["notes"]
            named = [note for note in notes if f"match if read as {reading}" in note]
            assert bool(named) == (reading != Reading("xyxy", unit)), (frame, reading, notes)
    other = "eval", "--predictions", file, "--gold", gold, "--join", "id", "--task", "counting"
    assert "no row of task counting: 12 rows of the task grounding" in refusal(*other)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("'Confidence': 95, 'label': 'a'", "40 of 40 confidences are outside 0 to 1"),
        ("'Confidence': '95%', 'label': 'a'", "40 of 40 confidences are outside 0 to 1"),
        ("'label': 'a'", "40 of 40 boxes state no confidence"),
        ("'Confidence': 0.9, 'class': 'a'", "40 of 40 boxes hold 'class', which is not read"),
        ("'Confidence': 0.9, 'label': 'a', 'class': 'a'", "40 of 40 boxes hold 'class'"),
        ("'Confidence': '0.9', 'label': 'a'", ""),
    ],
)
def test_what_boxes_say_and_nobody_reads_is_said(tmp_path, caplog, monkeypatch, more, said):
    monkeypatch.setattr(watching, "_said", set())
    shared = {"task": "detection", "frame": "norm1000"}
    texts = [f"[{{'Position': [{n}, 200, 300, 400], %s}}]" for n in range(40)]
    answers, golds = (
        [answer(text % more) for text in texts],
        [text % "'label': 'a'" for text in texts],
    )
    rows = [
        shared | {"id": str(n), "completion": text, "solution": golds[n]}
        for n, text in enumerate(answers)
    ]
    file, name = write_lines(tmp_path / "p.jsonl", rows), "vlrft_detection_confidence"
    scored = json.loads(vlrft("score", file, "--reward", name, "--json").stdout)
    watched = watching.watch(name, REWARDS[name])
    for _ in range(3):
        watched(answers, golds)
    log = [text.replace("120 of 120", "40 of 40") for text in caplog.messages]
    for told in (eval_json(file)["notes"], scored["notes"], log):
        told = [text for text in told if "40 of 40" in text and "shared by others" not in text]
        assert sum(said in text for text in told) == bool(said)
