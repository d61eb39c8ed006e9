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
from typer.testing import CliRunner

from swift_vlrft.cli import app
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
ASKED = {"role": "user", "content": "<image>How many cups?"}  # of no row


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for n, name in enumerate(sorted({name for name, _, _ in ROWS})):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8 + n, 8), (n * 30, 0, 0)).save(tmp_path / name)
    rows = [
        {"image": name, "problem": problem, "solution": f"<answer>{gold}</answer>"}
        for name, problem, gold in ROWS
    ]
    write(tmp_path / "set.jsonl", rows)
    return tmp_path


def write(path: Path, lines: list[dict]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def infer_line(folder: Path, n: int, **changed) -> dict:
    """A line as `swift infer` of ms-swift 4.6.1 writes it, with the right answer."""
    name, problem, gold = ROWS[n]
    answer = f"<think>t</think><answer>{gold}</answer>"
    return {
        "response": answer,
        "labels": f"<answer>{gold}</answer>",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"<image>{problem}"},
            {"role": "assistant", "content": answer},
        ],
        "images": [{"bytes": None, "path": str(folder / name)}],
    } | changed


def evaluate(folder: Path, lines: list[dict], *join: str, gold: str = "set.jsonl"):
    file = write(folder / "p.jsonl", lines)
    command = ["eval", "--predictions", str(file), "--gold", gold, "--task", "classification"]
    more = ["--join", *join] if join else []
    return CliRunner().invoke(app, [*command, *more, "--json", "--bootstrap", "0"])


def accuracy(*arguments, **gold) -> float:
    result = evaluate(*arguments, **gold)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["metrics"]["accuracy"]["value"]


def refused(*arguments, **gold) -> str:
    result = evaluate(*arguments, **gold)
    assert result.exit_code == 2, result.output
    assert len(result.output.strip().splitlines()) == 1
    return result.output


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def copied(folder: Path, name: str) -> str:
    file = folder / f"copy-{name.replace('/', '-')}.bin"
    file.write_bytes((folder / name).read_bytes())
    return str(file)


NAMED = {
    "absolute": lambda folder, name: str(folder / name),
    "relative": lambda folder, name: name,
    "of another machine": lambda folder, name: f"/mnt/data/{name}",
    "of Windows": lambda folder, name: "C:\\data\\" + name.replace("/", "\\"),
    "copied": copied,
    "named by its hash": lambda folder, name: f"/gone/{sha256(folder / name)[:32]}",
    "base64": lambda folder, name: (
        "data:image/png;base64," + base64.b64encode((folder / name).read_bytes()).decode()
    ),
}


@pytest.mark.parametrize("naming", NAMED)
@pytest.mark.parametrize("chosen", [EVERY, EVERY[::-1], [5, 0, 3]])
def test_images_by_any_name_find_their_rows(folder, naming, chosen):
    lines = [infer_line(folder, n, images=[NAMED[naming](folder, ROWS[n][0])]) for n in chosen]
    assert accuracy(folder, lines, "image") == pytest.approx(len(chosen) / len(ROWS))


def test_without_join_the_possible_ones_are_named(folder):
    lines = [infer_line(folder, n) for n in EVERY]
    assert refused(folder, lines).endswith("Possible here: --join image or --join order\n")
    assert refused(folder, lines[::-1]).endswith("Possible here: --join image\n")
    lines = [line | {"id": n, "images": []} for n, line in enumerate(lines)]
    assert refused(folder, lines[:3]).endswith("Possible here: --join id\n")
    nothing = [{"response": "<answer>red</answer>"}]
    assert "cannot be joined" in refused(folder, nothing)
    assert "--join hash: known are id, image, order" in refused(folder, lines, "hash")


def test_ids_are_the_sets_own_or_numbers_of_rows(folder):
    lines = [{"id": n, "completion": infer_line(folder, n)["response"]} for n in EVERY]
    assert accuracy(folder, lines[::-1], "id") == 1.0
    rows = [json.loads(line) for line in (folder / "set.jsonl").read_text().splitlines()]
    write(folder / "ids.jsonl", [row | {"id": f"x{n}"} for n, row in enumerate(rows)])
    own = [line | {"id": f"x{line['id']}"} for line in lines]
    assert accuracy(folder, own[::-1], "id", gold="ids.jsonl") == 1.0
    from_one = [line | {"id": line["id"] + 1} for line in lines]
    assert "counted from 1" in refused(folder, from_one, "id")
    assert "counted from 1" in refused(folder, from_one[2::-1], "id")  # the first three
    summary = json.loads(
        evaluate(folder, [*own[1:], {**own[0], "id": "y"}], "id", gold="ids.jsonl").stdout
    )
    assert summary["problems"] == {
        "rows that the data set does not have, left out": 1,
        "rows missing from the predictions, scored as unanswered": 1,
    }
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(5 / 6)


def test_ids_may_repeat_where_nothing_is_joined_by_them(folder):
    lines = [infer_line(folder, n) | {"id": "7"} for n in EVERY]
    assert accuracy(folder, lines, "order") == accuracy(folder, lines[::-1], "image") == 1.0
    first, second = write(folder / "a.jsonl", lines), write(folder / "b.jsonl", lines)
    command = ["compare", str(first), str(second), "--task", "classification", "--json"]
    assert "could be of 6 rows" in CliRunner().invoke(app, command).output
    done = CliRunner().invoke(app, [*command, "--join", "order"])
    assert json.loads(done.stdout)["rows"] == 6
    rows = (folder / "set.jsonl").read_text().splitlines()
    write(folder / "ids.jsonl", [json.loads(row) | {"id": 7} for row in rows])
    assert "could be of 6 rows" in refused(folder, lines, "id", gold="ids.jsonl")
    assert accuracy(folder, lines, "order", gold="ids.jsonl") == 1.0


def test_ids_in_another_order_are_not_joined_by_order(folder):
    rows = [json.loads(row) for row in (folder / "set.jsonl").read_text().splitlines()]
    write(folder / "ids.jsonl", [row | {"id": f"x{n}"} for n, row in enumerate(rows)])
    for of, gold in (("x{}", "ids.jsonl"), ("{}", "set.jsonl")):
        lines = [{"id": of.format(n), "response": "<answer>red</answer>"} for n in EVERY]
        assert accuracy(folder, lines, "order", gold=gold) == 0.5
        text = refused(folder, lines[::-1], "order", gold=gold)
        assert f"has the id '{of.format(5)}' of row 5 of {gold}, not row 0" in text
        assert refused(folder, lines[::-1], gold=gold).endswith("Possible here: --join id\n")


@pytest.mark.parametrize("image", ["<image>", "<img><IMG_CONTEXT></img>", "<start_of_image>"])
def test_the_log_has_the_question_inside_of_the_templates_text(folder, image):
    rows = [json.loads(row) for row in (folder / "set.jsonl").read_text().splitlines()]
    for row in rows:
        row["problem"] = row["problem"].replace(" is it", " <image> is it")
    write(folder / "set.jsonl", rows)
    asked = [row["problem"].replace("<image>", image) for row in rows]
    said = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q in asked]
    log = {"completion": [f"<answer>{gold}</answer>" for _, _, gold in ROWS], "prompt": said}
    assert accuracy(folder, [log], "order") == 1.0
    log["prompt"] = said[::-1]
    assert "was asked" in refused(folder, [log], "order")


def test_order_needs_as_many_lines(folder):
    nothing = {"images": [], "labels": None, "messages": []}
    lines = [infer_line(folder, n) | nothing for n in EVERY]
    assert accuracy(folder, lines, "order") == 1.0
    assert "5 answers are not the 6 rows" in refused(folder, lines[1:], "order")


@pytest.mark.parametrize(
    ("join", "lines", "said"),
    [
        (
            "order",
            [(n, {"images": []}) for n in EVERY[::-1]],
            "line 1 of the predictions was asked",
        ),
        ("order", [(n, {}) for n in [2, 1, 0, 3, 4, 5]], "is of the image"),
        ("image", [(0, {"labels": "purple"})], "has the gold 'purple', row 0 of set.jsonl"),
        ("image", [(0, {"images": ["x/77.png"]})], "no prediction is of a row of set.jsonl"),
        (
            "image",
            [(2, {"images": ["1.png"], "labels": None})],
            "could be of 2 rows, such as row 2",
        ),
        (
            "image",
            [(0, {}), (0, {})],
            "line 1 of the predictions and line 2 of the predictions are",
        ),
        ("image", [(0, {"images": []})], "line 1 of the predictions names no image"),
        ("id", [(0, {"id": "1", "images": []})], "was asked 'What colour is it?', row 1 of set"),
        ("id", [(2, {"id": "0", "images": []})], "has the gold 'blue', row 0 of set.jsonl"),
        ("id", [(0, {"id": "4"})], "is of the image"),
        ("id", [(0, {"id": "0", "messages": [ASKED]})], "was asked 'How many cups?', row 0 of set"),
        ("image", [(0, {"messages": [ASKED]})], "was asked 'How many cups?', row 0 of set.jsonl"),
        ("id", [(0, {})], "line 1 of the predictions has no id"),
    ],
)
def test_contradictions_are_refused_in_one_line(folder, join, lines, said):
    text = refused(folder, [infer_line(folder, n) | changed for n, changed in lines], join)
    assert said in text


def test_our_own_lines_carry_row_and_hash(folder):
    lines = [
        {
            **{"id": str(n), "row": n, "image_hash": sha256(folder / name)[:16], "prompt": problem},
            **{"completion": infer_line(folder, n)["response"], "task": "classification"},
        }
        for n, (name, problem, _) in enumerate(ROWS)
    ]
    assert accuracy(folder, lines[::-1]) == 1.0
    rows = (folder / "set.jsonl").read_text().splitlines(keepends=True)
    (folder / "less.jsonl").write_text("".join(rows[2:]))  # of a set that has lost rows since
    assert "row 0 of less.jsonl of" in refused(folder, lines, gold="less.jsonl")


def test_gold_in_another_form_is_the_same_gold(folder):
    for labels in ("Red", "<answer> red. </answer>", '"red"'):
        assert accuracy(folder, [infer_line(folder, 0, labels=labels)], "image") > 0


def test_images_that_were_turned_for_training_are_the_sets(folder):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (9, 5), (1, 2, 3)).save(folder / "turned.jpg", exif=exif)
    write(folder / "one.jsonl", [{"image": "turned.jpg", "problem": COLOUR, "solution": "red"}])
    from swift_vlrft.datasets.image import upright_bytes

    content = upright_bytes({"bytes": None, "path": str(folder / "turned.jpg")})["bytes"]
    name = f"/cache/{hashlib.sha256(content).hexdigest()}.png"
    lines = [infer_line(folder, 0, images=[name])]
    assert accuracy(folder, lines, "image", gold="one.jsonl") == 1.0


def test_results_on_coco_annotations_are_located_by_the_files_name(tmp_path):
    content = {
        "images": [{"id": 7, "file_name": "val/1.jpg", "width": 100, "height": 100}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 10, 40, 40]}],
        "categories": [{"id": 3, "name": "dog"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    question = "Detect all objects belonging to the category 'dog' in the image."
    answer = "<answer>[{'Position': [100, 100, 500, 500], 'Confidence': 1}]</answer>"
    line = {"response": answer, "messages": [{"role": "user", "content": question}]}
    for name, right in (("/mnt/val/1.jpg", 1.0), ("1.jpg", 1.0), ("/mnt/train/1.jpg", None)):
        file = write(tmp_path / "p.jsonl", [line | {"images": [{"path": name}]}])
        command = ["eval", "--predictions", str(file), "--gold", str(tmp_path / "instances.json")]
        done = CliRunner().invoke(app, [*command, "--task", "detection", "--json"])
        assert done.exit_code == (2 if right is None else 0), done.output
        if right is not None:
            assert json.loads(done.stdout)["metrics"]["AP"]["value"] == pytest.approx(right)


def test_two_files_without_ids_are_compared_as_join_says(folder):
    lines = [infer_line(folder, n) for n in EVERY]
    first, second = write(folder / "a.jsonl", lines), write(folder / "b.jsonl", lines[::-1])
    command = ["compare", str(first), str(second), "--task", "classification", "--json"]
    asked = CliRunner().invoke(app, command)
    assert asked.exit_code == 2 and "Possible here: --join image" in asked.output
    done = CliRunner().invoke(app, [*command, "--join", "image"])
    assert json.loads(done.stdout)["rows"] == 6
    assert "line 1 of B" in CliRunner().invoke(app, [*command, "--join", "order"]).output


def test_files_without_gold_are_not_compared(folder):
    lines = [infer_line(folder, n) | {"labels": None} for n in EVERY]
    file = str(write(folder / "a.jsonl", lines))
    command = ["compare", file, file, "--task", "classification", "--join", "order"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "score each with `vlrft eval" in done.output


IMAGES = st.sampled_from(["a/1.png", "b/1.png", "2.png", None])
LINE = st.tuples(IMAGES, st.sampled_from([COLOUR, SHAPE, ""]), st.sampled_from(["red", "blue", ""]))


def made(place: str, image: str | None, question: str, gold: str, own_id: str | None = None):
    names = () if image is None else (image,)
    return Prediction("", "", gold, prompt=question, place=place, own_id=own_id, image_names=names)


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(LINE, min_size=1, max_size=5),
    join=st.sampled_from(JOINS),
    seed=st.integers(0, 99),
)
def test_no_answer_is_ever_given_a_row_that_it_contradicts(rows, join, seed):
    known = [made(f"row {n}", *row, str(n)) for n, row in enumerate(rows)]
    lines = [made(f"line {n}", *row, str(n)) for n, row in enumerate(rows)]
    random.Random(seed).shuffle(lines)

    def agrees(n: int, r: int) -> bool:
        return lines[n].solution in ("", known[r].solution)

    try:
        found = pair(lines, known, join, agrees=agrees)
    except EvaluationError:
        return
    used = [r for r in found if r is not None]
    assert len(set(used)) == len(used)
    for line, r in zip(lines, found, strict=True):
        if r is not None:
            assert line.solution in ("", known[r].solution)
            assert not (line.image_names and known[r].image_names) or (
                line.image_names == known[r].image_names
            )
            assert join != "id" or line.own_id == known[r].own_id
