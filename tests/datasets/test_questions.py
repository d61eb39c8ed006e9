"""Golds that would teach nothing are named, and what a set holds twice is counted."""

from support.stored_sets import picture
from support.written_sets import check, write_rows

from swift_vlrft.rewards import REWARDS

BOX = {"bbox_2d": [100, 200, 400, 600]}


def folder_of(folder, *rows, name="train"):
    """A set of rows (number of the picture, problem, task, solution)."""
    folder.mkdir(exist_ok=True)
    for number in {number for number, *_ in rows}:
        (folder / f"{name}{number}.png").write_bytes(picture(colour=(number, 9, 9)))
    keys = ("image", "problem", "task", "solution")
    lines = [(f"{name}{number}.png", *row) for number, *row in rows]
    write_rows(folder / f"{name}.jsonl", *(dict(zip(keys, line, strict=True)) for line in lines))
    return folder


def test_a_class_under_another_key_is_not_scored_as_if_it_were_there():
    answer = "<answer>[{'bbox_2d': [100, 200, 400, 600], 'class': 'zebra'}]</answer>"
    golds = [str([BOX | {"class": "dog"}]), str([BOX | {"label": "dog"}]), str([BOX])]
    assert REWARDS["vlrft_detection_iou"]([answer] * 3, golds) == [None, 1.0, 1.0]


def test_what_a_set_holds_twice_is_counted(tmp_path):
    ask = "Which? A. dog B. cat, [x1, y1, x2, y2] <answer>"
    train = [(1, ask, "choice", "A"), (1, ask, "choice", "B"), (2, ask, "choice", "E")]
    train += [
        (2, ask, "choice", "E"),
        (3, "Which one, B or E? <answer>", "choice", "E"),
        (4, ask, "choice", "A"),
    ]
    golds = [str([BOX | {"label": label} for label in labels]) for labels in ("aa", "ab")]
    train += [
        (6 + n, "All [x1, y1, x2, y2] <answer>", "detection", gold) for n, gold in enumerate(golds)
    ]
    folder = folder_of(tmp_path / "set", *train)
    folder_of(folder, (3, ask, "choice", "A"), (5, ask, "choice", "B"), name="test")
    code, report = check(folder)
    found = (
        "1 solutions hold a box twice",
        "1 rows ask what another",
        "1 rows repeat another",
        "2 golds are none of",
        "1 of 6 pict",
    )
    assert code == 0 and len(report["notes"]) == len(found)
    assert all(any(text in note for note in report["notes"]) for text in found)
    assert any("row 0 and" in note and "row 1" in note for note in report["notes"])
