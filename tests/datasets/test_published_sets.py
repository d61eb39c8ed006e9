"""Sets in the form that they are published in: GUI instructions, phrases for one object, several or
none, questions about text, counts. What is checked is what rows say, against arithmetic done here.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stored_sets import picture
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import BadRow, DataError, read_rows
from swift_vlrft.datasets.opening import open_set, splits_of
from swift_vlrft.datasets.read import rows_of
from swift_vlrft.datasets.report import Report
from swift_vlrft.datasets.training import LoadOptions, streamed_rows, training_set
from swift_vlrft.evaluation.predictions import Problems
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.rewards import REWARDS, TASK_NAMES

WIDE = (400, 200)


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


def image():
    return {"bytes": picture(size=WIDE), "path": "0.png"}


def parquet(folder, rows, name="train"):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}-00000-of-00001.parquet")
    return folder


def in_json(folder, rows, name="set.json"):
    folder.mkdir(exist_ok=True)
    (folder / "0.png").write_bytes(picture(size=WIDE))
    (folder / name).write_text(json.dumps(rows))
    return folder / name


# ---- the forms -------------------------------------------------------------------------------

CLICK = {"instruction": "close the window", "data_type": "icon", "data_source": "windows"}
ON_HUB = CLICK | {"image": image(), "file_name": "0.png", "bbox": [0.25, 0.5, 0.75, 1.0]}
SEECLICK = CLICK | {"img_filename": "0.png", "bbox": [100, 100, 200, 100]}
PRO = {
    "img_filename": "0.png", "bbox": [100, 100, 300, 200], "instruction": "close the window",
    "img_size": list(WIDE), "application": "vscode", "ui_type": "icon", "id": "vscode_0",
}  # fmt: skip
DOC = {
    "questionId": "9", "question": "Which company is it?", "docId": 3, "data_split": "val",
    "image": image(), "answers": ["ITC  Limited", "ITC", "itc limited"],
}  # fmt: skip
TEXT = {
    "question_id": 34602, "image_id": "003a8ae2", "question": "which brand?", "image": image(),
    "answers": ["nous", "Dakota", "dakota", "dakota digital"],
}  # fmt: skip
OWN_DOC = {  # docvqa.org's own JSON
    "questionId": 337, "question": "what is the date?", "question_types": ["form"], "docId": 279,
    "image": "documents/xnbl0037_1.png", "ucsf_document_id": "xnbl0037",
    "ucsf_document_page_no": "1", "answers": ["1/8/93"], "data_split": "train",
}  # fmt: skip
OWN_INFO = {
    "questionId": 65718, "question": "Which fonts?", "image_local_name": "20471.jpeg",
    "image_url": "https://example.com/1.png", "ocr_output_file": "20471.json",
    "answers": ["serif fonts"], "data_split": "train",
}  # fmt: skip
OWN_TEXT = {  # textvqa.org's own JSON
    "question_id": 0, "question": "which brand?", "question_tokens": ["which", "brand"],
    "image_id": "0054c91397f2fe05", "image_classes": ["Camera"], "image_width": 400,
    "image_height": 200, "flickr_300k_url": "u", "answers": ["dakota"] * 9 + ["nous"],
    "set_name": "train",
}  # fmt: skip
COUNT_QA = {"image": image(), "text": "six owls", "question": "How many owls?", "number": 6}
COUNT = {"image": image(), "image_url": "u", "text": "Set of Six owls, and six eggs", "number": 6}

V2 = CLICK | {"image": image(), "bbox": [100, 100, 200, 100]}  # lmms-lab/ScreenSpot-v2

FORMS = {
    "screenspot": (ON_HUB, "pointing", [(250, 500, 750, 1000)]),
    "screenspot-v2": (SEECLICK, "pointing", [(250, 500, 750, 1000)]),
    "screenspot-v2-hub": (V2, "pointing", [(250, 500, 750, 1000)]),
    "screenspot-pro-hub": (PRO | {"image": image()}, "pointing", [(250, 500, 750, 1000)]),
    "screenspot-pro": (PRO, "pointing", [(250, 500, 750, 1000)]),
    "docvqa": (DOC, "ocr", "ITC Limited"),
    "textvqa": (TEXT, "ocr", "Dakota"),
    "countbenchqa": (COUNT_QA, "counting", 6),
    "countbench": (COUNT, "counting", 6),
}


def write(folder, name, *changes):
    record = FORMS[name][0]
    rows = [record | change for change in changes or ({},)]
    return parquet(folder, rows) if "image" in record else in_json(folder, rows)


@pytest.mark.parametrize("name", FORMS)
def test_a_published_record_is_a_row_whose_gold_answer_earns_one(name, tmp_path):
    record, task, gold = FORMS[name]
    path = write(tmp_path / "set", name)
    (row,) = read_rows(path)
    found = TASK_NAMES[task].read_gold(row.solution)
    assert row.columns["task"] == task and (found.boxes if task == "pointing" else found) == gold
    assert record.get("question", record.get("instruction", "")) in row.problem
    assert "<answer>" in row.problem and "</think>" in row.problem
    code, said = run("data", "check", path, "--json")
    report = json.loads(said)
    assert code == 0 and report["good"] == 1 and report["tasks"] == {task: 1}, said
    code, said = run("data", "convert", path, tmp_path / "made")
    assert code == 0, said
    (copy,) = read_rows(tmp_path / "made")
    assert (copy.problem, copy.solution) == (row.problem, row.solution)
    assert run("data", "show", path, "--out", tmp_path / "page.html")[0] == 0
    options = LoadOptions(cache=tmp_path / "cache")
    made, _ = training_set(open_set(path), options)
    assert made["solution"][:] == [row.solution] and made["task"][:] == [task]
    assert made["messages"][0][0]["content"] == f"<image>{row.problem}"


def test_sets_of_all_forms_train_in_one_run(tmp_path):
    from datasets import concatenate_datasets

    rec = {"id": 1, "image": "0.png", "conversations": [
        {"from": "human", "value": "Where?"}, {"from": "gpt", "value": "[1, 2, 30, 40]"},
    ]}  # fmt: skip
    paths = [write(tmp_path / name, name) for name in FORMS]
    paths.append(write(tmp_path / "one", "docvqa", {"answers": ["a"]}))  # no aliases in it
    paths += [refs(tmp_path / "g"), in_json(tmp_path / "rec", [rec])]
    options = LoadOptions(cache=tmp_path / "cache")
    sets = [training_set(open_set(path), options)[0] for path in paths]
    assert len(concatenate_datasets(sets)) == len(FORMS) + 1 + 6 + 1


def test_a_stream_of_each_set_is_the_set(tmp_path):
    paths = [write(tmp_path / name, name) for name in FORMS]
    paths += [
        refs(tmp_path / "g"),
        *(own_json(tmp_path / f"{n}", *p) for n, p in enumerate(LAYOUTS)),
    ]
    options = LoadOptions(cache=tmp_path / "cache")
    for path in paths:
        made, _ = training_set(open_set(path), options)
        streamed = list(streamed_rows(rows_of(open_set(path)), options, Report(path)))
        for row, other in zip(streamed, made, strict=True):
            for key in ("messages", "solution", "task", "aliases"):
                assert row.get(key) == other.get(key), path
            assert row["images"][0]["bytes"]


@pytest.mark.parametrize("name", [name for name in FORMS if FORMS[name][1] == "pointing"])
@pytest.mark.parametrize("box_format", ["pixels", "unit", "yx1000"])
def test_clicks_are_asked_for_in_every_box_format(name, box_format, tmp_path):
    path = write(tmp_path / "set", name)
    code, said = run("data", "convert", f"{path}:{box_format}", tmp_path / "made")
    assert code == 0, said
    (row,) = read_rows(tmp_path / "made")
    assert (
        row.columns["frame"] == box_format
        and "between 0 and 1000" not in row.problem
        or (box_format == "yx1000")
    )
    x = {"pixels": 200, "unit": 0.5, "yx1000": 500}[box_format]
    y = {"pixels": 150, "unit": 0.75, "yx1000": 750}[box_format]
    point = {"point": [y, x]} if box_format == "yx1000" else {"point_2d": [x, y]}
    answer = f"<think>t</think><answer>{json.dumps([point])}</answer>"
    assert REWARDS["vlrft_pointing"]([answer], [row.solution]) == [1.0]


def test_the_most_frequent_answer_is_the_solution_and_the_others_are_aliases(tmp_path):
    answers = [["a", "B", "b"], ["x", "y"], [" one ", "one"], ["q"]]
    rows = list(read_rows(write(tmp_path / "s", "docvqa", *({"answers": a} for a in answers))))
    assert [gold_text(row.solution) for row in rows] == ["B", "x", "one", "q"]
    assert [row.columns["aliases"] for row in rows] == [["a", "b"], ["y"], None, None]
    assert [row.columns["question_id"] for row in rows] == ["9"] * 4


@pytest.mark.parametrize("text", ["ITC Limited", "ITC", "itc limited"])
def test_every_answer_of_a_question_earns_one_in_training(text, tmp_path):
    made, _ = training_set(open_set(write(tmp_path / "s", "docvqa")), LoadOptions(cache=tmp_path))
    columns = {name: made[name][:] for name in ("solution", "aliases", "task")}
    for name in ("vlrft_ocr", "vlrft_ocr_exact"):
        assert REWARDS[name]([f"<think>t</think><answer>{text}</answer>"], **columns) == [1.0]


def test_a_caption_asks_for_its_number_without_saying_it(tmp_path):
    rows = [{"text": "A dozen, 2 or two of 22", "number": 2}, {"text": "TEN pins", "number": 10}]
    first, second = read_rows(write(tmp_path / "s", "countbench", *rows))
    assert "A dozen, ___ or ___ of 22\n" in first.problem and ": ___ pins\n" in second.problem


@pytest.mark.parametrize("missing", [None, [], ["", " "]])
def test_questions_of_a_test_split_make_no_row_and_are_counted(missing, tmp_path):
    rows = [DOC, DOC | {"answers": missing}]
    path = in_json(tmp_path / "s", [row | {"image": "0.png"} for row in rows])
    code, said = run("data", "check", path, "--json")
    assert code == 0 and json.loads(said)["good"] == 1
    assert "1 times a question without an answer makes no row" in said


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("screenspot", {"bbox": [0.5, 0.5, 0.25, 1.0]}, "has no area"),
        ("screenspot", {"bbox": [0.5, 0.5, 1.0]}, "four numbers are needed"),
        ("screenspot-v2-hub", {"bbox": [100, 100, 400, 200]}, "as x, y, width, height reaches"),
        ("screenspot", {"bbox": [-0.5, 0.5, 0.75, 1.0]}, "reaches beyond the image"),
        ("screenspot", {"instruction": " "}, "the instruction is ' '; a text is needed"),
        ("screenspot-v2", {"bbox": [300, 100, 200, 50]}, "reaches beyond the image of 400 x 200"),
        ("screenspot-v2", {"bbox": [300, 100, 0, 50]}, "has no area"),
        ("screenspot-v2", {"bbox": None}, "the bbox is None"),
        ("screenspot-v2", {"img_filename": "no.png"}, "no.png does not exist"),
        ("screenspot-v2", {"img_filename": None}, "the image is None"),
        ("screenspot-pro", {"img_size": [0, 9]}, "the img_size is [0, 9]"),
        ("screenspot-pro", {"img_size": "big"}, "the img_size is big"),
        ("screenspot-pro", {"bbox": [100, 100, 500, 200]}, "reaches beyond the image of 400 x 200"),
        ("docvqa", {"question": None}, "the question is 'None'; a text is needed"),
        ("textvqa", {"question": ""}, "the question is ''"),
        ("countbench", {"number": 7}, "does not say the number 7"),
        *(
            ("countbenchqa", {"number": number}, f"the number is {number}; a whole number from 0")
            for number in (None, float("nan"), float("inf"), -float("inf"), 2.5, -1.0, 1e-9)
        ),
        ("countbench", {"number": float("nan")}, "the number is nan; a whole number from 0 up"),
        ("countbench", {"image": None}, "the image is None"),
        ("countbenchqa", {"question": ""}, "the question is ''"),
    ],
)
def test_a_bad_record_is_named_by_file_and_row(name, change, said, tmp_path):
    path = write(tmp_path / "s", name, {}, change)
    good, bad = read_rows(path, keep_going=True)
    assert isinstance(bad, BadRow) and said in bad.problem and bad.place.row == 1
    assert not isinstance(good, BadRow) and ", row 1: " in str(bad)
    assert run("data", "check", path)[0] == 1


def test_a_screenshot_of_another_size_than_stated_is_a_bad_row(tmp_path):
    path = write(tmp_path / "s", "screenspot-pro", {"img_size": [800, 200]})
    code, said = run("data", "check", path, "--json")
    assert code == 1 and "is 400x200, but the annotations say 800x200" in said, said


@pytest.mark.parametrize("name", FORMS)
def test_columns_of_our_own_stay_what_they_are(name, tmp_path):
    """Whoever wrote problem and solution beside the published columns means those."""
    change = {"problem": "What?", "solution": "rose", "image": image()}
    (row,) = read_rows(parquet(tmp_path / "s", [FORMS[name][0] | change]))
    assert (row.problem, row.solution, row.columns["task"]) == ("What?", "rose", None)


# ---- annotations beside folders of images ------------------------------------------------------

OWN = {
    "docvqa": (OWN_DOC, "{}_v1.0_withQT.json"),
    "infographics": (OWN_INFO, "infographicsVQA_{}_v1.0.json"),
    "textvqa": (OWN_TEXT, "TextVQA_0.5.1_{}.json"),
}
LAYOUTS = [
    ("docvqa", "", "documents/xnbl0037_1.png"),
    ("docvqa", "spdocvqa_qas", "spdocvqa_images/xnbl0037_1.png"),
    ("docvqa", "qas", "images/documents/xnbl0037_1.png"),
    ("infographics", "", "20471.jpeg"),
    ("infographics", "infographicsvqa_qas", "infographicsvqa_images/20471.jpeg"),
    ("textvqa", "", "train_images/0054c91397f2fe05.jpg"),
    ("textvqa", "annotations", "train_images/0054c91397f2fe05.jpg"),
    ("textvqa", "", "train_val_images/train_images/0054c91397f2fe05.jpg"),
]


def own_json(folder, name, annotations, image, splits=("train",)):
    """The set's own files, the test split without answers, with an image where people unpack it."""
    record, file = OWN[name]
    (folder / image).parent.mkdir(parents=True, exist_ok=True)
    (folder / image).write_bytes(picture(size=WIDE))
    (folder / annotations).mkdir(exist_ok=True)
    for split in splits:
        of_split = record if split != "test" else {k: record[k] for k in record if k != "answers"}
        content = {"dataset_name": name, "dataset_version": "1.0", "data": [of_split] * 2}
        (folder / annotations / file.format(split)).write_text(json.dumps(content))
    return folder / annotations / file.format(splits[0])


@pytest.mark.parametrize(("name", "annotations", "image"), LAYOUTS)
def test_the_sets_own_json_is_read_as_it_is_unpacked(name, annotations, image, tmp_path):
    path = own_json(tmp_path / "s", name, annotations, image)
    first, _ = read_rows(path)
    answers = OWN[name][0]["answers"]
    assert gold_text(first.solution) == answers[0] and first.columns["task"] == "ocr"
    assert first.columns["aliases"] == (["nous"] if name == "textvqa" else None)
    code, said = run("data", "check", path, "--json")
    assert code == 0 and json.loads(said)["tasks"] == {"ocr": 2}, said
    assert run("data", "convert", path, tmp_path / "made")[0] == 0
    made, _ = training_set(open_set(path), LoadOptions(cache=tmp_path / "cache"))
    assert made["solution"][:] == [first.solution] * 2
    answers = [answers[-1], "?"]
    assert evaluated(tmp_path, path, "ocr", answers)["exact_match"] == 0.5


def test_images_of_the_own_json_below_a_root(tmp_path, monkeypatch):
    path = own_json(tmp_path / "s", "docvqa", "", "spdocvqa_images/xnbl0037_1.png")
    moved = path.rename(tmp_path / "train.json")
    assert len(list(read_rows(moved, root=tmp_path / "s"))) == 2
    monkeypatch.setenv("ROOT_IMAGE_DIR", str(tmp_path / "s" / "spdocvqa_images"))
    assert run("data", "check", moved)[0] == 0
    monkeypatch.setenv("ROOT_IMAGE_DIR", str(tmp_path / "none"))
    code, said = run("data", "check", moved)
    assert code == 1 and "documents/xnbl0037_1.png does not exist" in said.replace("\n", "")


def test_a_folder_of_the_own_json_has_its_splits(tmp_path):
    splits = ("train", "val", "test")
    path = own_json(tmp_path / "s", "docvqa", "qas", "documents/xnbl0037_1.png", splits).parent
    assert splits_of(path) == ["train", "validation", "test"]
    code, said = run("data", "check", path, "--json")
    assert code == 0 and json.loads(said)["good"] == 4, said
    assert "2 times a question without an answer makes no row" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"data": {"337": OWN_DOC}}, "one object with data; expected a list of rows"),
        ({"data": []}, "has no rows"),
        ({"data": ["a"]}, "row 0: an object is needed, found 'a'"),
        ({"version": 1}, "one object with version; expected a list of rows"),
    ],
)
def test_an_object_without_rows_is_an_error(content, said, tmp_path):
    (tmp_path / "train.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=said):
        list(read_rows(tmp_path / "train.json"))


@pytest.mark.parametrize(
    ("names", "images", "record"),
    [
        (["screenspot_desktop_v2.json", "screenspot_web_v2.json"], "screenspotv2_image", SEECLICK),
        (["screenspot_mobile.json", "screenspot_web.json"], "screenspot_imgs", SEECLICK),
        (["annotations/vscode_macos.json", "annotations/excel_macos.json"], "images", PRO),
    ],
)
def test_a_folder_of_screenspots_json_is_one_set(names, images, record, tmp_path):
    (tmp_path / images).mkdir()
    (tmp_path / images / "0.png").write_bytes(picture(size=WIDE))
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps([record] * 2))
    folder = (tmp_path / names[0]).parent
    code, said = run("data", "check", folder, "--json")
    assert code == 0 and json.loads(said)["good"] == 4, said
    (folder / "notes.json").write_text('[{"question": "a"}]')
    with pytest.raises(DataError, match="several JSON files, and their names tell no split"):
        open_set(folder)


# ---- gRefCOCO --------------------------------------------------------------------------------


def refs(folder, *changes, name="grefs(unc).json"):
    """Phrases for one, for none, and for two objects, of three splits, beside instances.json."""
    file = "COCO_train2014_000000000009.png"
    (folder / "train2014").mkdir(parents=True)
    (folder / "train2014" / file).write_bytes(picture(size=WIDE))
    boxes = {11: [40, 20, 80, 60], 12: [200, 100, 100, 50]}
    content = {
        "images": [{"id": 9, "file_name": file, "width": 400, "height": 200}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [
            {"id": i, "image_id": 9, "category_id": 18, "bbox": box, "iscrowd": 0}
            for i, box in boxes.items()
        ],
    }
    (folder / "instances.json").write_text(json.dumps(content))
    given = [([11], "train"), ([-1], "train"), ([11, 12], "train"), ([12], "val"), ([-1], "testA")]
    rows = [
        {
            "ref_id": n, "image_id": 9, "split": split, "ann_id": ids, "category_id": [18],
            "file_name": "COCO_train2014_000000000009_1.png", "no_target": ids == [-1],
            "sentences": [{"sent_id": 10 * n + k, "sent": f"dog {n} {k}"} for k in range(2)],
        }
        for n, (ids, split) in enumerate(given)
    ]  # fmt: skip
    rows += [rows[0] | change for change in changes]
    (folder / name).write_text(json.dumps(rows))
    return folder / name


def test_phrases_of_one_object_of_none_and_of_several(tmp_path):
    path = refs(tmp_path / "g")
    rows = list(read_rows(path))
    tasks = ["grounding"] * 4 + ["detection"] * 2
    assert [row.columns["task"] for row in rows] == tasks
    assert [row.columns["sent_id"] for row in rows] == ["0", "1", "10", "11", "20", "21"]
    boxes = [read_boxes(gold_text(row.solution)).boxes for row in rows]
    assert boxes[::2] == [[(100, 100, 300, 400)], [], [(100, 100, 300, 400), (500, 500, 750, 750)]]
    # What is asked of a phrase without a target tells nothing of it.
    assert rows[0].problem.replace("dog 0 0", "dog 1 0") == rows[2].problem
    assert splits_of(path) == ["train", "validation", "test"]
    counts = {name: len(list(read_rows(path, split=name))) for name in ("val", "test", "testA")}
    assert counts == {"val": 2, "test": 2, "testA": 2}
    with pytest.raises(DataError, match=r"no split 'testB' in it; it has train, val"):
        open_set(path, split="testB")


def test_an_object_that_is_named_twice_is_one(tmp_path):
    path = refs(
        tmp_path / "g", {"ann_id": [11, 11], "split": "val"}, {"ann_id": 12, "split": "val"}
    )
    rows = list(read_rows(path, split="val"))[2:]
    assert [row.columns["task"] for row in rows] == ["grounding"] * 4
    boxes = [read_boxes(gold_text(row.solution)).boxes for row in rows]
    assert boxes[::2] == [[(100, 100, 300, 400)], [(500, 500, 750, 750)]]


def test_grefcoco_is_checked_converted_and_trained_on(tmp_path):
    path = refs(tmp_path / "g")
    code, said = run("data", "check", path, "--json")
    assert code == 0 and json.loads(said)["tasks"] == {"grounding": 8, "detection": 2}, said
    code, said = run("data", "convert", f"{path}:pixels", tmp_path / "made")
    assert code == 0, said
    assert splits_of(tmp_path / "made") == ["train", "validation", "test"]
    (row, *_) = read_rows(tmp_path / "made")
    assert read_boxes(gold_text(row.solution)).boxes == [(40, 20, 120, 80)]
    made, _ = training_set(open_set(path), LoadOptions(cache=tmp_path / "cache"))
    assert len(made) == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ann_id": [99]}, "ann_id names 99, no annotation of the image"),
        ({"ann_id": [-1, 11]}, "-1, no target, stands beside targets"),
        ({"ann_id": []}, "[-1] for no target"),
        ({"ann_id": None}, "a list of ids is needed"),
        ({"no_target": True}, "no_target is true, but ann_id names 1 targets"),
        ({"ann_id": [-1], "no_target": False}, "no_target is false, but ann_id names no targets"),
        ({"image_id": 8}, "image_id is 8, which instances.json does not hold"),
        ({"sentences": []}, "sentences is []"),
        ({"sentences": ["dog"]}, "sentences is ['dog']"),
        ({"sentences": [{"sent": " "}]}, "the sent is ' '; a text is needed"),
    ],
)
def test_a_bad_phrase_is_named_by_file_and_row(change, said, tmp_path):
    path = refs(tmp_path / "g", change)
    bad = [row for row in read_rows(path, keep_going=True) if isinstance(row, BadRow)]
    assert [(said in one.problem, one.place.row) for one in bad] == [(True, 5)], bad


def test_grefcoco_without_its_boxes_says_what_is_missing(tmp_path):
    path = refs(tmp_path / "g")
    (path.parent / "instances.json").unlink()
    with pytest.raises(DataError, match=r"needs COCO's boxes beside it: .*instances.json does not"):
        list(read_rows(path))


# ---- evaluation ------------------------------------------------------------------------------


def evaluated(tmp_path, path, task, answers, *flags):
    """What ``vlrft eval`` says of answers."""
    lines = [
        json.dumps({"id": str(n), "completion": f"<think>t</think><answer>{text}</answer>"})
        for n, text in enumerate(answers)
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    given = ["--predictions", tmp_path / "p.jsonl", "--gold", path, "--join", "id"]
    given += ["--task", task, *flags]
    code, said = run("eval", *given, "--out", tmp_path / task, "--json")
    assert code == 0, said
    return {name: one["value"] for name, one in json.loads(said)["metrics"].items()}


def test_grefcoco_is_evaluated_with_its_two_accuracies(tmp_path):
    path = refs(tmp_path / "g")
    right = "[100, 100, 300, 400]"
    answers = [right, "No Objects", "No Objects", right]
    split = "--split", "train"
    values = evaluated(tmp_path, path, "grounding", answers, *split)
    assert (values["n_acc"], values["t_acc"], values["acc50"]) == (0.5, 0.5, 0.5)
    both = '[{"bbox_2d": [100, 100, 300, 400]}, {"bbox_2d": [500, 500, 750, 750]}]'
    answers = [right, right, "No Objects", "No Objects", both, both]
    values = evaluated(tmp_path, path, "detection", answers, *split)
    assert values["vlrft_detection_iou"] == 1.0


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


@pytest.mark.parametrize("name", [name for name in FORMS if FORMS[name][1] == "pointing"])
def test_screenspot_is_evaluated_with_point_accuracy(name, tmp_path):
    path = write(tmp_path / "s", name, {}, {}, {}, {})
    answers = ["[500, 750]", "(250, 500)", "[200, 150]", "[500, 750], [500, 760]"]
    assert evaluated(tmp_path, path, "pointing", answers)["point_accuracy"] == 0.5


def test_anls_takes_the_nearest_of_all_answers(tmp_path):
    path = write(tmp_path / "s", "docvqa", *[{"answers": ["ITC Limited", "Acme", "x"]}] * 4)
    values = evaluated(tmp_path, path, "ocr", ["itc limited", "Acma", "x", "q"])
    assert values["anls"] == pytest.approx((1 + 0.75 + 1 + 0) / 4)
    assert values["exact_match"] == 0.25  # "x": case counts here
