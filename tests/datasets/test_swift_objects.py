"""ms-swift's grounding rows as its own template fills them in, beside ours."""

import json
import random

import pytest
from PIL import Image
from support.stored_sets import command, picture, train_on

from swift_vlrft.datasets.opening import find_set, is_ours
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.parsing.answers import read_boxes

ROWS = 200
ANSWERS = [
    '[{"bbox_2d": <bbox>, "label": "<ref-object>"}, {"bbox_2d": <bbox>, "label": "b"}]',
    "<ref-object><bbox>\n<ref-object><bbox>",
    "<bbox>",
    "```json\n[<bbox>]\n```",
]


def drawn(n, folder):
    """A row with boxes in pixels, whole or not, or in shares."""
    rng, kind = random.Random(n), ["real", "norm1"][n % 2]
    size, answer, boxes = (rng.randint(60, 250), rng.randint(60, 250)), rng.choice(ANSWERS), []
    (folder / f"{n}.png").write_bytes(picture(size=size))
    for _ in range(answer.count("<bbox>")):
        (x1, x2), (y1, y2) = (sorted(rng.sample(range(side), 2)) for side in size)
        add, to = rng.choice([0, 0.3]), size if kind == "norm1" else (1, 1)
        boxes.append(
            [
                v / side + add * (kind == "real")
                for v, side in zip((x1, y1, x2, y2), to * 2, strict=True)
            ]
        )
    question = rng.choice(["<image>Find the <ref-object>.", "Where is <ref-object>?"])
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    objects = {"ref": rng.choices(["dog", "wet one", "狗"], k=3), "bbox": boxes, "bbox_type": kind}
    return {"messages": turns, "images": [str(folder / f"{n}.png")], "objects": objects}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "box_format"), [("qwen2_5_vl", "pixels"), ("qwen3_vl", "norm1000")]
)
def test_rows_say_what_ms_swifts_template_says(family, box_format, tmp_path, monkeypatch):
    from swift.model import get_processor
    from swift.template import get_template

    from swift_vlrft.tiny.checkpoint import write_tiny

    monkeypatch.setenv("QWENVL_BBOX_FORMAT", "new")
    write_tiny(family, tmp_path / "tiny")
    template = get_template(get_processor(str(tmp_path / "tiny")))
    template.set_mode("train")
    rows = [drawn(n, tmp_path) for n in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pixels = {"min_pixels": 4 * 28 * 28, "max_pixels": 1280 * 28 * 28}
    resize = ImageResize(family, **pixels) if box_format == "pixels" else None
    trained, report = train_on(
        tmp_path / "rows.jsonl", tmp_path / "cache", box_format=box_format, resize=resize
    )
    assert report.good == ROWS
    for row, ours in zip(rows, trained, strict=True):
        said = template.tokenizer.decode(template.encode(row)["input_ids"])
        question, answer = said.split("<|im_start|>user\n")[1].split("<|im_end|>\n", 1)
        question = question.rpartition("<|vision_end|>")[2]
        assert ours["messages"][0]["content"].removeprefix("<image>").startswith(question)
        theirs, own = map(read_boxes, (answer.split("assistant\n")[1], ours["solution"]))
        assert own.labels == theirs.labels or "label" not in row["messages"][1]["content"]
        size = Image.open(row["images"][0]).size
        sides = (1, 1) if row["objects"]["bbox_type"] == "norm1" else size
        limits = resize.size(*size) if resize else (1000, 1000)
        for box, one, other in zip(row["objects"]["bbox"], own.boxes, theirs.boxes, strict=True):
            exact = [v / side * to for v, side, to in zip(box, sides * 2, limits * 2, strict=True)]
            for value, mine, its in zip(exact, one, other, strict=True):
                # Of a half, Python's round takes the even neighbour, and we the upper one.
                assert mine == its or (mine == its + 1 and value % 1 == pytest.approx(0.5))


def test_who_reads_them_is_decided_by_the_rewards(tmp_path):
    row = drawn(0, tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    stored = find_set(tmp_path / "rows.json")
    assert is_ours(stored, ["vlrft_detection_iou"]) and not is_ours(stored, ["accuracy"])
    assert not is_ours(stored, [])  # supervised training
    code, said = command("data", "check", tmp_path)
    assert code == 0 and "vlrft_detection_iou" in said
    (tmp_path / "rows.json").write_text(json.dumps([row | {"solution": "4"}]))
    assert not is_ours(find_set(tmp_path / "rows.json"), ["vlrft_counting"])
