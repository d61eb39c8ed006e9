"""Sets in the form that they are published in: a table of records and of what is read from them, in
published_sets.jsonl, and what is done with the sets afterwards.

A line of the table is a set: ``changes`` to the ``record`` of its form make the records. ``reads``
says what rows say, ``bad`` which records are none and what is named, ``left_out`` how many
correctly make no row, and ``refused`` what is named where the file as a whole cannot be used. A
form's first line has its record and its files; the others name what differs from it.
"""

import copy
import json
from pathlib import Path

import pytest
from support.stored_sets import command, picture, train_on, write_table

from swift_vlrft.datasets import DataError, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.training import MADE, with_prompt
from swift_vlrft.evaluation.predictions import Problems
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.report.set_page import page_of
from swift_vlrft.rewards import REWARDS, TASK_NAMES

WIDE = (400, 200)
TABLE = Path(__file__).with_name("published_sets.jsonl").read_text().splitlines()
CASES = list(map(json.loads, TABLE))
FIRST = {case["form"]: case for case in reversed(CASES)}


def changed(record, change):
    """A copy with other values at places such as "images.1.id"; a list's end takes one more."""
    record = copy.deepcopy(record)
    for place, value in change.items():
        *outer, last = place.split(".")
        inner = record
        for name in outer:
            inner = inner[int(name) if isinstance(inner, list) else name]
        if isinstance(inner, list):
            inner[int(last) : int(last) + 1] = [value]
        else:
            inner[last] = value
    return record


def records_of(case):
    record = case.get("record", FIRST[case["form"]]["record"])
    records = [changed(record, change) for change in case.get("changes", [{}])]
    for one in records:
        image = one.get("image")
        if isinstance(image, dict) and image["bytes"] == "0.png":
            one["image"] = {"bytes": picture(size=WIDE), "path": "0.png"}
    return records


FORMS = {name: records_of(case) for name, case in FIRST.items()}


def write(folder, case):
    """The files of a case, or of a form's name and changes; the one that is opened."""
    case = FIRST[case["form"]] | case
    for name, size in case.get("pictures", {"0.png": WIDE}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(size=tuple(size)))
    for name, content in case.get("beside", {}).items():
        (folder / name).write_text(json.dumps(content))
    records, file = records_of(case), folder / case["file"]
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        return write_table(file, records)
    if file.suffix == ".jsonl":
        file.write_text("\n".join(map(json.dumps, records)))
        return file
    if "within" in case:  # the records are in an object, or the record is the whole file
        records = {case["within"]: records} if case["within"] else records[0]
    file.write_text(json.dumps(records))
    return file


def boxes_of(row):
    return read_boxes(gold_text(row.solution)).boxes


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['form']}: {case['why']}")
def test_records_of_every_form_are_read_as_the_table_says(case, tmp_path):
    path, bad = write(tmp_path / "set", case), case.get("bad", {})
    if "refused" in case:
        for use in (read_rows, lambda path: train_on(path, tmp_path)[0]):
            with pytest.raises(DataError) as error:
                list(use(path))
            assert case["refused"] in str(error.value)
        commands, out = [["check", path]], tmp_path / "out"
        if case["form"] == "coco":  # nothing of its rows can be used
            commands += [["convert", path, out], ["show", path, "--out", out]]
            commands += [["coco", path, path.parent, out, "--categories", "dog"]]
        for words in commands:
            code, said = command("data", *words)
            assert code > (case["form"] == "coco") and case["refused"] in said, (words, said)
            assert not out.exists()
        return
    report = check_set(path)
    problems = {str(one.place.row): one.problem for one in report.problems}
    assert problems.keys() == bad.keys() and report.left_out == case.get("left_out", 0)
    assert all(bad[row] in problem for row, problem in problems.items()), problems
    rows = [row for row in read_rows(path, keep_going=True) if str(row.place.row) not in bad]
    assert (report.rows, report.good) == (len(rows) + len(bad), len(rows)) and rows
    for row, reads in zip(rows, case.get("reads", [{}] * len(rows)), strict=True):
        gold = gold_text(row.solution)
        assert reads.get("answer", gold) == gold
        assert reads.get("solution", row.solution) == row.solution
        assert "boxes" not in reads or boxes_of(row) == [tuple(box) for box in reads["boxes"]]
        assert reads.get("asks", "") in row.problem
        for name, value in reads.get("columns", {}).items():
            assert row.columns.get(name) == value, name
    page_of(rows, "set")
    trained, told = train_on(path, tmp_path / "cache")
    assert list(map(str, told.problems)) == list(map(str, report.problems))
    written = convert_folder(path, tmp_path / "out", keep_going=True)
    assert (written.rows, sum(written.counts.values())) == (len(rows), report.left_out)
    copied = list(read_rows(tmp_path / "out"))
    assert len(trained) == len(rows)
    for row, third in zip(trained, copied, strict=True):
        if third.columns["frame"] == row["frame"]:  # conversion leaves pixels as they are
            assert row["messages"] == with_prompt(third)
            assert row["solution"] == third.solution
        assert further(row) == further(third.columns)


def further(columns):
    """The columns that rewards get besides those that every row has."""
    held = {name for name, value in columns.items() if value is not None}
    return held - {*MADE, "width", "height"}


def test_sets_of_all_forms_train_in_one_run(tmp_path):
    from datasets import concatenate_datasets

    cases = [*FIRST.values(), {"form": "docvqa", "changes": [{"answers": ["a"]}]}]  # no aliases
    paths = [write(tmp_path / str(n), case) for n, case in enumerate(cases)]
    sets = [train_on(path, tmp_path / "cache")[0] for path in paths]
    assert len(concatenate_datasets(sets)) == sum(map(len, sets)) > len(cases)


@pytest.mark.parametrize(
    ("box_format", "point"),
    [("pixels", (200, 150)), ("unit", (0.5, 0.75)), ("yx1000", (500, 750))],
)
def test_clicks_are_asked_for_in_every_box_format(box_format, point, tmp_path):
    path = write(tmp_path / "set", {"form": "screenspot"})
    assert command("data", "convert", f"{path}:{box_format}", tmp_path / "out")[0] == 0
    (row,) = read_rows(tmp_path / "out")
    assert row.columns["frame"] == box_format
    assert "between 0 and 1000" not in row.problem or box_format == "yx1000"
    answer = {"point": point[::-1]} if box_format == "yx1000" else {"point_2d": point}
    text = f"<think>t</think><answer>{json.dumps([answer])}</answer>"
    assert REWARDS["vlrft_pointing"]([text], [row.solution]) == [1.0]


def test_columns_of_our_own_stay_what_they_are(tmp_path):
    """Whoever wrote problem and solution beside the published columns means those."""
    ours = {"problem": "What?", "solution": "rose", "image": {"bytes": picture(), "path": None}}
    for name, (record, *_) in FORMS.items():
        if {"question", "instruction", "text"} & record.keys() and name != "lisa":
            (row,) = read_rows(write_table(tmp_path / "a.parquet", [record | ours]))
            assert (row.problem, row.solution, row.columns["task"]) == ("What?", "rose", None), name


# ---- several files of a set --------------------------------------------------------------------


def test_images_of_the_own_json_below_a_root(tmp_path, monkeypatch):
    path = write(tmp_path / "s", next(c for c in CASES if c.get("file", "").startswith("spdoc")))
    moved = path.rename(tmp_path / "train.json")
    assert len(list(read_rows(moved, root=tmp_path / "s"))) == 1
    for root, good in (("s/spdocvqa_images", 1), ("none", 0)):
        monkeypatch.setenv("ROOT_IMAGE_DIR", str(tmp_path / root))
        assert check_set(moved).good == good


def test_a_folder_of_the_own_json_has_its_splits(tmp_path):
    path = write(tmp_path / "s", {"form": "docvqa-own"})
    content = json.loads(path.read_text())
    (path.parent / "val_v1.0_withQT.json").write_text(json.dumps(content))
    content["data"][0].pop("answers")
    (path.parent / "test_v1.0.json").write_text(json.dumps(content))
    assert splits_of(path.parent) == ["train", "validation", "test"]
    code, said = command("data", "check", path.parent, "--json")
    assert code == 0 and json.loads(said)["good"] == 2 and "1 times" in said


@pytest.mark.parametrize(
    ("names", "images", "form"),
    [
        ("screenspot_desktop_v2.json screenspot_web_v2.json", "screenspotv2_image", "-v2"),
        ("screenspot_mobile.json screenspot_web.json", "screenspot_imgs", "-v2"),
        ("annotations/vscode_macos.json annotations/excel_macos.json", "images", "-pro"),
    ],
)
def test_a_folder_of_screenspots_json_is_one_set(names, images, form, tmp_path):
    for name in names.split():
        pictures = {f"{images}/0.png": WIDE}
        case = {"form": f"screenspot{form}", "file": name, "pictures": pictures}
        folder = write(tmp_path, case | {"changes": [{}, {}]}).parent
    assert check_set(folder).good == 4
    (folder / "notes.json").write_text('[{"question": "a"}]')
    with pytest.raises(DataError, match="notes.json"):
        open_set(folder)


# ---- gRefCOCO --------------------------------------------------------------------------------


def refs(folder):
    """Phrases for one, for none, and for two objects, of three splits, beside instances.json."""
    phrases = [
        ([11], "train"),
        ([-1], "train"),
        ([11, 12], "train"),
        ([12], "val"),
        ([-1], "testA"),
    ]
    changes = [
        {
            "ann_id": ids, "split": split, "no_target": ids == [-1],
            "sentences": [{"sent_id": 10 * n + k, "sent": f"dog {n} {k}"} for k in range(2)],
        }
        for n, (ids, split) in enumerate(phrases)
    ]  # fmt: skip
    return write(folder, {"form": "grefcoco", "changes": changes})


def test_grefcoco_has_its_splits_and_asks_alike_for_what_is_not_there(tmp_path):
    path = refs(tmp_path / "g")
    rows = list(read_rows(path))
    # What is asked of a phrase without a target tells nothing of it.
    assert rows[0].problem.replace("dog 0 0", "dog 1 0") == rows[2].problem
    assert splits_of(path) == ["train", "validation", "test"]
    for name in ("val", "test", "testA"):
        assert len(list(read_rows(path, split=name))) == 2
    with pytest.raises(DataError, match="'testB'"):
        open_set(path, split="testB")
    assert command("data", "convert", f"{path}:pixels", tmp_path / "out")[0] == 0
    assert splits_of(tmp_path / "out") == ["train", "validation", "test"]
    assert boxes_of(next(read_rows(tmp_path / "out"))) == [(40, 20, 120, 80)]


# ---- evaluation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "split", "asked"),
    [
        ("grounding", "train", ["dog 0 0", "dog 0 1", "dog 1 0", "dog 1 1"]),
        ("detection", "train", ["dog 0 0", "dog 0 1", "dog 1 0", "dog 1 1", "dog 2 0", "dog 2 1"]),
        ("grounding", None, ["dog 4 0", "dog 4 1"]),  # test is evaluated where it is there
    ],
)
def test_an_evaluation_asks_the_phrases_of_its_task_and_split(task, split, asked, tmp_path):
    settings, problems = Settings("", refs(tmp_path / "g"), task, split=split), Problems()
    rows = [query.row for query in QuerySet(settings).read(problems)]
    assert [row.problem.split("describe")[1].split("\n")[0].split(": ")[1] for row in rows] == asked
    assert all(("all objects" in row.problem) == (task == "detection") for row in rows)
    assert all(TASK_NAMES[task].read_gold(row.solution) is not None for row in rows)
    assert not problems.counts


@pytest.mark.parametrize(
    ("form", "change", "answers", "metrics"),
    [
        (
            "screenspot-v2",
            {},
            ["[500, 750]", "(250, 500)", "[200, 150]", "[500, 750], [500, 760]"],
            {"point_accuracy": 0.5},
        ),
        (
            "docvqa",  # the nearest of all answers counts, and for exact_match the case of "x"
            {"answers": ["ITC Limited", "Acme", "x"]},
            ["itc limited", "Acma", "x", "q"],
            {"anls": (1 + 0.75 + 1 + 0) / 4, "exact_match": 0.25},
        ),
        ("textvqa-own", {}, ["nous", "?"], {"exact_match": 0.5}),
    ],
)
def test_published_questions_are_evaluated_with_their_own_metric(
    form, change, answers, metrics, tmp_path
):
    gold = write(tmp_path / "s", {"form": form, "changes": [change] * len(answers)})
    task = "pointing" if form.startswith("screenspot") else "ocr"
    lines = [
        json.dumps({"id": str(n), "completion": f"<think>t</think><answer>{text}</answer>"})
        for n, text in enumerate(answers)
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    words = ["eval", "--predictions", tmp_path / "p.jsonl", "--gold", gold, "--join", "id"]
    code, said = command(*words, "--task", task, "--out", tmp_path / "out", "--json")
    assert code == 0, said
    values = {name: one["value"] for name, one in json.loads(said)["metrics"].items()}
    assert {name: values[name] for name in metrics} == pytest.approx(metrics)
