"""Boxes asked in pixels of what the model sees are worth what they are worth in thousandths."""

import json

import pytest
from scored import assert_metrics, eval_json, write_lines

from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.datasets.row import Row
from swift_vlrft.evaluation.detections import boxes_of_rows
from swift_vlrft.evaluation.predictions import Problems, read_predictions
from swift_vlrft.evaluation.queries import Query
from swift_vlrft.evaluation.run import answer_line
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.parsing.answers import read_boxes
from swift_vlrft.report.html import place
from swift_vlrft.report.samples import drawn_boxes

STORED = (1920, 1080)
SEEN = ImageResize("qwen2_5_vl", 56 * 56, 401408).size(*STORED)


def in_pixels(size: tuple[int, int]) -> str:
    return str([[round(n * size[i % 2], 1) for i, n in enumerate((0.26, 0.25, 0.74, 0.5))]])


SAID = {
    "norm1000": ("norm1000", STORED, "[{'Position': [260, 250, 740, 500]}]"),
    "unit": ("unit", STORED, "[{'Position': [0.260, 0.250, 0.740, 0.500]}]"),
    "yx1000": ("yx1000", STORED, '[{"box_2d": [250, 260, 500, 740]}]'),
    "pixels": ("pixels", STORED, in_pixels(STORED)),
    "pixels of the resized image": ("pixels", SEEN, in_pixels(SEEN)),
}


@pytest.mark.parametrize(("frame", "seen", "said"), SAID.values(), ids=SAID)
def test_an_answer_is_worth_the_same_in_every_format(frame, seen, said, tmp_path):
    """Through the files of `vlrft eval`: scores, AP, pixels in COCO's form, the report's boxes."""
    gold = "<answer>[{'Position': [250, 250, 750, 500], 'Confidence': 1}]</answer>"
    columns = {"task": "detection", "frame": "norm1000", "image_id": "1", "category": "dog"}
    row = Row(None, {}, PROMPT.replace("{category}", "dog"), gold, columns)
    asked = Query("0", row).rewritten(frame, STORED, seen)
    completion, file = f"<answer>{said}</answer>", tmp_path / "p.jsonl"
    line = json.loads(answer_line(asked, completion, image_id="1", size=STORED, tokens=9))
    assert line["frame"] == frame
    box = {"image_id": 1, "category_id": 1, "bbox": [480, 270, 960, 270], "area": 960 * 270}
    crowd = {k: v for k, v in box.items() if k != "bbox"} | {"id": 2, "iscrowd": 1}
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": STORED[0], "height": STORED[1]}],
        "categories": [{"id": 1, "name": "dog"}],
        "annotations": [box | {"id": 1, "iscrowd": 0}, crowd],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    for joined in ((), ("--gold", tmp_path / "instances.json")):
        summary = eval_json(write_lines(file, [line]), *joined)
        assert summary["problems"] == {}
        score = summary["metrics"]["vlrft_detection_iou"]["value"]
        assert score == pytest.approx(0.96, abs=0.01)  # 0.48 of 0.5 of the width
        assert_metrics(summary, AP50=1.0)
    (prediction,) = read_predictions(file).rows
    boxes = boxes_of_rows([prediction], Problems())
    near = 4 if seen == SEEN else 0.01  # a pixel seen is 2.3 stored
    assert boxes.sizes_known
    assert boxes.predicted[0]["bbox"] == pytest.approx([499.2, 270, 921.6, 270], abs=near)
    assert boxes.gold[0]["bbox"] == pytest.approx([480, 270, 960, 270], abs=near)
    (drawn,) = drawn_boxes(read_boxes(prediction.solution), prediction.box_range, "gold")
    assert place(drawn).startswith("left:25.")
