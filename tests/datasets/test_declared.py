"""Sets whose boxes cannot be in the format that they declare: the same refusal at all four places
that ask; and what is no reason to refuse.
"""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stored_sets import command, picture, train_on
from support.written_sets import rows_in

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.declared import DeclaredBoxes
from swift_vlrft.datasets.image import ImageSize
from swift_vlrft.datasets.row import Row, RowLocation

SIZE = (640, 480)
ASK = "Please provide the bounding box coordinate of the region this sentence describes: the dog."


def stored(folder, boxes, frame=None, form="explicit"):
    """A set of pictures of 640 x 480 with these boxes; ``form`` rec: pixels, in LLaVA's form."""
    folder.mkdir(exist_ok=True)
    (folder / "1.png").write_bytes(picture(size=SIZE))
    rows = []
    for box in boxes:
        if form == "rec":
            turns = [{"from": "human", "value": f"<image>\n{ASK}"}]
            turns.append({"from": "gpt", "value": str(list(box))})
            rows.append({"image": "1.png", "conversations": turns})
        else:
            row = {"image": "1.png", "problem": "Where is the dog?", "solution": str(list(box))}
            rows.append(row | ({"frame": frame} if frame else {}))
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def drawn(count, largest):
    rng = random.Random(count)

    def side():
        return sorted(rng.random() * largest for _ in "ab")

    pairs = [(side(), side()) for _ in range(count)]
    return [(x[0], y[0], x[1] + 0.001, y[1] + 0.001) for x, y in pairs]


REFUSED = [
    ("rec", None, drawn(3, 0.99), "shares"),
    ("explicit", "pixels", drawn(3, 0.99), "shares"),
    ("explicit", "norm1000", drawn(2, 0.99), "shares"),
    ("explicit", None, drawn(2, 0.99), "shares"),
    ("explicit", "norm1000", drawn(12, 99), "percent"),
    ("explicit", "norm1000", drawn(12, 99), "multiply them by 10"),
    ("rec", None, drawn(12, 99), "percent"),
    ("rec", None, [*drawn(20, 0.99), (12, 30, 450, 460)], "shares"),
    (
        "explicit",
        "pixels",
        [(10, 10, 900, 900), (20, 50, 630, 90)] * 6,
        "they fit corners x1, y1, x2, y2 in norm1000",
    ),
]


@pytest.mark.parametrize(("form", "frame", "boxes", "word"), REFUSED)
def test_all_four_refuse_the_set(form, frame, boxes, word, tmp_path):
    path = stored(tmp_path / "set", boxes, frame, form)
    code, said = command("data", "check", path)
    assert code == 1 and word in " ".join(said.split())
    code, said = command("data", "check", path, "--fix", tmp_path / "clean")
    assert code == 2 and word in said and not (tmp_path / "clean").exists()
    for refused in (
        lambda: convert_folder(path, tmp_path / "out", keep_going=True),
        lambda: train_on(path, tmp_path / "cache"),
        lambda: check_set(path, images=form == "rec" or frame == "pixels").finish(),
    ):
        with pytest.raises(DataError, match=word):
            refused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("frame", "boxes"),
    [
        ("unit", drawn(30, 0.99)),
        ("norm1000", drawn(9, 99)),  # too few to tell
        ("norm1000", [*drawn(30, 99), *[(10, 10, 900, 900)] * 3]),
        ("pixels", drawn(30, 470)),
        (None, drawn(30, 990)),
    ],
)
def test_what_can_be_meant_is_left_alone(frame, boxes, tmp_path):
    report = check_set(stored(tmp_path / "set", boxes, frame))
    assert not report.problems and report.good == len(boxes)


def test_the_options_that_say_what_boxes_are_can_be_copied(tmp_path):
    path = stored(tmp_path / "set", drawn(12, 0.99))
    with pytest.raises(DataError, match=f"vlrft data convert {path} OUT --unit unit"):
        train_on(path, tmp_path / "cache")
    code, said = command("data", "convert", path, tmp_path / "out", "--unit", "unit")
    assert code == 0, said
    assert {row["frame"] for row in rows_in(tmp_path / "out")} == {"unit"}
    assert not check_set(tmp_path / "out").problems


@settings(max_examples=30)
@given(st.lists(st.tuples(*[st.floats(0.02, 0.98)] * 4), min_size=1, max_size=8))
def test_shares_are_never_thousandths_or_pixels(boxes):
    place = RowLocation(Path("x"), 0)
    made = [(min(a, c), min(b, d), max(a, c) + 0.01, max(b, d) + 0.01) for a, b, c, d in boxes]
    for frame in ("pixels", "norm1000", "yx1000"):
        seen = DeclaredBoxes()
        for box in made:
            row = Row(place, {}, "Where?", str(list(box)), {"task": "grounding", "frame": frame})
            seen.add(row, ImageSize(640, 480, plain=True))
        assert "shares" in (seen.problem(Path("x")) or "")
