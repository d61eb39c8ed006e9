"""Answers of other programs are joined with rows as --join says: the score is that of the rows that
they answer, or the file is refused in one line.
"""

import base64
import hashlib
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scored import answer, eval_json, refusal, run_json, write_lines

from swift_vlrft.datasets.image import upright_bytes
from swift_vlrft.evaluation.joined import same_gold
from swift_vlrft.evaluation.pairing import JOINS, pair
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction

COLOUR, SHAPE = "What colour is it?", "What shape is it?"
# Picture, question, gold. Two pictures are asked twice, two files have one name.
ROWS = [
    ("a/0.png", COLOUR, "red"),
    ("a/0.png", SHAPE, "circle"),
    ("a/1.png", COLOUR, "blue"),
    ("b/1.png", COLOUR, "red"),
    ("b/2.png", COLOUR, "red"),
    ("b/3.png", SHAPE, "dark square"),
]
EVERY = list(range(len(ROWS)))
TABLE = Path(__file__).with_name("joins_refused.jsonl")
"""``rows``: the row that each line answers; ``changed``: what the lines say otherwise."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """With the rows: set.jsonl of no ids, ids.jsonl of the ids x0, x1, .., same.jsonl of one id."""
    monkeypatch.chdir(tmp_path)
    for n, name in enumerate(sorted({name for name, _, _ in ROWS})):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8 + n, 8), (n * 30, 0, 0)).save(tmp_path / name)
    rows = [
        {"image": name, "problem": problem, "solution": f"<answer>{gold}</answer>"}
        for name, problem, gold in ROWS
    ]
    write_lines(tmp_path / "set.jsonl", rows)
    write_lines(tmp_path / "less.jsonl", rows[2:])
    write_lines(tmp_path / "ids.jsonl", [row | {"id": f"x{n}"} for n, row in enumerate(rows)])
    write_lines(tmp_path / "same.jsonl", [row | {"id": 7} for row in rows])
    return tmp_path


def infer_line(n: int, **changed) -> dict:
    """A line as `swift infer` of ms-swift 4.6.1 writes it, with the right answer."""
    name, problem, gold = ROWS[n]
    return {
        "response": answer(gold),
        "labels": f"<answer>{gold}</answer>",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"<image>{problem}"},
            {"role": "assistant", "content": answer(gold)},
        ],
        "images": [{"bytes": None, "path": str(Path(name).absolute())}],
    } | changed


def own_line(n: int, **changed) -> dict:
    """A line as `vlrft eval` writes it."""
    name, problem, gold = ROWS[n]
    line = {"id": str(n), "row": n, "image_hash": sha256(Path(name))[:16], "prompt": problem}
    return line | {"completion": answer(gold), "task": "classification"} | changed


def bare_line(n: int, **changed) -> dict:
    """Without question, image and gold."""
    return {"id": n, "completion": answer(ROWS[n][2])} | changed


KINDS = {"infer": infer_line, "own": own_line, "bare": bare_line}


def joined(lines: list[dict], join: str | None = None, gold: str = "set.jsonl") -> tuple:
    file = write_lines(Path("p.jsonl"), lines)
    arguments = file, "--gold", gold, "--task", "classification"
    return *arguments, *(("--join", join) if join else ())


def accuracy(*arguments) -> float:
    return eval_json(*joined(*arguments))["metrics"]["accuracy"]["value"]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def copied(name: str) -> str:
    file = Path(f"copy-{name.replace('/', '-')}.bin")
    file.write_bytes(Path(name).read_bytes())
    return str(file.absolute())


NAMED = {
    "absolute": lambda name: str(Path(name).absolute()),
    "relative": lambda name: name,
    "of another machine": lambda name: f"/mnt/data/{name}",
    "of Windows": lambda name: "C:\\data\\" + name.replace("/", "\\"),
    "copied": copied,
    "named by its hash": lambda name: f"/gone/{sha256(Path(name))[:32]}",
    "base64": lambda name: (
        "data:image/png;base64," + base64.b64encode(Path(name).read_bytes()).decode()
    ),
}


@pytest.mark.parametrize("naming", NAMED)
def test_images_by_any_name_find_their_rows(folder, naming):
    lines = [infer_line(n, images=[NAMED[naming](ROWS[n][0])]) for n in EVERY]
    assert accuracy(lines[::-1], "image") == 1.0
    some = [lines[n] for n in (5, 0, 3)]
    assert accuracy(some, "image") == pytest.approx(3 / 6)


def test_an_image_that_was_turned_for_training_is_the_sets(folder):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (9, 5), (1, 2, 3)).save("turned.jpg", exif=exif)
    row = {"image": "turned.jpg", "problem": COLOUR, "solution": "red"}
    write_lines(Path("one.jsonl"), [row])
    content = upright_bytes({"bytes": None, "path": str(folder / "turned.jpg")})["bytes"]
    name = f"/cache/{hashlib.sha256(content).hexdigest()}.png"
    assert accuracy([infer_line(0, images=[name])], "image", "one.jsonl") == 1.0


def test_lines_are_joined_by_what_join_names_alone(folder):
    lines = [bare_line(n) for n in EVERY]
    assert accuracy(lines[::-1], "id") == 1.0
    assert accuracy([own_line(n) for n in EVERY[::-1]]) == 1.0
    own = [bare_line(n, id=f"x{n}") for n in EVERY]
    assert accuracy(own[::-1], "id", "ids.jsonl") == accuracy(own, "order", "ids.jsonl") == 1.0
    nothing = [infer_line(n, images=[], labels=None, messages=[]) for n in EVERY]
    assert accuracy(nothing, "order") == 1.0
    # Ids may repeat where nothing is joined by them.
    repeated = [infer_line(n, id="7") for n in EVERY]
    assert accuracy(repeated, "order") == accuracy(repeated[::-1], "image") == 1.0
    assert accuracy(repeated, "order", "same.jsonl") == 1.0


def test_missing_rows_are_unanswered_and_unknown_ones_left_out(folder):
    lines = [bare_line(0, id="y"), *(bare_line(n, id=f"x{n}") for n in EVERY[1:])]
    summary = eval_json(*joined(lines, "id", "ids.jsonl"))
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(5 / 6)
    assert summary["named"] == {
        "rows that the data set does not have, left out": ["line 1: id y"],
        "rows missing from the predictions, scored as unanswered": ["0"],
    }


@pytest.mark.parametrize("image", ["<image>", "<img><IMG_CONTEXT></img>", "<start_of_image>"])
def test_the_log_has_the_question_inside_of_the_templates_text(folder, image):
    rows = [json.loads(row) for row in Path("set.jsonl").read_text().splitlines()]
    for row in rows:
        row["problem"] = row["problem"].replace(" is it", " <image> is it")
    write_lines(Path("set.jsonl"), rows)
    asked = [row["problem"].replace("<image>", image) for row in rows]
    said = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in asked]
    log = {"completion": [f"<answer>{gold}</answer>" for _, _, gold in ROWS], "prompt": said}
    assert accuracy([log], "order") == 1.0
    log["prompt"] = said[::-1]
    assert "line 1[0]" in refusal("eval", "--predictions", *joined([log], "order"))


REFUSED = [json.loads(line) for line in TABLE.read_text().splitlines()]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case['join']}: {case['why']}")
def test_what_cannot_be_joined_or_contradicts_its_row_is_refused_in_one_line(folder, case):
    lines = []
    for n in case["rows"]:
        changed = dict(case["changed"])
        if isinstance(changed.get("id"), str):
            changed["id"] = changed["id"].format(row=n, next=n + 1)
        lines.append(KINDS[case["kind"]](n, **changed))
    arguments = joined(lines, case["join"], f"{case['set']}.jsonl")
    text = refusal("eval", "--predictions", *arguments)
    assert case["said"] in text and text.count("error:") == 1
    assert "Possible" not in text or text.endswith(case["said"])


def test_gold_in_another_form_is_the_same_gold(folder):
    for labels in ("Red", "<answer> red. </answer>", '"red"'):
        assert accuracy([infer_line(0, labels=labels)], "image") > 0
    assert same_gold("[0.1, 0.1, 0.2, 0.2]", "[0.101, 0.1, 0.2, 0.2]")
    assert not same_gold("[0.1, 0.1, 0.2, 0.2]", "[0.4, 0.4, 0.9, 0.9]")


def test_results_on_coco_annotations_are_located_by_the_files_name(tmp_path):
    content = {
        "images": [{"id": 7, "file_name": "val/1.jpg", "width": 100, "height": 100}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 10, 40, 40]}],
        "categories": [{"id": 3, "name": "dog"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    question = "Detect all objects belonging to the category 'dog' in the image."
    said = answer("[{'Position': [100, 100, 500, 500], 'Confidence': 1}]")
    line = {"response": said, "messages": [{"role": "user", "content": question}]}
    file = tmp_path / "p.jsonl"
    arguments = file, "--gold", tmp_path / "instances.json", "--task", "detection"
    for name in ("/mnt/val/1.jpg", "1.jpg"):
        write_lines(file, [line | {"images": [{"path": name}]}])
        assert eval_json(*arguments)["metrics"]["AP"]["value"] == pytest.approx(1.0)
    write_lines(file, [line | {"images": [{"path": "/mnt/train/1.jpg"}]}])
    assert "like 7, its categories 3: dog" in refusal("eval", "--predictions", *arguments)


def test_two_files_without_ids_are_compared_as_join_says(folder):
    def compared(first: list[dict], second: list[dict], *join: str) -> tuple:
        files = (write_lines(Path("a.jsonl"), first), write_lines(Path("b.jsonl"), second))
        return "compare", *files, "--task", "classification", *join

    lines = [infer_line(n) for n in EVERY]
    sides = lines, lines[::-1]
    assert refusal(*compared(*sides)).endswith("Possible here: --join image")
    assert run_json(*compared(*sides, "--join", "image"))["rows"] == 6
    assert "line 1 of B" in refusal(*compared(*sides, "--join", "order"))
    repeated = [line | {"id": "7"} for line in lines]
    assert "fits 6 rows" in refusal(*compared(repeated, repeated))
    assert run_json(*compared(repeated, repeated, "--join", "order"))["rows"] == 6
    unsolved = [line | {"labels": None} for line in lines]
    assert "--gold SET" in refusal(*compared(unsolved, unsolved, "--join", "order"))


IMAGES = st.sampled_from(["a/1.png", "b/1.png", "2.png", None])
LINE = st.tuples(IMAGES, st.sampled_from([COLOUR, SHAPE, ""]), st.sampled_from(["red", "blue", ""]))


def prediction(place: str, image: str | None, question: str, gold: str, own_id: str) -> Prediction:
    names = () if image is None else (image,)
    return Prediction("", "", gold, prompt=question, place=place, own_id=own_id, image_names=names)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(LINE, min_size=1, max_size=5),
    join=st.sampled_from(JOINS),
    seed=st.integers(0, 99),
)
def test_no_answer_is_ever_given_a_row_that_it_contradicts(rows, join, seed):
    known = [prediction(f"row {n}", *row, str(n)) for n, row in enumerate(rows)]
    lines = [prediction(f"line {n}", *row, str(n)) for n, row in enumerate(rows)]
    random.Random(seed).shuffle(lines)

    def agrees(n: int, r: int) -> bool:
        return lines[n].solution in ("", known[r].solution)

    try:
        paired = pair(lines, known, join, agrees=agrees)
    except EvaluationError:
        return
    used = [r for r in paired if r is not None]
    assert len(set(used)) == len(used)
    for n, r in enumerate(paired):
        if r is not None:
            line, row = lines[n], known[r]
            assert agrees(n, r)
            assert not (line.image_names and row.image_names) or line.image_names == row.image_names
            assert join != "id" or line.own_id == row.own_id
