"""Boxes and prompts in another box format: numbers, keys and words agree, nothing else changes.

box_prompts.jsonl holds one case a line, of an image of 640 x 480: ``seen`` is its size for the
model where that differs, ``refused`` the words that an error names in place of ``asked``.
"""

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from support.box_forms import FORMS
from support.stored_sets import GOLD, picture, train_on
from support.written_sets import check, write_rows

from swift_vlrft.datasets import Row
from swift_vlrft.datasets.box_format import row_in_box_format
from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.datasets.prompt_sentences import RANGES, said_of_coordinates, without_box_format
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.geometry.box_format import BOX_FORMATS, box_format, rescaled
from swift_vlrft.parsing.boxes import read_boxes

SIZE, SEEN = (640, 480), (644, 476)
VIEW = ImageResize("qwen2_5_vl", 3136, 1_003_520)
DOG = PROMPT.replace("{category}", "dog")


def converted(problem, solution, after, before="norm1000", size=SIZE, seen=None, key=None, task=""):
    row = Row(None, {}, problem, solution, {"frame": before, "task": task or "detection"})
    shown = row_in_box_format(row, after, size, seen or size, key)
    return shown.problem, shown.solution


def wrong_with(case) -> str | None:
    """What is not as the line of box_prompts.jsonl says."""
    problem, solution = case["problem"], case.get("solution", "[]")
    seen = tuple(case.get("seen", SIZE))
    options = {"key": case.get("key"), "task": "pointing" if case.get("points") else "detection"}
    try:
        result = converted(problem, solution, case["to"], case["from"], seen=seen, **options)
    except ValueError as error:
        named = case.get("refused")
        return None if named and (repr(named) in str(error) or named in str(error)) else str(error)
    if result != (case.get("asked"), case.get("written", "[]")):
        return f"became {result}"
    if converted(*result, case["to"], case["to"], seen, **options) != result:
        return "changes once more"
    same = without_box_format(problem) == without_box_format(result[0])
    return None if same else f"asks something else: {without_box_format(result[0])}"


def test_prompts_say_what_the_table_says():
    lines = Path(__file__).with_name("box_prompts.jsonl").read_text().splitlines()
    wrong = [(number, wrong_with(json.loads(line))) for number, line in enumerate(lines, 1)]
    assert [f"line {number}: {what}" for number, what in wrong if what] == []
    assert len(lines) > 80


def test_prompt_and_solution_come_back_over_any_two_formats():
    for first, second in itertools.product(BOX_FORMATS, BOX_FORMATS):
        there = converted(DOG, GOLD, first, size=(1000, 1000))
        further = converted(*there, second, first, size=(1000, 1000))
        back = converted(*further, "norm1000", second, size=(1000, 1000))
        assert back == (DOG, GOLD), (first, second)
        assert without_box_format(further[0]) == without_box_format(DOG)


PLACES = (
    "[{}, {}]", "({},{}), ({},{})", "[[{}, {}], [{}, {}]]", "{}; {}", "({} {})", "{} x {}", "{}×{}",
    "<point x='{}' y='{}'>", "x={}, y={}", "x_min: {}", "left = {}, top = {}", "'x': {}, 'y': {}",
    "width {}, height {}", "from {} to {}",
)  # fmt: skip
numbers = st.one_of(st.integers(10, 9999).map(str), st.floats(0.01, 0.99).map("{:.2f}".format))


@settings(max_examples=300)
@given(
    before=st.sampled_from(["", "Find the dog at ", "Like this:\n", "框", "Is it 3", DOG]),
    place=st.builds(str.format, st.sampled_from(PLACES), numbers, numbers, numbers, numbers),
    zero=st.sampled_from("0０٠०"),
    after=st.sampled_from(["", ".", "\nThink first.", "。", " of the dog", DOG]),
    asked=st.sampled_from(["pixels", "unit", "yx1000"]),
)
def test_no_place_in_a_prompt_is_passed_in_another_format(before, place, zero, after, asked):
    """Boxes, points, polygons and sizes, in digits of any script."""
    place = place.translate({ord("0") + n: chr(ord(zero) + n) for n in range(10)})
    with pytest.raises(ValueError, match="the prompt says"):
        converted(f"{before}{place}{after}", "[]", asked)


PHRASES = (
    "lady w/ 2 bags", "left top donut", "left, top one", "tall guy number 23", "highway 101 sign",
    "boy on a float", "#12", "bus 1001", "the clock at 10:30", "row 2 seat 3", "#2 and #3",
    "player in the position 2", "秋千上的孩子", "2nd from left, top", "height of the 3rd one",
)  # fmt: skip


def test_phrases_as_people_write_them_are_not_refused():
    found = {phrase: said_of_coordinates(f"Find the object: {phrase}.") for phrase in PHRASES}
    assert found == dict.fromkeys(PHRASES)


def test_no_sentence_of_the_table_holds_another():
    texts = [text for texts in RANGES for text in texts.values()]
    assert [(a, b) for a in texts for b in texts if a != b and a in b] == []
    assert [text for text in texts if said_of_coordinates(text.format(width=9, height=9))] == []


# ---- numbers, as tests/geometry has them ---------------------------------------------------------


side = st.integers(0, 999)
boxes_of_an_image = st.lists(
    st.tuples(side, side, side, side).map(
        lambda b: (b[0], b[1], min(b[0] + 1 + b[2], 1000), min(b[1] + 1 + b[3], 1000))
    ),
    min_size=1,
    max_size=3,
)
LABELS = ["Big dog", "[1,2,3,4]", "dog 7", "(10, 20)", "<box>1 2 3 4</box>", "9"]
TARGETS = [("pixels", None), ("unit", None), ("yx1000", None), ("norm1000", "bbox_2d")]


@pytest.mark.parametrize(("name", "key"), TARGETS)
@settings(max_examples=8)
@given(
    all_boxes=boxes_of_an_image,
    name_of_all=st.sampled_from(LABELS),
    size=st.tuples(st.integers(60, 3000), st.integers(60, 3000)),
)
def test_boxes_in_any_form_are_rewritten(name, key, all_boxes, name_of_all, size):
    for form in FORMS:
        note(str(form))
        boxes = all_boxes if form.several else all_boxes[:1]
        check_rewritten(form, boxes, name_of_all if form.labelled else None, name, key, size)


def check_rewritten(form, boxes, label, name, key, size):
    text, seen = form.write(boxes, label), VIEW.size(*size)
    lead, tail = f"<think>[1, 2, 3, 4] {text}</think>\n<answer> ", " </answer>"
    gold = f"{lead}{text}{tail}"
    _, written = converted("Where?", gold, name, size=size, seen=seen, key=key)
    assert written.startswith(lead) and written.endswith(tail)
    answer = written[len(lead) : -len(tail)]
    result = read_boxes(answer)
    formats = box_format("norm1000"), box_format(name)
    assert result.boxes == [rescaled(box, *formats, size, seen) for box in boxes]
    assert result.labels == read_boxes(text).labels
    if name == "pixels":
        assert answer == form.write([tuple(map(int, box)) for box in result.boxes], label)
    written_key = "box_2d" if name == "yx1000" else key
    count = len(re.findall(rf"""["']{written_key}["']:""", answer))
    assert written_key is None or count == len(boxes)


# ---- the same in the commands and in training ----------------------------------------------------


@pytest.mark.parametrize("stored_in", ["norm1000", "pixels"])
@pytest.mark.parametrize("wanted", ["norm1000", "pixels"])
def test_check_and_training_refuse_the_same_prompts(tmp_path, stored_in, wanted):
    (tmp_path / "1.png").write_bytes(picture())
    known = "between 0 and 1000, integer"
    other = "in pixels, x from 0 to 40 and y from 0 to 20, integer"
    if stored_in == "pixels":
        known, other = other, known
    said = ["permille", known, "in pixels", "a 40x20 picture", other]
    row = {"image": "1.png", "solution": "[1, 2, 30, 18]", "task": "grounding", "frame": stored_in}
    rows = [row | {"problem": f"A box ({words})."} for words in said]
    source = write_rows(tmp_path / "a.jsonl", *rows)
    as_it_stands = stored_in == wanted == "norm1000"
    refused = [4] if as_it_stands else [0, 2, 3, 4]
    dataset, report = train_on(source, tmp_path / "cache", box_format=wanted, resize=VIEW)
    assert [problem.place.row for problem in report.problems] == refused
    assert len(dataset) == 5 - len(refused)
    code, checked = check(f"{source}:pixels" if wanted == "pixels" else source)
    assert checked["good"] == len(dataset) and code == bool(refused)
    places = [problem["place"].rsplit(" ", 1)[-1] for problem in checked["problems"]]
    assert places == list(map(str, refused))
    contradiction = checked["problems"][-1]["problem"]
    assert f"declared as {stored_in}" in contradiction and other[:9] in contradiction
