"""Answers find their rows by picture, question and gold, whatever file they come from: the score is
that of the rows that they answer, or the file is refused in one line.
"""

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
from swift_vlrft.datasets.box_format import in_box_format
from swift_vlrft.evaluation.pairing import Pairing
from swift_vlrft.evaluation.predictions import EvaluationError, Prediction

COLOUR, SHAPE = "What colour is it?", "What shape is it?"
# Picture, question, gold. Two pictures are asked twice, one question is asked twice in other words
# of the gold, and 5 and 6 are one picture under two names.
ROWS = [
    ("a/0.png", COLOUR, "red"),
    ("a/0.png", SHAPE, "circle"),
    ("a/1.png", COLOUR, "blue"),
    ("b/1.png", COLOUR, "red"),
    ("b/2.png", COLOUR, "red"),
    ("b/3.png", SHAPE, "dark square"),
    ("b/4.png", COLOUR, "green"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """``set.jsonl`` with its pictures; the right answer to every row but the last two is known."""
    monkeypatch.chdir(tmp_path)
    for n, name in enumerate(sorted({name for name, _, _ in ROWS})):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8 + n, 8), (n * 30, 0, 0)).save(file)
    write(
        tmp_path / "set.jsonl",
        [
            {"image": name, "problem": problem, "solution": f"<answer>{gold}</answer>"}
            for name, problem, gold in ROWS
        ],
    )
    return tmp_path


def write(path: Path, lines: list[dict]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def infer_line(folder: Path, n: int, said: str | None = None, **changed) -> dict:
    """A line as `swift infer` of ms-swift 4.6.1 writes it; ``said``: the answer, else the gold."""
    name, problem, gold = ROWS[n]
    answer = f"<think>t</think><answer>{gold if said is None else said}</answer>"
    return {
        "response": answer,
        "labels": f"<answer>{gold}</answer>",
        "logprobs": None,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"<image>{problem}"},
            {"role": "assistant", "content": answer},
        ],
        "images": [{"bytes": None, "path": str(folder / name)}],
        "dataset": "set.jsonl",
    } | changed


def evaluate(folder: Path, lines: list[dict], gold: str = "set.jsonl"):
    file = write(folder / "p.jsonl", lines)
    command = ["eval", "--predictions", str(file), "--gold", gold, "--task", "classification"]
    return CliRunner().invoke(app, [*command, "--json", "--bootstrap", "0"])


def accuracy(folder: Path, lines: list[dict], gold: str = "set.jsonl") -> float:
    result = evaluate(folder, lines, gold)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["metrics"]["accuracy"]["value"]


EVERY = list(range(len(ROWS)))
NAMED = {
    "absolute": lambda folder, name: str(folder / name),
    "relative": lambda folder, name: name,
    "of another machine": lambda folder, name: f"/mnt/data/{name}",
    "of Windows": lambda folder, name: "C:\\data\\" + name.replace("/", "\\"),
    "not normal": lambda folder, name: f"{folder}/x/.././{name}",
    "text": lambda folder, name: str(folder / name),
    "copied under its hash": lambda folder, name: copied(folder, name),
    "named by its hash": lambda folder, name: f"/gone/{sha256(folder / name)[:32]}",
    "base64": lambda folder, name: "data:image/png;base64," + base64_of(folder / name),
}


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def base64_of(file: Path) -> str:
    import base64

    return base64.b64encode(file.read_bytes()).decode()


def copied(folder: Path, name: str) -> str:
    file = folder / f"copy-{name.replace('/', '-')}.bin"
    file.write_bytes((folder / name).read_bytes())
    return str(file)


@pytest.mark.parametrize("order", ["as they are", "reversed", "one left out", "a few"])
@pytest.mark.parametrize("naming", NAMED)
@pytest.mark.parametrize("labels", [True, False])
def test_pictures_by_any_name_find_their_rows(folder, naming, order, labels):
    chosen = {
        "as they are": EVERY,
        "reversed": EVERY[::-1],
        "one left out": [n for n in EVERY if n != 2],
        "a few": [6, 0, 3],
    }[order]
    lines = []
    for n in chosen:
        path = NAMED[naming](folder, ROWS[n][0])
        image = path if naming in ("text", "base64") else {"bytes": None, "path": path}
        lines.append(infer_line(folder, n, images=[image], **({} if labels else {"labels": None})))
    assert accuracy(folder, lines) == pytest.approx(len(chosen) / len(ROWS))


@pytest.mark.parametrize(
    "labels",
    [
        *("{gold}", " {gold}\n", "<answer>{GOLD}</answer>", '"{gold}"', "", None),
        "<think>x</think>\n<answer>'{gold}'</answer>",
    ],
)
def test_gold_in_another_form_is_the_same_gold(folder, labels):
    lines = [
        infer_line(
            folder,
            n,
            labels=labels and labels.format(gold=ROWS[n][2], GOLD=ROWS[n][2].upper()),
        )
        for n in EVERY[::-1]
    ]
    assert accuracy(folder, lines) == 1.0


def test_one_question_twice_with_another_gold_is_told_apart_by_the_gold(folder):
    twice = [("a/0.png", COLOUR, gold) for gold in ("red", "crimson", "red")]
    write(
        folder / "twice.jsonl",
        [{"image": name, "problem": q, "solution": gold} for name, q, gold in twice],
    )
    lines = [
        infer_line(folder, 0, said, labels=gold)
        for said, gold in (("crimson", "crimson"), ("red", "red"), ("no", "red"), ("more", "red"))
    ]
    summary = json.loads(evaluate(folder, lines, "twice.jsonl").stdout)
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert summary["named"] == {"duplicates, of which the first counts": ["line 4"]}
    # Without the gold nothing tells which of the three a line answers.
    result = evaluate(folder, [line | {"labels": None} for line in lines], "twice.jsonl")
    assert result.exit_code == 2 and "line 1 of the predictions could be of 3 rows" in result.output


def test_what_is_left_out_and_what_is_of_another_set_are_named(folder):
    lines = [infer_line(folder, n) for n in (6, 5, 0)]
    lines.insert(1, infer_line(folder, 0, images=["/data/train/77.png"]))
    lines.append(infer_line(folder, 3, messages=[{"role": "user", "content": "Is it round?"}]))
    lines.append(infer_line(folder, 6, said="red"))
    summary = json.loads(evaluate(folder, lines).stdout)
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(3 / 7)
    assert summary["named"] == {
        "rows missing from the predictions, scored as unanswered": ["1", "2", "3", "4"],
        "rows that the data set does not have, left out": [
            "line 2: /data/train/77.png",
            f"line 5: {folder}/b/1.png",
        ],
        "duplicates, of which the first counts": ["line 6"],
    }


NOTHING = {"images": [], "labels": None, "messages": []}
BYTES = {"images": [{"bytes": "<<<bytes>>>", "path": None}]}  # ms-swift on a Parquet set
SHOWN = {"images": ["<PIL.Image.Image image mode=RGB size=8x8 at 0x7F1A6994E410>"]}


RENAMED = {"images": ["/cache/x.png"]}


@pytest.mark.parametrize("what", [NOTHING, BYTES, SHOWN, {"images": []}, RENAMED])
def test_order_is_used_where_it_is_all_there_is_and_it_is_said(folder, what):
    lines = [infer_line(folder, n) | what for n in EVERY]
    result = evaluate(folder, lines)
    summary = json.loads(result.stdout)
    assert summary["metrics"]["accuracy"]["value"] == 1.0
    assert sum("by their order" in note for note in summary["notes"]) == 1
    for fewer in (lines[:-1], lines[1:], [*lines, lines[0]]):
        refused = evaluate(folder, fewer)
        assert refused.exit_code == 2, refused.output
        assert len(refused.output.strip().splitlines()) == 1
        assert f"{len(fewer)} answers are not the 7 rows" in refused.output


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        # Without pictures: the gold of another order, of one shifted row.
        ([(n, BYTES) for n in EVERY[::-1]], "is not in the place of its row"),
        ([(n, BYTES) for n in [*EVERY[1:], 0]], "is not in the place of its row"),
        # The picture's name is in the set, its gold is not: 0.png of another split.
        ([(0, {"labels": "purple"})], "answers the gold 'purple', but row 0 of set.jsonl"),
        ([(1, {"labels": "red"})], "answers the gold 'red', but row 1 of set.jsonl"),
        # The number of a row, and another row's question, picture, gold.
        ([(0, {"id": "1"} | BYTES | {"labels": None})], "was asked 'What colour is it?'"),
        ([(2, {"id": "0"} | BYTES)], "answers the gold 'blue', but row 0 of set.jsonl"),
        ([(0, {"images": ["/x/77.png"]})], "names the image '/x/77.png', which no row has"),
        # As many as rows, but of pictures that no row has: of another split, for all that is said.
        ([(n, RENAMED | {"labels": None}) for n in EVERY], "which no row has, and no id"),
        ([(0, NOTHING)], "names no id or image of a row"),
        ([(0, {"messages": [{"role": "user", "content": "Why?"}]})], "no prediction is of a row"),
    ],
)
def test_contradictions_are_refused_in_one_line(folder, lines, said):
    result = evaluate(folder, [infer_line(folder, n) | changed for n, changed in lines])
    assert result.exit_code == 2, result.output
    assert said in result.output and len(result.output.strip().splitlines()) == 1


def test_files_of_one_name_in_other_splits_are_other_pictures(folder):
    write(
        folder / "val.jsonl",
        [
            {"image": f"images/val2017/{n}.png", "problem": COLOUR, "solution": "red"}
            for n in (1, 2)
        ],
    )
    lines = [
        infer_line(folder, 0, images=[f"/mnt/{path}.png"])
        for path in ("train2017/1", "val/1", "other/2", "images/train/2")
    ]
    summary = json.loads(evaluate(folder, lines, "val.jsonl").stdout)
    assert summary["metrics"]["accuracy"]["value"] == 1.0
    assert summary["named"] == {
        "rows that the data set does not have, left out": [
            "line 1: /mnt/train2017/1.png",
            "line 4: /mnt/images/train/2.png",
        ]
    }


def test_ids_are_the_sets_own_or_numbers_of_rows(folder):
    lines = [{"id": n, "completion": infer_line(folder, n)["response"]} for n in EVERY]
    assert accuracy(folder, lines[::-1]) == 1.0
    rows = [json.loads(line) for line in (folder / "set.jsonl").read_text().splitlines()]
    # The set's own ids count from 1: an id is no number of a row.
    write(folder / "ids.jsonl", [row | {"id": n + 1} for n, row in enumerate(rows)])
    shifted = [line | {"id": line["id"] + 1} for line in lines]
    assert accuracy(folder, shifted[::-1], "ids.jsonl") == 1.0
    wrong = evaluate(folder, [shifted[0] | {"prompt": SHAPE}], "ids.jsonl")
    assert wrong.exit_code == 2 and "which has its id, has 'What colour" in wrong.output
    # Our own predictions of a set that has lost its first row since: pictures beat numbers.
    ours = [
        line | {"row": line["id"], "prompt": ROWS[n][1], "image": str(folder / ROWS[n][0])}
        for n, line in enumerate(lines)
    ]
    write(folder / "less.jsonl", rows[1:])
    summary = json.loads(evaluate(folder, ours, "less.jsonl").stdout)
    assert summary["metrics"]["accuracy"]["value"] == 1.0 and summary["rows"] == 6
    assert summary["problems"]["ids that number another row than image and question name"] == 6


def test_ms_swifts_log_is_paired_where_question_and_gold_tell(folder):
    chat = "<|im_start|>user\n<|vision_start|>[151655 * 4]<|vision_end|>{}<|im_end|>\n"
    asked = [ROWS[n] for n in (5, 1, 2)]
    log = {
        "completion": [f"<think>t</think><answer>{gold}</answer>" for _, _, gold in asked],
        "prompt": [chat.format(problem) for _, problem, _ in asked],
        "solution": [gold for _, _, gold in asked],
        "step": ["1"] * 3,
    }
    assert accuracy(folder, [log]) == pytest.approx(3 / 7)
    log["solution"][0] = log["solution"][2] = "red"  # three rows ask this with that gold
    log["prompt"][0] = log["prompt"][2]
    assert "could be of 3 rows" in evaluate(folder, [log]).output


def test_results_on_a_parquet_set_are_paired_by_the_names_stored_in_it(tmp_path):
    from swift_vlrft.demo.data import write_parquet
    from swift_vlrft.demo.tasks import known_task

    rows = known_task("colours").make(random.Random(0), 6)
    write_parquet(rows, tmp_path / "set")
    lines = [
        {
            "response": f"<think>t</think>{row.solution}",
            "labels": None,
            "messages": [{"role": "user", "content": f"<image>{row.problem}"}],
            "solution": row.solution,
            "images": [{"bytes": "<<<bytes>>>", "path": f"{n:06}.png"}],
        }
        for n, row in enumerate(rows)
    ]
    assert accuracy(tmp_path, lines[::-1], str(tmp_path / "set")) == 1.0
    assert accuracy(tmp_path, lines[:2] + lines[3:], str(tmp_path / "set")) == pytest.approx(5 / 6)
    # Alone, too: rows without a name of their picture are pictures of their own.
    for line in lines:
        line["images"] = [{"bytes": "<<<bytes>>>", "path": None}]
    file = write(tmp_path / "p.jsonl", lines)
    command = ["eval", "--predictions", str(file), "--task", "classification", "--json"]
    assert json.loads(CliRunner().invoke(app, command).stdout)["images"] == 6


def test_results_on_coco_annotations_are_paired_by_the_files_name(tmp_path):
    from swift_vlrft.datasets.build import PROMPT

    images = [{"id": 7 + n, "file_name": f"{n}.jpg", "width": 100, "height": 50} for n in (0, 1)]
    boxes = [
        {"id": n, "image_id": 7 + n, "category_id": 1, "bbox": [0, 0, 50, 25], "area": 1250}
        for n in (0, 1)
    ]
    gold = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "dog"}]}
    (tmp_path / "instances.json").write_text("\ufeff" + json.dumps(gold), encoding="utf-8")
    right = "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"
    lines = [
        {
            "response": right,
            "solution": right,
            "messages": [{"role": "user", "content": PROMPT.format(category="dog")}],
            "images": [{"bytes": None, "path": f"/data/val/{n}.jpg"}],
        }
        for n in (1, 0, 1)
    ]
    file = write(tmp_path / "p.jsonl", lines)
    command = ["eval", "--predictions", str(file), "--gold", str(tmp_path / "instances.json")]
    result = CliRunner().invoke(app, [*command, "--task", "detection", "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["metrics"]["AP"]["value"] == 1.0 and summary["rows"] == 2
    assert summary["problems"] == {"duplicates, of which the first counts": 1}


def test_pictures_that_were_turned_for_training_are_the_sets(folder):
    """Copies that training writes upright are named by the hash of what they hold."""
    from swift_vlrft.datasets import open_image

    exif = Image.Exif()
    exif[0x0112] = 6
    for n, (name, _, _) in enumerate(ROWS):
        Image.new("RGB", (20 + n, 10), (n * 20, 0, 0)).save(folder / name, "JPEG", exif=exif)
    lines = []
    for n in EVERY:
        copy = folder / "copy.png"
        open_image({"bytes": None, "path": str(folder / ROWS[n][0])}).save(copy, compress_level=1)
        lines.append(infer_line(folder, n, images=[f"/cache/images/{sha256(copy)[:32]}"]))
    assert accuracy(folder, lines[::-1]) == 1.0


@pytest.mark.parametrize("with_size", [True, False])
def test_answers_in_pixels_are_held_against_gold_in_thousandths(folder, with_size):
    problem = "Find the {}; give its box (between 0 and 1000, integer)."
    boxes = {"dog": [[100, 100, 500, 500]], "cat": [[0, 0, 333, 777]], "cow": [[1, 2, 900, 999]]}
    rows = [
        {"image": "a/0.png", "problem": problem.format(name), "solution": str(box),
         "task": "grounding"}
        for name, box in boxes.items()
    ]  # fmt: skip
    write(folder / "boxes.jsonl", rows)
    lines = []
    for row in reversed(rows):
        prompt, gold = in_box_format(
            row["problem"], row["solution"], "norm1000", "pixels", size=(640, 480),
            to_size=(644, 476),
        )  # fmt: skip
        line = infer_line(
            folder, 0, labels=gold, response=f"<answer>{gold}</answer>", task="grounding",
            messages=[{"role": "user", "content": f"<image>{prompt}"}],
        )  # fmt: skip
        lines.append(line | ({"frame": "pixels", "width": 644, "height": 476} if with_size else {}))
    file = write(folder / "p.jsonl", lines)
    command = ["eval", "--predictions", str(file), "--gold", "boxes.jsonl", "--task", "grounding"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["metrics"]["mean_iou"]["value"] == 1.0 and summary["problems"] == {}
    lines[0]["labels"] = "[[1, 1, 9, 9]]"
    write(file, lines)
    assert "answers the gold '[[1, 1, 9, 9]]'" in CliRunner().invoke(app, command).output


@pytest.mark.parametrize(
    ("shown", "score"),
    [(int, 1.0), (str, 1.0), (float, 1.0), ("{:04d}".format, 1.0), (lambda n: n + 1, None)],
)
def test_ids_number_the_rows_however_they_are_written(folder, shown, score):
    lines = [{"id": shown(n), "completion": f"<answer>{ROWS[n][2]}</answer>"} for n in EVERY[::-1]]
    result = evaluate(folder, lines)
    if score is None:
        assert result.exit_code == 2 and "as if counted from 1" in result.output
    else:
        assert accuracy(folder, lines) == score


def test_a_list_of_completions_and_a_missing_gold_are_told(folder):
    (folder / "p.json").write_text(json.dumps([infer_line(folder, 0)]))
    command = ["eval", "--predictions", "p.json", "--task", "classification"]
    assert "one JSON object per line" in CliRunner().invoke(app, command).output
    file = write(folder / "p.jsonl", [{"id": 0, "completion": "<answer>red</answer>"}])
    result = CliRunner().invoke(app, [*command[:2], str(file), *command[3:]])
    assert result.exit_code == 2 and "with --gold" in result.output


@pytest.mark.parametrize(
    ("said", "problem", "score"),
    [
        ({"frame": "pixels"}, "of which size: write the image's width and height into it", None),
        ({"frame": "cm"}, "unknown box format 'cm'; known: norm1000, pixels", None),
        ({"frame": "unit"}, None, 0.0),
        ({"frame": "pixels", "width": 2560, "height": 1920}, None, 0.0),
        ({"frame": "pixels", "width": 1000, "height": 1000}, None, 1.0),
        ({"frame": "norm1000"}, None, 1.0),
        ({}, None, 1.0),
    ],
)
def test_gold_is_never_held_against_an_answer_in_another_frame(folder, said, problem, score):
    row = {"image": "a/0.png", "problem": "In permille.", "solution": "[[10, 20, 30, 40]]"}
    write(folder / "boxes.jsonl", [row | {"task": "grounding"}])
    line = {"id": 0, "completion": "<answer>[10, 20, 30, 40]</answer>", **said}
    file = write(folder / "p.jsonl", [line])
    command = ["eval", "--predictions", str(file), "--gold", "boxes.jsonl", "--task", "grounding"]
    result = CliRunner().invoke(app, [*command, "--json"])
    if problem is not None:
        assert result.exit_code == 2 and problem in result.output.replace("\n", " ")
    else:
        summary = json.loads(result.stdout)
        assert summary["metrics"]["acc50"]["value"] == score and summary["problems"] == {}


def test_two_files_without_ids_are_compared_by_picture_and_question(folder):
    before = write(folder / "a.jsonl", [infer_line(folder, n, said="x") for n in EVERY if n != 2])
    after = write(folder / "b.jsonl", [infer_line(folder, n) for n in EVERY[::-1] if n != 4])
    command = ["compare", str(before), str(after), "--task", "classification", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["rows"], found["only_a"], found["only_b"]) == (5, 1, 1)
    assert found["metrics"]["accuracy"]["b"] == 1.0 and found["other_prompts"] == 0


# ---- any file of any set ---------------------------------------------------------------------


def known(place: str, image: str | None, question: str, gold: str, number: str | None = None):
    names = () if image is None else (image,)
    return Prediction(
        "", "", gold, prompt=question, place=place, own_id=number, image_names=names
    )  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_answer_is_ever_given_another_rows_gold(data):
    """Sets of few pictures, questions and golds, and answers that say any part of their row: each
    gets a row with its own gold, whatever the order, or none does.
    """
    draw = data.draw
    rows = [
        known(f"row {n}", f"/set/{p}.png", q, g)
        for n, (p, q, g) in enumerate(
            draw(st.lists(st.tuples(*[st.sampled_from("abcd")] * 3), min_size=1, max_size=8))
        )
    ]
    says = draw(st.sets(st.sampled_from(["picture", "question", "gold", "number"])))
    root = draw(st.sampled_from(["/set/", "/other/", ""]))
    order = draw(st.permutations(range(len(rows))))
    asked = order[: draw(st.integers(0, len(rows)))]
    answers = [
        known(
            f"line {n}",
            root + rows[r].image_names[0][5:] if "picture" in says else None,
            rows[r].prompt if "question" in says else "",
            rows[r].solution if "gold" in says else "",
            number=str(r) if "number" in says else None,
        )
        for n, r in enumerate(asked)
    ]
    try:
        made = Pairing(answers, rows)
    except EvaluationError as error:
        assert "\n" not in str(error) and "line " in str(error)
        assert "number" not in says
        return
    whole = [r for r in made.rows if r is not None]
    assert len(whole) == len(set(whole)) and not made.strangers and not made.repeated
    for n, (r, of) in enumerate(zip(made.rows, asked, strict=True)):
        if n in made.in_order:
            assert len(asked) == len(rows) and r == n
        else:
            assert rows[r].solution == rows[of].solution


@pytest.mark.parametrize("size", [20_000])
def test_many_rows_take_seconds(size):
    rng = random.Random(0)
    rows = [
        known(f"row {n}", f"/set/{n}/image.png", rng.choice("pq"), rng.choice("xyz"))
        for n in range(size)
    ]
    answers = [
        known(f"line {n}", f"set/{n}/image.png", f"Say: {rows[n].prompt}", rows[n].solution)
        for n in reversed(range(size))
    ]
    assert Pairing(answers, rows).rows == list(reversed(range(size)))
