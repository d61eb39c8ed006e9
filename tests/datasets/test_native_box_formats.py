"""The box formats unit, yx1000 and native: numbers, keys and the sentence of the prompt agree."""

import ast
import json
import re
from fractions import Fraction

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.box_forms import FORMS
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets.box_format import in_box_format
from swift_vlrft.datasets.box_format_sentence import without_box_format
from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.families import FAMILIES
from swift_vlrft.geometry.box_format import BOX_FORMATS, convert_box
from swift_vlrft.parsing.boxes import read_boxes

SIZE = (640, 480)
DOG = PROMPT.format(category="dog")
GOLD = "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"


def made(problem, solution, after, before="norm1000", key=None, size=SIZE):
    return in_box_format(problem, solution, before, after, size=size, to_size=size, key=key)


def test_a_virft_row_in_every_format():
    problem, solution = made(DOG, GOLD, "unit")
    assert solution == GOLD.replace("254, 303, 291, 365", "0.254, 0.303, 0.291, 0.365")
    assert problem == DOG.replace("0 and 1000, integer", "0 and 1, with three decimals")
    problem, solution = made(DOG, GOLD, "yx1000")
    assert solution == "<answer>[{'box_2d': [303, 254, 365, 291], 'Confidence': 1}]</answer>"
    assert problem == DOG.replace("'Position': [x1, y1, x2, y2]", "'box_2d': [y1, x1, y2, x2]")
    problem, solution = made(DOG, GOLD, "norm1000", key="bbox_2d")
    assert solution == GOLD.replace("Position", "bbox_2d")
    assert problem == DOG.replace("Position", "bbox_2d")


def test_a_category_is_no_key():
    for name in ("box", "x, y", "[1, 2]"):
        problem, _ = made(PROMPT.format(category=name), GOLD, "yx1000")
        assert problem == DOG.replace("'dog'", f"'{name}'").replace(
            "'Position': [x1, y1, x2, y2]", "'box_2d': [y1, x1, y2, x2]"
        )


@pytest.mark.parametrize("first", BOX_FORMATS)
@pytest.mark.parametrize("second", BOX_FORMATS)
def test_prompt_and_solution_come_back_over_any_formats(first, second):
    there = made(DOG, GOLD, first, size=(1000, 1000))
    further = made(*there, second, first, size=(1000, 1000))
    assert made(*further, "norm1000", second, size=(1000, 1000)) == (DOG, GOLD)
    assert without_box_format(further[0]) == without_box_format(DOG)


@pytest.mark.parametrize(
    ("problem", "solution", "asked", "held"),
    [
        ("Where?", "[254, 303, 291, 365]", '{"box_2d": [y1, x1, y2, x2]}', None),
        ("A [x1, y1, x2, y2] please", "(254,303),(291,365)", 'A {"box_2d": [y1, x1, y2', None),
        ("(xmin,ymin),(xmax,ymax)", "254, 303, 291, 365", "[ymin, xmin, ymax, xmax]", None),
        ("[[x1, y1], [x2, y2]]", "[[254, 303], [291, 365]]", '[{"box_2d": [y1, x1, y2,', None),
        ('{"bbox": [x_1, y_1, x_2, y_2]}', '{"bbox": [254, 303, 291, 365], "label": "A Cat"}',
         '{"box_2d": [y_1, x_1, y_2, x_2]}', "A Cat"),
        ("[left, top, right, bottom]", "[254, 303, 291, 365]", "[top, left, bottom, right]", None),
        ("as bbox_2d", "[{'bbox_2d': ['254', '303', '291', '365'], 'label': 'box: 1'}]",
         '{"box_2d": [y1, x1, y2, x2]}', "box: 1"),
        ("Where?", "<ref>Cat</ref><box>254 303 291 365</box>", '{"box_2d": [y1', "cat"),
        ("box_2d [ymin, xmin, ymax, xmax]", '[{"box_2d": [303, 254, 365, 291], "label": "b"}]',
         "box_2d [ymin, xmin, ymax, xmax]", "b"),
    ],
)  # fmt: skip
def test_y_first_boxes_stand_under_their_key_and_are_asked_so(problem, solution, asked, held):
    problem, written = made(problem, solution, "yx1000")
    assert asked in problem
    assert not re.search("bbox|Position|x1, y1|xmin, ymin", problem)
    (one,) = one if isinstance(one := ast.literal_eval(written), list) else [one]
    assert [int(v) for v in one["box_2d"]] == [303, 254, 365, 291]
    assert one.get("label") == held and not {"bbox", "bbox_2d", "Position"} & one.keys()
    again = made(problem, written, "yx1000", "yx1000")
    assert again == (problem, written)


@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(derandomize=True, max_examples=15, deadline=None)
@given(data=st.data())
def test_every_way_to_write_boxes_is_rewritten(form, data):
    side = st.integers(0, 999)
    corners = [(x, y, x + 1 + w, y + 1 + h) for x, y, w, h in data.draw(
        st.lists(st.tuples(side, side, side, side), min_size=1, max_size=3 if form.several else 1)
    )]  # fmt: skip
    boxes = [(x, y, min(a, 1000), min(b, 1000)) for x, y, a, b in corners]
    text = form.write(boxes, "Big dog" if form.labelled else None)
    labels = read_boxes(text).labels
    for name, key in (("unit", None), ("yx1000", None), ("norm1000", "bbox_2d")):
        _, written = made("Where?", f"<answer>{text}</answer>", name, key=key)
        found = read_boxes(written[8:-9])
        assert [tuple(shares(b, "unit" if name == "unit" else "norm1000", SIZE)) for b in
                found.boxes] == [tuple(shares(b, "norm1000", SIZE)) for b in boxes]  # fmt: skip
        assert found.labels == labels
        key = {"yx1000": "box_2d"}.get(name, key)
        assert key is None or len(re.findall(rf"""["']{key}["']:""", written)) == len(boxes)
        back = made("Where?", written, "norm1000", name)[1]
        assert read_boxes(back[8:-9]).boxes == boxes


@pytest.mark.parametrize(
    "said",
    ["Where?", "integers in [0, 1000]", "[x1, y1, x2, y2], 0-1000", "as bbox_2d", "框，0到1000"],
)  # fmt: skip
def test_the_question_is_the_same_in_every_format(said):
    problems = [made(said, "[1, 2, 3, 4]", name)[0] for name in BOX_FORMATS]
    assert len({" ".join(without_box_format(one).split()) for one in problems}) == 1, problems


SHOWN = """As {"bbox_2d": [x1, y1, x2, y2]}, 0 to 1000, such as
```json
[{"bbox_2d": [10, 100, 200, 1000], "label": "a"}, {"bbox_2d": [254, 303, 291, 365]}]
```"""


@pytest.mark.parametrize("name", [name for name in BOX_FORMATS if name != "norm1000"])
def test_boxes_that_a_prompt_shows_are_rewritten(name):
    problem, solution = made(SHOWN, '[{"bbox_2d": [254, 303, 291, 365]}]', name)
    (box,) = read_boxes(solution).boxes
    first, second = read_boxes(problem).boxes
    by_hand = [Fraction(10, 1000), Fraction(1, 10), Fraction(1, 5), 1]
    as_read = "norm1000" if name == "yx1000" else name
    for n, (value, share) in enumerate(zip(shares(first, as_read, SIZE), by_hand, strict=True)):
        assert abs(value - share) <= units(name, SIZE)[n % 2] / 2
    assert second == box and not re.search("1000" if name != "yx1000" else "bbox", problem)
    assert without_box_format(problem) == without_box_format(SHOWN)
    if name != "pixels":
        back = made(problem, solution, "norm1000", name, "bbox_2d")[0]
        assert read_boxes(back).boxes == read_boxes(SHOWN).boxes


def test_shown_boxes_are_rewritten_with_or_without_a_key_or_refused():
    for shown, expected in (
        ("(100,200),(300,400)", "(64,96),(192,192)"),
        ("<box>100 200 300 400</box>", "<box>64 96 192 192</box>"),
        ("from (0, 0) to (1000, 1000)", "from (0, 0) to (640, 480)"),
        ("[4, 3, 2, 1]", "[4, 3, 2, 1]"),  # no box
        ("x in [0, 5] as (100,200),(300,400)", "x in [0, 5] as (64,96),(192,192)"),
        ("points [10, 20]", "points [10, 20]"),
    ):
        problem, _ = made(f"Such as {shown}", "[1, 2, 3, 4]", "pixels")
        assert problem.startswith(f"Such as {expected}\n")
    with pytest.raises(ValueError, match="shows the box 100, 200, 300, 400 x first"):
        made("Such as [100, 200, 300, 400]", "[1, 2, 3, 4]", "yx1000")


@pytest.mark.parametrize("key", ["bbox_2d", "box_2d"])
@pytest.mark.parametrize("said", ['{"coords": [x1, y1, x2, y2]}', "{'area': (x1, y1, x2, y2)}"])
def test_a_key_under_which_nothing_is_read_is_replaced(said, key):
    name = "yx1000" if key == "box_2d" else "norm1000"
    problem, _ = made(said, "[254, 303, 291, 365]", name, key=key)
    template = problem.splitlines()[0]
    answer = re.sub(r"[xy][12]", lambda m: {"x": "25", "y": "30"}[m[0][0]] + m[0][1], template)
    assert read_boxes(answer).boxes == [(251, 301, 252, 302)], template
    problem, _ = made('{"boxes": [x1, y1, x2, y2]}', "[1, 2, 3, 4]", name, key=key)
    assert problem.startswith('{"boxes": {"' + key)


@pytest.mark.parametrize("said", ["[x, y, w, h]", "as xywh", "[x_center, y_center, width, height]"])
def test_width_and_height_are_not_asked_for_under_a_key(said):
    for name, key in (("yx1000", None), ("norm1000", "bbox_2d")):
        with pytest.raises(ValueError, match="the prompt says"):
            made(said, "[1, 2, 3, 4]", name, key=key)


@pytest.mark.parametrize(
    "said", ["坐标为 0-1000 的整数", "用0到1000之间的整数表示坐标", "坐标是0~1000的整数值"]
)
def test_whole_numbers_in_chinese_go_to_unit_and_back(said):
    there = made(said, "[1, 2, 3, 4]", "unit")
    assert "以 0 到 1 的三位小数表示" in there[0] and "的小数" not in there[0]
    assert "0 到 1000" in made(*there, "norm1000", "unit")[0]


@pytest.mark.parametrize(
    "words", ["xyxy", "(x, y) of two corners", "x first", "<box>", "left, top, width"]
)
def test_a_prompt_that_would_contradict_the_key_is_refused(words):
    with pytest.raises(ValueError, match=r'to be in \{"box_2d": \[y1, x1, y2, x2\]\}'):
        made(f"A box, {words}.", "[1, 2, 3, 4]", "yx1000")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("normalized coordinates in [0, 1]", "normalized coordinates between 0 and 1000"),
        ("coordinates from 0.0 to 1.0, with 4 decimals", "coordinates between 0 and 1000"),
        ("confidence 0 to 1, boxes in [0,1]", "confidence 0 to 1, boxes between 0 and 1000"),
        ("confidence (0 to 1)", "confidence (0 to 1)\nCoordinates are whole numbers between 0 and"),
        ("x from 0 to 1, y from 0 to 1", "between 0 and 1000"),
        ("坐标归一化到[0,1]，置信度在0到1之间", "坐标在 0 到 1000 之间，置信度在0到1之间"),
    ],
)  # fmt: skip
def test_what_a_set_in_unit_says_is_understood(said, expected):
    assert made(said, "[0.1, 0.2, 0.3, 0.4]", "norm1000", "unit")[0].startswith(expected)


@pytest.mark.parametrize("said", ["as floats", "relative coordinates", "fractions of the width"])
def test_what_is_not_understood_is_refused(said):
    with pytest.raises(ValueError, match="the prompt says"):
        made(f"A box, {said}.", "[0.1, 0.2, 0.3, 0.4]", "norm1000", "unit")


def test_whole_numbers_are_not_asked_for_in_unit():
    for said in ("integers in [0, 1000]", "as integer coordinates", "框为整数", "a box"):
        problem, _ = made(said, "[100, 200, 300, 400]", "unit")
        assert not re.search("integer|whole|整数|1000", problem), problem
    with pytest.raises(ValueError, match="'each an integer', and its boxes are to be in unit"):
        made("a box, each an integer", "[100, 200, 300, 400]", "unit")


def units(name: str, size) -> tuple[Fraction, Fraction]:
    """A unit of a format as a share of width and height, by hand."""
    if name == "pixels":
        return Fraction(1, size[0]), Fraction(1, size[1])
    return Fraction(1, 1000), Fraction(1, 1000)


def shares(box, name: str, size) -> list[Fraction]:
    """x1, y1, x2, y2 as shares of width and height, by hand."""
    a, b, c, d = (Fraction(str(v)) for v in box)
    if name == "yx1000":
        a, b, c, d = b, a, d, c
    w, h = {"pixels": size, "unit": (1, 1)}.get(name, (1000, 1000))
    return [a / w, b / h, c / w, d / h]


@settings(derandomize=True, max_examples=600, deadline=None)
@given(
    size=st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    parts=st.tuples(*[st.floats(0, 1)] * 4),
    name=st.sampled_from(BOX_FORMATS),
    whole=st.booleans(),
)
def test_rounding_moves_an_edge_by_half_a_unit_at_most(size, parts, name, whole):
    box = [part * size[n % 2] for n, part in enumerate(parts)]
    box = [round(v) if whole else round(v, 3) for v in box]
    box = [*map(min, box[:2], box[2:]), *map(max, box[:2], box[2:])]
    if box[0] == box[2] or box[1] == box[3]:
        return
    there = convert_box(tuple(box), "pixels", name, size=size)
    before, after = shares(box, "pixels", size), shares(there, name, size)
    for axis, unit in enumerate(units(name, size)):
        first, last = after[axis], after[axis + 2]
        assert 0 <= first < last <= 1, "it keeps an area, inside the image"
        moved = [abs(after[axis + side] - before[axis + side]) / unit for side in (0, 2)]
        collapses = round_half_up(before[axis] / unit) == round_half_up(before[axis + 2] / unit)
        tiny = Fraction(1, 10**9)
        if collapses:  # thinner than a unit
            assert last - first == unit and min(moved) <= 0.5 + tiny and max(moved) <= 1 + tiny
        else:
            assert max(moved) <= 0.5 + tiny
    back = shares(convert_box(there, name, "pixels", size=size), "pixels", size)
    for n in range(4):
        pixel, unit = units("pixels", size)[n % 2], units(name, size)[n % 2]
        assert abs(back[n] - after[n]) <= pixel  # half, but for a box thinner than a pixel
        assert abs(back[n] - before[n]) <= pixel + unit
    read = read_boxes(json.dumps({"box_2d" if name == "yx1000" else "bbox_2d": there}))
    assert read is not None and read.boxes[0] is not None


def round_half_up(value: Fraction) -> int:
    return (2 * value + 1).__floor__() // 2


@pytest.mark.parametrize("name", FAMILIES)
def test_native_is_what_the_family_writes(name, tmp_path):
    """From the command: numbers, keys and prompt of the same row."""
    known = FAMILIES[name]
    Image.new("RGB", SIZE).save(tmp_path / "1.png")
    row = {"image": "1.png", "problem": DOG, "solution": GOLD, "task": "detection"}
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")
    asked = [f"{tmp_path}/set.jsonl:native", str(tmp_path / "out")]
    result = run("data", "convert", *asked, "--model-type", known.model_types[0])
    if name == "cogagent_9b":  # its type in ms-swift is GLM-4v's; a name or folder tells them apart
        result = run("data", "convert", *asked, "--model", "zai-org/cogagent-9b-20241220")
    if known.box_format is None:
        assert result.exit_code == 2, result.output
        what = "was not trained to write boxes" if known.images else "none is known for"
        assert what in result.output
        return
    assert result.exit_code == 0, result.output
    (stored,) = stored_rows(tmp_path / "out")
    assert stored["frame"] == known.box_format
    (written,) = read_boxes(stored["solution"].split("answer>")[1][:-2]).boxes
    own = known.box_answer if known.box_format != "pixels" else "[163, 145, 186, 175]"
    scale = 1 if known.box_format != "unit" else 1000
    assert [v * scale for v in written] == pytest.approx(read_boxes(own).boxes[0])
    key = known.box_key or "Position"
    assert f"'{key}': [" in stored["solution"] and f"'{key}': [" in stored["problem"]
    assert "'Confidence': 1}" in stored["solution"]


def stored_rows(folder):
    (file,) = folder.rglob("*.parquet")
    return pq.read_table(file).to_pylist()


def run(*words):
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def shapes(tmp_path):
    Image.new("RGB", SIZE).save(tmp_path / "1.png")
    solutions = [GOLD, "<answer>No Objects</answer>", "[100, 200, 101, 999]"]
    rows = [
        {"image": "1.png", "problem": DOG, "solution": s, "task": "detection"} for s in solutions
    ]
    (tmp_path / "set.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "set.jsonl"


@pytest.mark.parametrize("name", BOX_FORMATS)
def test_every_data_command_takes_every_format(name, shapes, tmp_path):
    result = run("data", "check", f"{shapes}:{name}", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["good"] == 3, result.output
    result = run("data", "convert", f"{shapes}:{name}", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    stored = stored_rows(tmp_path / "out")
    assert {row["frame"] for row in stored} == {name}
    result = run("data", "check", str(tmp_path / "out"), "--json")
    assert json.loads(result.stdout)["good"] == 3, result.output
    # Back in thousandths, and as shown.
    result = run("data", "convert", f"{tmp_path}/out:norm1000", str(tmp_path / "back"))
    back = stored_rows(tmp_path / "back")
    assert [row["problem"] for row in back] == [DOG] * 3
    assert read_boxes(back[0]["solution"][8:-9]).boxes[0] == pytest.approx(
        (254, 303, 291, 365), abs=1 if name == "pixels" else 0
    )
    for source in (f"{shapes}:{name}", f"{tmp_path}/out"):
        result = run("data", "show", source, "--out", str(tmp_path / "page.html"))
        assert result.exit_code == 0, result.output
        page = (tmp_path / "page.html").read_text()
        place = re.search(r"left:([\d.]+)%;top:([\d.]+)%;width:([\d.]+)%;height:([\d.]+)%", page)
        assert [float(v) for v in place.groups()] == pytest.approx([25.4, 30.3, 3.7, 6.2], abs=0.2)


def test_coco_is_built_in_any_format(tmp_path):
    Image.new("RGB", SIZE).save(tmp_path / "9.png")
    content = {
        "images": [{"id": 9, "file_name": "9.png", "width": 640, "height": 480}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    golds = {
        "unit": "[{'Position': [0.100, 0.100, 0.600, 0.600], 'Confidence': 1}]",
        "yx1000": "[{'box_2d': [100, 100, 600, 600], 'Confidence': 1}]",
        "pixels": "[{'Position': [64, 48, 384, 288], 'Confidence': 1}]",
        "native": "[{'bbox_2d': [100, 100, 600, 600], 'Confidence': 1}]",
    }
    for name, gold in golds.items():
        result = run(
            "data", "coco", f"{tmp_path}/instances.json:{name}", str(tmp_path),
            str(tmp_path / name), "--categories", "dog", "--model-type", "qwen3_vl",
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        (row,) = stored_rows(tmp_path / name)
        assert row["solution"] == f"<answer>{gold}</answer>"
        assert row["frame"] == ("norm1000" if name == "native" else name)


@pytest.mark.parametrize("command", ["check", "convert", "show"])
def test_native_without_a_model_and_unknown_formats_say_what_to_give(command, shapes, tmp_path):
    further = [str(tmp_path / "out")] if command == "convert" else []
    result = run("data", command, f"{shapes}:native", *further)
    assert result.exit_code == 2 and "names no --model" in result.output, result.output
    assert "box format" in result.output and "gemma4" in result.output
    result = run("data", command, f"{shapes}:yx", *further)
    assert result.exit_code == 2, result.output
    assert "known: norm1000, pixels, unit, yx1000, native" in " ".join(result.output.split())


def test_rows_stored_in_another_format_than_they_say_are_named(shapes, tmp_path):
    def rows(*pairs):
        lines = [
            {"image": "1.png", "problem": "Where?", "solution": s, "task": "grounding", "frame": f}
            for f, s in pairs
        ]
        (tmp_path / "odd.jsonl").write_text("\n".join(map(json.dumps, lines)))
        found = json.loads(run("data", "check", f"{tmp_path}/odd.jsonl", "--json").stdout)
        return [one["problem"] for one in found["problems"]]

    bare, too_far, other = rows(
        ("yx1000", "[303, 254, 365, 291]"),
        ("unit", "[254, 303, 291, 365]"),
        ("norm999", "[254, 303, 291, 365]"),
    )
    assert 'the frame yx1000 needs every box of the solution as {"box_2d"' in bare
    assert "reaches beyond unit (0 to 1)" in too_far
    assert "unknown frame 'norm999'; known: norm1000, pixels, unit, yx1000" in other
    row = {"image": "1.png", "problem": DOG, "solution": "[0.1, 0.2, 0.3, 1]", "task": "detection"}
    (tmp_path / "u.jsonl").write_text(json.dumps(row))
    notes = json.loads(run("data", "check", f"{tmp_path}/u.jsonl", "--json").stdout)["notes"]
    assert any("look like shares" in note and "the value unit" in note for note in notes)
    assert not rows(
        ("unit", "[0.254, 0.303, 1.0000001, 0.365]"), ("yx1000", '{"box_2d": [303, 254, 365, 291]}')
    )
