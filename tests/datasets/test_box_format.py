"""Boxes and prompts in another frame: the numbers change, and nothing else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.box_forms import FORMS

from swift_vlrft.datasets.box_format import ImageResize, in_box_format
from swift_vlrft.datasets.box_format_sentence import without_box_format
from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.geometry.box_format import convert_box

SEEN = {"size": (640, 480), "to_size": (644, 476)}


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        (
            "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>",
            "<answer>[{'Position': [164, 144, 187, 174], 'Confidence': 1}]</answer>",
        ),
        (
            '[{"bbox_2d": ["100", "200", "300", "400"], "label": "1, 2, 3, 4"}]',
            '[{"bbox_2d": ["64", "95", "193", "190"], "label": "1, 2, 3, 4"}]',
        ),
        ("<answer>(100,200),(300,400)</answer>", "<answer>(64,95),(193,190)</answer>"),
        ("[[100, 200], [300, 400]]", "[[64, 95], [193, 190]]"),
        ("[100.0, 200, 300, 400]", "[64, 95, 193, 190]"),
        ("<answer>No Objects</answer>", "<answer>No Objects</answer>"),
    ],
)
def test_norm1000_becomes_pixels_of_the_resized_image(gold, expected):
    assert in_box_format("p", gold, "norm1000", "pixels", **SEEN)[1] == expected


def test_the_prompt_says_the_frame_where_it_said_one():
    problem, _ = in_box_format(PROMPT.format(category="dog"), "[]", "norm1000", "pixels", **SEEN)
    assert "boxes (in pixels, x from 0 to 644 and y from 0 to 476, integer) and conf" in problem
    assert "0 and 1000" not in problem and "confidence (between 0 and 1, with two" in problem
    back, _ = in_box_format(problem, "[]", "pixels", "norm1000", **SEEN)
    assert back == PROMPT.format(category="dog")


@pytest.mark.parametrize(
    "said", ["normalized to 0-1000", "in the range [0, 1000]", "from 0 to 1000", "within 0–1000"]
)
def test_other_ways_to_say_norm1000_are_known(said):
    problem, _ = in_box_format(f"Give the box, {said}.", "[]", "norm1000", "pixels", **SEEN)
    assert problem == "Give the box, in pixels, x from 0 to 644 and y from 0 to 476."


def test_a_prompt_that_says_nothing_gets_a_sentence():
    problem, _ = in_box_format("Where is it?", "[1, 2, 30, 40]", "pixels", "norm1000", **SEEN)
    assert problem == "Where is it?\nCoordinates are whole numbers between 0 and 1000."
    problem, gold = in_box_format("Where?", "[64, 48, 320, 240]", "pixels", "pixels", **SEEN)
    assert problem.endswith("in pixels, x from 0 to 644 and y from 0 to 476.")
    assert gold == "[64, 48, 322, 238]"


HERE = "in pixels, x from 0 to 644 and y from 0 to 476"
SENTENCE = f"\nCoordinates are whole numbers {HERE}."
HERE_CHINESE = "以像素为单位，x 从 0 到 644，y 从 0 到 476"


def pixels(problem):
    return in_box_format(problem, "[]", "norm1000", "pixels", **SEEN)[0]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("Boxes are given between 0.0 and 1000.0.", f"Boxes are given {HERE}."),
        ("Use integers in range(0, 1000).", f"Use integers {HERE}."),
        ("They are scaled to 0-1000,", f"They are {HERE},"),
        ("[x1, y1, x2, y2] (0 ~ 1000)", f"[x1, y1, x2, y2] {HERE}"),
        ("coordinates 0..1000\nThink first.", f"coordinates {HERE}\nThink first."),
        ("integers in [0, 999]", f"integers {HERE}"),
        ("between 0 and 1,000 please", f"{HERE} please"),
        ("rescaled to the range [0,1000)", HERE),
        ("Coordinates range from 0 to 1000.", f"Coordinates {HERE}."),
        ("x and y from 0 to 1000", f"x and y {HERE}"),
        ("Give boxes, x ranges from 0 to 1000, y from 0 to 1000.", f"Give boxes, {HERE}."),
        ("X in [0, 1000] and Y in [0, 1000]", f"I{HERE[1:]}"),
        ("x: 0-1000; y: 0-999", HERE),
        ("(0 <= x <= 1000 and 0 ≤ y ≤ 1000)", f"({HERE})"),
        ("坐标x从0到1000，y从0到1000。", f"坐标{HERE_CHINESE}。"),
        ("In a 0–1000 coordinate system, give", f"I{HERE[1:]}, give"),
        ("Give normalized coordinates (0-1000).", f"Give coordinates {HERE}."),
        ("数值范围为0到1000，给出框", f"{HERE_CHINESE}，给出框"),
        ("坐标在0至1000之间。", f"坐标{HERE_CHINESE}。"),
        ("坐标归一化到[0,1000)", f"坐标{HERE_CHINESE}"),
        (f"already {HERE}", f"already {HERE}"),
        (f"坐标{HERE_CHINESE}", f"坐标{HERE_CHINESE}"),
    ],
)
def test_thousandths_are_replaced_as_a_whole_phrase(problem, expected):
    assert pixels(problem) == expected
    assert pixels(expected) == expected


@pytest.mark.parametrize(
    "said",
    ["in thousandths of the image's width", "one of {0, 1, ..., 1000}", "0 < x1, y1 <= 1000"]
    + ["in per mille", "0 (left) to 1000 (right)", "relative to 1000", "max 1000", "1000 bins"]
    + ["on a 1000x1000 grid", "zero to one thousand", "0-1k", "in [0, 1000] x [0, 1000]", "1/1000"]
    + ["[0,1000]^2", "0→1000", "normalized by 1000", "(1000, 1000) is right of (0, 0)", "‰"]
    + ["normalized", "a 0-1000 normalized box", "between '0' and '1000'", "(0.5 * 1000, 1000)"]
    + ["坐标以千分之几表示", "坐标最大1000", "归一化坐标", "x_max = 1000", "less than 1000"]
    + ["x∈[0,1000]", "x ∈ [0..1000]", "y = [0, 1000]", "0 - 1e3", "resized to 1000x1000"],
)
def test_thousandths_that_are_not_understood_are_refused(said):
    with pytest.raises(ValueError, match=r"the prompt says .+, and its boxes are to be in pixels"):
        pixels(f"Give the box. Numbers: {said}.")


def test_what_is_refused_is_named_with_the_words_before_it():
    with pytest.raises(ValueError, match=r"the prompt says 'It costs 1000', and its boxes"):
        pixels("What is on the table? It costs 1000.")
    with pytest.raises(ValueError, match="the prompt says 'x{40}1000'"):
        pixels("x" * 9000 + "1000")


STORED = {"size": (640, 480), "to_size": (640, 480)}
IN_THOUSANDTHS = "\nCoordinates are whole numbers between 0 and 1000."


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("Output boxes in absolute pixel coordinates.", "in coordinates between 0 and 1000."),
        ("Give the box (in pixels).", "Give the box (between 0 and 1000)."),
        ("In pixels, give the box", "Between 0 and 1000, give the box"),
        ("Use pixel values.", "Use values between 0 and 1000."),
        ("JSON with bbox_2d, as absolute coordinates", "as coordinates between 0 and 1000"),
        ("in pixels of the resized image", "between 0 and 1000"),
        ("请输出像素坐标。", "请输出0 到 1000 之间的坐标。"),
        ("用绝对像素坐标表示", "用0 到 1000 之间的坐标表示"),
        ("坐标以像素为单位。", "坐标在 0 到 1000 之间。"),
        ("坐标单位为像素", "坐标在 0 到 1000 之间"),
        ("Find the Pixel phone.", f"Find the Pixel phone.{IN_THOUSANDTHS}"),
        ("Find the pixelated face in pixel art", f"pixel art{IN_THOUSANDTHS}"),
        ("The image has 640x480 pixels. Find it.", f"640x480 pixels. Find it.{IN_THOUSANDTHS}"),
        ("the original, absolute best dog", f"best dog{IN_THOUSANDTHS}"),
        ("confidence from 0 to 100", f"confidence from 0 to 100{IN_THOUSANDTHS}"),
        ("with absolute values", f"with absolute values{IN_THOUSANDTHS}"),
    ],
)
def test_pixels_in_any_words_become_thousandths(problem, expected):
    made = in_box_format(problem, "[]", "pixels", "norm1000", **STORED)[0]
    assert made.endswith(expected) and made.count("1000") == 1
    assert without_box_format(made) == without_box_format(
        problem
    )  # the question of both is the same
    assert in_box_format(problem, "[]", "norm1000", "norm1000", **STORED)[0] == problem


@pytest.mark.parametrize(
    "said",
    ["The unit is pixels", "values are px", "pixel-level box", "pixel space", "in image-pixels"]
    + ["x from 0 to 640 and y from 0 to 480", "x in [0, 640]", "坐标（像素）", "给出原图坐标"]
    + ["relative to the original image size", "absolute position", "0-480"],
)
def test_pixels_that_are_not_understood_are_refused(said):
    with pytest.raises(
        ValueError, match=r"the prompt says .+ to be in norm1000 \(0 to 1000\); say"
    ):
        in_box_format(f"Find it. {said}.", "[]", "pixels", "norm1000", **STORED)


@pytest.mark.parametrize("frame", ["norm1000", "pixels"])
@pytest.mark.parametrize(
    "said",
    ["The image is 640x480", "Size: 640 × 480 pixels", "x from 0 to 640", "原图的尺寸"]
    + ["coordinates of the original picture"],
)
def test_a_size_that_the_model_does_not_see_is_refused(said, frame):
    with pytest.raises(ValueError, match="to be in pixels of the image at 644 x 476; leave it out"):
        in_box_format(f"{said}. Find it.", "[]", frame, "pixels", **SEEN)
    made, _ = in_box_format(f"{said}. Find it.", "[]", frame, "pixels", **STORED)
    assert made.endswith("in pixels, x from 0 to 640 and y from 0 to 480.")


@pytest.mark.parametrize("kept_in", ["norm1000", "pixels"])
@pytest.mark.parametrize("wanted", ["norm1000", "pixels"])
def test_check_and_training_refuse_the_same_prompts(tmp_path, kept_in, wanted):
    from support.stored_sets import picture
    from typer.testing import CliRunner

    from swift_vlrft.cli import app
    from swift_vlrft.datasets.opening import open_set
    from swift_vlrft.datasets.training import LoadOptions, training_set

    (tmp_path / "1.png").write_bytes(picture())
    said = ["permille", "from 0 to 1000", "in pixels", "in px", "a 40x20 picture"]
    rows = [
        {"image": "1.png", "problem": f"A box, {s}.", "solution": "[1, 2, 30, 18]",
         "task": "grounding", "frame": kept_in}
        for s in said
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    refused = {"pixels": [0, 4], "norm1000": [3] if kept_in == "pixels" else []}
    dataset, report = training_set(
        open_set(tmp_path / "a.jsonl", keep_going=True),
        LoadOptions(
            cache=tmp_path / "cache",
            box_format=wanted,
            resize=ImageResize("qwen2_5_vl", 3136, 1_003_520),
        ),
    )
    assert [one.place.row for one in report.problems] == refused[wanted]
    assert len(dataset) == 5 - len(refused[wanted])
    asked = f"{tmp_path}/a.jsonl" + (f":{wanted}" if wanted != "norm1000" else "")
    result = CliRunner().invoke(app, ["data", "check", asked, "--json"])
    found = json.loads(result.stdout)
    assert found["good"] == len(dataset) and result.exit_code == bool(refused[wanted])
    problems = [problem["problem"] for problem in found["problems"]]
    assert all(problem.startswith("the prompt says '") for problem in problems)
    notes = [note for note in found["notes"] if ":pixels, which leaves them out" in note]
    if wanted == "norm1000":
        (note,) = notes
        assert "2 rows train as they stand" in note and "box, permille', and its boxes" in note
    else:
        assert not notes


@pytest.mark.parametrize(
    "problem",
    ["confidence (between 0 and 1, with two decimals)", "0.1000", "1000.5", "0 to 100", "10000"]
    + ["the 100 ships", "bus 1001", "perm", "the man below the 500 yen note"]
    + ["How many of the 1000 ships?", "Where is bus 1000?", "Find the 1000 m track."]
    + ["the man below the 1,000 yen note", "between 500 and 1000 people", "from 0 to 1000 m"]
    + ["a 1000-piece puzzle", "a $1000 bill", "from $0 to 1000", "图中有1000个人", "价格0到1000元"],
)
def test_other_numbers_are_left_alone(problem):
    assert pixels(problem) == problem + SENTENCE


@pytest.mark.parametrize(
    "problem",
    [
        "Find 1000.",
        "the coordinates of the 1000 ships",
        "图分成1000个格",
        "1000 bins",
        "$1000 of 1000",
    ]
    + ["0 <= x <= 1000", "x from 0 to 1000, y from 0 to 800", "0 <= x <= 1000 and 0 <= y <= 480"]
    + ["w, x from 0 to 1000, y from 0 to 1000", "x from 0 to 1000, y from 0 to 1000 m"]
    + ["bus 1000 with coordinates up to 1000"],
)
def test_a_thousand_that_may_be_of_coordinates_is_refused_rather_than_guessed_at(problem):
    with pytest.raises(
        ValueError, match=r"the prompt says .*1,?000.*say it as 'between 0 and 1000'"
    ):
        pixels(problem)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    lead=st.sampled_from(
        ["", "between ", "from ", "in the range ", "normalized to ", "scaled to "]
    ),
    zero=st.sampled_from(["0", "0.0", "0.00"]),
    joint=st.sampled_from(
        ["-", " - ", "–", " to ", " and ", "~", " ~ ", "..", "...", "到", "至", " 至 "]
    ),
    top=st.sampled_from(["1000", "1000.0", "1,000", "999", "1 000", "1000.00"]),
    bracket=st.sampled_from(["", "()", "[]", "[)"]),
    before=st.sampled_from(["", "Coordinates are ", "框的坐标", "Give the box, "]),
    after=st.sampled_from(["", ".", ", integer.", "，整数。", "\nThink first.", ") and so on"]),
)
def test_no_phrase_is_garbled(lead, zero, joint, top, bracket, before, after):
    phrase = bracket[:1] + zero + joint + top + bracket[1:]
    made = pixels(before + lead + phrase + after)
    assert made.startswith(before) and made.endswith(after)
    kept = made[len(before) : len(made) - len(after)]
    assert kept in (HERE, HERE_CHINESE)


@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(derandomize=True, max_examples=25, deadline=None)
@given(data=st.data())
def test_only_the_numbers_of_boxes_change(form, data):
    boxes = data.draw(st.lists(box, min_size=1, max_size=3 if form.several else 1))
    names = st.sampled_from(["[1,2,3,4]", "dog 7", "(10, 20)", "<box>1 2 3 4</box>", "9"])
    name = data.draw(names) if form.labelled else None
    around = "<think>[1, 2, 3, 4] {}</think>\n<answer> {} </answer>"

    def gold(corners):
        written = form.write(corners, name)
        return around.format(form.write(boxes, name), written) if wrapped else written

    wrapped = data.draw(st.booleans())
    seen = [
        convert_box(b, "norm1000", "pixels", size=(640, 480), to_size=(644, 476)) for b in boxes
    ]
    assert in_box_format("p", gold(boxes), "norm1000", "pixels", **SEEN)[1] == gold(seen)


def test_what_cannot_be_rewritten_is_refused():
    with pytest.raises(ValueError, match="cannot be rewritten"):
        in_box_format("p", "[[1, 2, 3]]", "norm1000", "pixels", **SEEN)


coordinate = st.integers(0, 1000)
box = st.tuples(coordinate, coordinate, coordinate, coordinate).filter(
    lambda b: b[0] < b[2] and b[1] < b[3]
)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(box, max_size=5), st.tuples(st.integers(30, 3000), st.integers(30, 3000)))
def test_there_and_back_is_within_one_pixel(boxes, size):
    view = ImageResize("qwen2_5_vl", 3136, 1_003_520)
    if max(size) > 100 * min(size):
        return
    seen = view.size(*size)
    gold = str(
        [{"Position": list(b), "Confidence": 1, "label": "[1, 2, 3, 4]x"[9:]} for b in boxes]
    )
    sizes = {"size": size, "to_size": seen}
    problem, there = in_box_format("0-1000", gold, "norm1000", "pixels", **sizes)
    _, back = in_box_format(problem, there, "pixels", "norm1000", size=seen, to_size=seen)
    import ast

    for before, after in zip(boxes, ast.literal_eval(back), strict=True):
        for axis in (0, 1):
            for i in (axis, axis + 2):
                off = abs(before[i] - after["Position"][i]) * seen[axis] / 1000
                assert off <= 1.0
