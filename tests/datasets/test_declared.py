"""Sets whose boxes cannot be in the format that they declare: the same refusal at all four places
that ask; and what is no reason to refuse.
"""

import json
import random

import pytest
from support.stored_sets import command, picture, train_on

from swift_vlrft.datasets import DataError
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder

SIZE = (640, 480)


def stored(folder, boxes, frame=None):
    """A set of pictures of 640 x 480 with these boxes."""
    folder.mkdir(exist_ok=True)
    (folder / "1.png").write_bytes(picture(size=SIZE))
    row = {"image": "1.png", "problem": "Where is the dog?"} | ({"frame": frame} if frame else {})
    rows = [row | {"solution": str(list(box))} for box in boxes]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def drawn(count, largest):
    rng = random.Random(count)

    def side():
        return sorted(rng.random() * largest for _ in "ab")

    pairs = [(side(), side()) for _ in range(count)]
    return [(x[0], y[0], x[1] + 0.001, y[1] + 0.001) for x, y in pairs]


@pytest.mark.parametrize(
    ("frame", "boxes", "word"),
    [
        ("pixels", drawn(3, 0.99), "3 fit as corners x1, y1, x2, y2 in shares of the sides"),
        ("pixels", [*drawn(20, 0.99), (12, 30, 450, 460)], "shares"),
        ("pixels", [(10, 10, 900, 900), (20, 50, 630, 90)] * 6, "x1, y1, x2, y2 in norm1000"),
        ("norm1000", drawn(12, 99), "multiply them by 10"),
        (None, drawn(2, 0.99), "shares"),
        ("yx1000", drawn(2, 0.99), "shares"),
    ],
)
def test_all_four_refuse_the_set(frame, boxes, word, tmp_path):
    path = stored(tmp_path / "set", boxes, frame)
    code, said = command("data", "check", path)
    assert code == 1 and word in " ".join(said.split())
    code, said = command("data", "convert", path, tmp_path / "clean", "--keep-going")
    assert code == 2 and word in said and not (tmp_path / "clean").exists()
    for refused in (
        lambda: convert_folder(path, tmp_path / "out", keep_going=True),
        lambda: train_on(path, tmp_path / "cache"),
        lambda: check_set(path, images=frame == "pixels").finish(),
    ):
        with pytest.raises(DataError, match=word):
            refused()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("frame", "boxes"),
    [
        ("unit", drawn(30, 0.99)),
        ("norm1000", drawn(9, 99)),  # too few to tell
        ("norm1000", [*drawn(30, 99), *[(10, 10, 900, 900)] * 5]),
        ("pixels", drawn(30, 470)),
        (None, drawn(30, 990)),
    ],
)
def test_what_can_be_meant_is_left_alone(frame, boxes, tmp_path):
    report = check_set(stored(tmp_path / "set", boxes, frame))
    assert not report.problems and report.good == len(boxes)
