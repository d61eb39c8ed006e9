"""Every form a set can lie on disk in, and every shape its records can have, to the same rows."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.stored_sets import (
    FORMS,
    PROBLEM,
    SIZE,
    columns,
    image_files,
    jsonl,
    parquet_file,
    parquet_folder,
    picture,
    saved_dict,
)

from swift_vlrft.datasets import BadRow, DataError, open_image, read_rows
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.instances import read_instances
from swift_vlrft.datasets.opening import open_set
from swift_vlrft.datasets.training import LoadOptions, training_set


@pytest.mark.parametrize("write", FORMS)
def test_every_form_gives_the_same_rows(write, tmp_path):
    rows = list(read_rows(write(tmp_path)))
    assert [row.problem for row in rows] == [PROBLEM] * 3
    assert [row.solution for row in rows] == columns()["solution"]
    for row in rows:
        assert (row.columns["task"], row.guess) == (None, "detection")  # nobody states it
        assert row.columns["frame"] == "norm1000" and row.has_boxes
        shown = open_image(row.image, row.place)
        assert (shown.mode, shown.size, shown.getpixel((0, 0))) == ("RGB", SIZE, (255, 0, 0))


@pytest.mark.parametrize("mode", ["RGBA", "L", "CMYK", "P", "1", "LA", "I;16"])
def test_a_picture_of_any_mode_is_shown_in_colours(mode, tmp_path):
    form = "TIFF" if mode == "CMYK" else "PNG"
    if mode == "I;16":
        buffer = io.BytesIO()
        grey = Image.frombytes("I;16", SIZE, (32768).to_bytes(2, "little") * 800)
        grey.save(buffer, "PNG")
        stored, expected = buffer.getvalue(), (128, 128, 128)
    else:
        stored, expected = picture(mode, colour=(255, 255, 255), form=form), (255, 255, 255)
    shown = open_image({"bytes": stored, "path": None})
    assert (shown.mode, shown.size) == ("RGB", SIZE)
    assert all(abs(a - b) <= 3 for a, b in zip(shown.getpixel((5, 5)), expected, strict=True))


def test_a_rotated_photograph_stands_upright(tmp_path):
    from swift_vlrft.datasets.image import image_info

    upright = Image.new("RGB", (20, 40), (0, 0, 255))
    upright.paste((255, 0, 0), (0, 0, 20, 10))  # a red stripe on top
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn me 90 degrees clockwise"
    buffer = io.BytesIO()
    upright.rotate(90, expand=True).save(buffer, "JPEG", exif=exif, quality=95)
    image = {"bytes": buffer.getvalue(), "path": None}
    shown = open_image(image)
    assert shown.size == (20, 40)
    red, _, blue = shown.getpixel((10, 3))
    assert red > 200 and blue < 60
    head = image_info(image)
    assert (head.width, head.height, head.plain) == (20, 40, False)
    assert image_info({"bytes": picture(), "path": None}).plain


# ---- shapes ----------------------------------------------------------------------------------


def test_lisa_as_boxes_and_as_conversations(tmp_path):
    image_files(tmp_path)
    raw = [
        {
            "image_path": "images/0.png",
            "instruction": ["the wet one", "what keeps rain off"],
            "boxes": [[4.0, 5.0, 20.0, 15.0]],
        }
    ]
    (tmp_path / "lisa.json").write_text(json.dumps(raw))
    first, second = read_rows(tmp_path / "lisa.json")
    assert "what keeps rain off" in second.problem and "between 0 and 1000" in second.problem
    assert first.solution == "<answer>(100,250),(500,750)</answer>"
    assert (first.columns["task"], first.columns["frame"]) == ("grounding", "norm1000")
    prompt = "Output the bounding box in the image corresponding to the instruction: the wet one"
    turns = [
        {"from": "user", "value": f"<img>images/0.png</img>\n {prompt}"},
        {"from": "assistant", "value": "(100,250),(500,750)"},
    ]
    (tmp_path / "sft.json").write_text(json.dumps([{"id": "lisa_0", "conversations": turns}]))
    (row,) = read_rows(tmp_path / "sft.json")
    assert (row.problem, row.solution) == (first.problem, first.solution)
    assert row.image["path"] == str(tmp_path / "images" / "0.png")


def test_rec_as_vlm_r1_writes_it(tmp_path):
    image_files(tmp_path)
    turns = [
        {"from": "human", "value": "<image>Please provide the bounding box of: the lady."},
        {"from": "gpt", "value": "[4, 5, 20, 15]"},
    ]
    record = {"id": 7, "image": "1.png", "conversations": turns}
    (tmp_path / "rec.jsonl").write_text(json.dumps(record) + "\n")
    (row,) = read_rows(tmp_path / "rec.jsonl", root=tmp_path / "images")
    assert row.problem.startswith("Please provide the bounding box of: the lady.")
    assert row.solution == "<answer>[4, 5, 20, 15]</answer>"
    assert (row.columns["task"], row.columns["frame"]) == ("grounding", "pixels")
    assert row.columns["id"] == 7
    first_form = {
        "image": "images/1.png", "problem": "Where is the lady?", "solution": [4, 5, 20, 15],
        "normalized_solution": [100, 250, 500, 750],
    }  # fmt: skip
    (tmp_path / "old.json").write_text(json.dumps([first_form]))
    (row,) = read_rows(tmp_path / "old.json")
    assert row.solution == "<answer>[4, 5, 20, 15]</answer>" and row.columns["frame"] == "pixels"


COCO_ROW = "<answer>[{'Position': [100, 250, 500, 750], 'Confidence': 1}]</answer>"


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("as_structs", [True, False])
def test_coco_in_parquet_one_category_a_row(corners, as_structs, tmp_path):
    boxes = [[4.0, 5.0, 20.0, 15.0], [0.0, 0.0, 40.0, 20.0], [30.0, 2.0, 38.0, 8.0]]
    if not corners:
        boxes = [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in boxes]
    names = ["dog", "cat", "cat"]
    objects = {"bbox": boxes, "category": names}
    if as_structs:
        objects = [{"bbox": b, "category": c} for b, c in zip(boxes, names, strict=True)]
    table = pa.table(
        {
            "image": [{"bytes": picture(), "path": "9.png"}],
            "width": [40], "height": [20], "objects": [objects],
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "train.parquet")
    dog, cat = read_rows(tmp_path)
    assert dog.solution == COCO_ROW and "'dog'" in dog.problem
    assert "[0, 0, 1000, 1000]" in cat.solution and "[750, 100, 950, 400]" in cat.solution
    assert cat.columns["task"] == "detection" and cat.image["bytes"] == picture()


def test_coco_in_parquet_with_class_labels_as_the_hub_has_it(tmp_path):
    from datasets import ClassLabel, Dataset, Features, List, Value
    from datasets import Image as ImageFeature

    objects = {"bbox": List(List(Value("float64"))), "category": List(ClassLabel(names=["a", "b"]))}
    features = Features({"image": ImageFeature(), "objects": objects})
    row = {
        "image": {"bytes": picture(), "path": None},
        "objects": {"bbox": [[4.0, 5.0, 20.0, 15.0]], "category": [1]},
    }
    made = Dataset.from_list([row], features=features)
    made.to_parquet(tmp_path / "train.parquet")
    made.save_to_disk(tmp_path / "saved")
    for path in (tmp_path / "train.parquet", tmp_path / "saved"):
        (found,) = read_rows(path)
        assert found.solution == COCO_ROW and found.columns["category"] == "b"


@pytest.mark.parametrize(
    "box",
    [None, [], [1.0, 2.0, 3.0], [float("nan"), 5.0, 20.0, 15.0], [0.0, 0.0, float("inf"), 9.0]],
)
def test_a_box_of_coco_in_parquet_that_is_none_is_named(box, tmp_path):
    objects = {"bbox": [[4.0, 5.0, 20.0, 15.0], box], "category": ["dog", "cat"]}
    made = {"image": [{"bytes": picture(), "path": "9.png"}], "objects": [objects]}
    pq.write_table(pa.table(made), tmp_path / "train.parquet")
    (bad,) = read_rows(tmp_path, keep_going=True)
    assert bad.problem == f"the box {box!r} has not four numbers" and bad.place.row == 0


@pytest.mark.parametrize("saved", [False, True])
def test_class_labels_are_their_names_in_every_column(saved, tmp_path):
    from datasets import ClassLabel, Dataset, Features, List, Value
    from datasets import Image as ImageFeature

    features = {
        "image": ImageFeature(),
        "problem": Value("string"),
        "solution": ClassLabel(names=["cat", "dog"]),
        "task": ClassLabel(names=["classification", "choice"]),
        "scene": ClassLabel(names=["day", "night"]),
        "seen": List(ClassLabel(names=["sky", "sea"])),
    }
    rows = [("dog", "classification"), ("cat", None)]
    made = {"image": [{"bytes": picture(), "path": None}] * 2, "problem": ["Which?"] * 2}
    made |= {"solution": [s for s, _ in rows], "task": [t for _, t in rows]}
    made |= {"scene": ["night", -1], "seen": [["sea", "sky"], []]}  # -1: not labelled
    path = tmp_path / ("saved" if saved else "set")
    found = Dataset.from_dict(made, features=Features(features))
    path.mkdir()
    found.save_to_disk(path) if saved else found.to_parquet(path / "train.parquet")
    assert [(r.solution, r.columns["task"]) for r in read_rows(path)] == rows
    trained, _ = training_set(open_set(path), LoadOptions(tmp_path / "cache"))
    assert trained["solution"][:] == ["dog", "cat"]
    convert_folder(path, tmp_path / "out")
    copied = list(read_rows(tmp_path / "out"))
    assert [row.solution for row in copied] == ["dog", "cat"]
    assert [row.columns["scene"] for row in copied] == ["night", None]
    assert [row.columns["seen"] for row in copied] == [["sea", "sky"], []]
    # Another class of the set does not name the categories of its boxes.
    objects = {"bbox": List(List(Value("float64"))), "category": List(ClassLabel(names=["a", "b"]))}
    features = {"image": ImageFeature(), "scene": ClassLabel(names=["x", "y"]), "objects": objects}
    row = {"image": made["image"][0], "scene": "x"}
    row["objects"] = {"bbox": [[4.0, 5.0, 20.0, 15.0]], "category": [1]}
    Dataset.from_list([row], features=Features(features)).to_parquet(tmp_path / "boxes.parquet")
    assert [r.columns["category"] for r in read_rows(tmp_path / "boxes.parquet")] == ["b"]


def test_shards_that_number_their_classes_differently_are_refused(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    for n, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        features = Features(
            image=Value("string"), problem=Value("string"), solution=ClassLabel(names=names)
        )
        Dataset.from_list(
            [{"image": "a.png", "problem": "Which?", "solution": "cat"}], features=features
        ).to_parquet(tmp_path / f"train-{n}.parquet")
    with pytest.raises(DataError, match="train-1.parquet names its classes otherwise than train-0"):
        list(read_rows(tmp_path))


@pytest.mark.parametrize("missing", [None, float("nan"), "", " "])
@pytest.mark.parametrize("name", ["task", "frame"])
def test_a_missing_task_or_frame_is_none(name, missing, tmp_path):
    row = {"image": "a.png", "problem": "Where?", "solution": "[1, 2, 30, 40]"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row | {name: missing}))
    (found,) = read_rows(path)
    assert found.columns["task"] is None and found.columns["frame"] == "norm1000"


def test_plain_coco_finds_its_images(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "train2017").mkdir()
    (tmp_path / "train2017" / "9.png").write_bytes(picture())
    content = {
        "images": [{"id": 9, "file_name": "9.png", "width": 40, "height": 20}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 19, "name": "cat"}],
        "annotations": [{"id": 1, "image_id": 9, "category_id": 18, "bbox": [4, 5, 16, 10]}],
    }
    path = tmp_path / "annotations" / "instances_train2017.json"
    path.write_text(json.dumps(content))
    (row,) = read_rows(path)
    assert row.solution == COCO_ROW and row.columns["category"] == "dog"
    assert open_image(row.image).size == SIZE
    (tmp_path / "train2017" / "9.png").unlink()
    with pytest.raises(DataError, match=r"its first image 9.png is in none of .*ROOT_IMAGE_DIR"):
        list(read_rows(path))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_json_lines_go_by_what_is_in_them(end, tmp_path):
    """``Dataset.to_json("rows.json")`` writes a row a line; datasets and ms-swift read that."""
    row = {"image": "a.png", "problem": "Where?", "solution": "rose"}
    line = json.dumps(row)
    for content, rows in (
        (f"{line}\n{line}{end}", 2),
        (f"\ufeff{line}\r\n\r\n{line}{end}", 2),
        (f"[{line},\n{line}]{end}", 2),
        (json.dumps([row], indent=1) + end, 1),
    ):
        (tmp_path / "rows.json").write_bytes(content.encode())
        assert [r.solution for r in read_rows(tmp_path / "rows.json")] == ["rose"] * rows
    (tmp_path / "rows.json").write_text(f"{line}\n{line[:-5]}\n{line}\n")
    good, bad, other = read_rows(tmp_path / "rows.json", keep_going=True)
    assert good.solution == other.solution == "rose" and "line 2: not JSON" in bad.problem
    (tmp_path / "rows.json").write_text(line + end)
    with pytest.raises(DataError, match="holds one object with image, problem, solution"):
        list(read_rows(tmp_path / "rows.json"))


# ---- bad input -------------------------------------------------------------------------------


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"image": "a.png", "question": "what?", "answer": "rose"}))
    with pytest.raises(
        DataError, match="lacks the columns problem, solution; it has image, question, answer"
    ):
        list(read_rows(path))
    rename = {"question": "problem", "answer": "solution"}
    (row,) = read_rows(path, rename=rename)
    assert (row.problem, row.solution, row.columns["task"]) == ("what?", "rose", None)


@pytest.mark.parametrize(
    "columns",
    ["messages images", "messages image solution", "query response images", "instruction"],
)
def test_a_form_of_ms_swifts_own_is_not_asked_for_our_columns_alone(columns, tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps(dict.fromkeys(columns.split(), "x")))
    told = rf"lacks the columns? .* leave it as it is: by its column {columns.split()[0]} "
    with pytest.raises(DataError, match=told):
        open_set(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text('{"image": "a.png", "problem": "?", "response": "x"}')
    with pytest.raises(DataError) as error:
        open_set(tmp_path / "x.jsonl")
    assert "leave it" not in str(error.value)  # training refuses it, too


def test_a_truncated_shard_leaves_the_healthy_ones(tmp_path):
    parquet_folder(tmp_path)
    broken = tmp_path / "data" / "train-00000-of-00002.parquet"
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-00000-of-00002.parquet cannot be read as Parquet"):
        list(read_rows(tmp_path))
    bad, row = read_rows(tmp_path, keep_going=True)
    assert isinstance(bad, BadRow) and bad.place.row is None
    assert row.place.file.name == "train-00001-of-00002.parquet"


def test_a_shard_that_is_damaged_inside_is_named(tmp_path):
    path = parquet_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[20:400] = bytes(380)
    path.write_bytes(content)
    with pytest.raises(DataError, match="breaks off or is damaged"):
        list(read_rows(tmp_path))
    (bad,) = read_rows(tmp_path, keep_going=True)
    assert "train-00000-of-00001.parquet" in bad.problem


def test_a_split_that_is_not_there_lists_the_others(tmp_path):
    with pytest.raises(DataError, match="no split 'test' in this DatasetDict; it has train"):
        list(read_rows(saved_dict(tmp_path), split="test"))
    with pytest.raises(DataError, match=r"no split 'validation'.*it has test, train"):
        list(read_rows(parquet_folder(tmp_path), split="validation"))


def test_an_image_outside_the_root_is_refused(tmp_path):
    path = jsonl(tmp_path)
    lines = path.read_text().replace("images/1.png", "../secret.png")
    path.write_text(lines)
    with pytest.raises(DataError, match=r"rows.jsonl, row 1: the image path .* lies outside the"):
        list(read_rows(path, root=tmp_path))
    rows = list(read_rows(path, root=tmp_path, keep_going=True))
    assert [isinstance(row, BadRow) for row in rows] == [False, True, False]


def test_json_that_is_none_is_named_by_line(tmp_path):
    path = jsonl(tmp_path)
    path.write_text(path.read_text() + '{"image": \n')
    with pytest.raises(DataError, match=r"rows.jsonl, row 3: line 5: not JSON"):
        list(read_rows(path))
    (tmp_path / "x.json").write_text("[1, 2")
    with pytest.raises(DataError, match=r"x.json is not JSON"):
        list(read_rows(tmp_path / "x.json"))


def test_a_line_that_is_no_row_leaves_the_others(tmp_path):
    path = jsonl(tmp_path)
    first = path.read_bytes().splitlines(keepends=True)[0]
    deep = b"[" * 100_000 + b"\n"
    path.write_bytes(
        b"\xef\xbb\xbf" + first + b'{"image": \n' + first + b"\xff\n[1]\n" + deep + first
    )
    rows = list(read_rows(path, keep_going=True))
    bad = [row for row in rows if isinstance(row, BadRow)]
    assert len(rows) == 7 and [row.place.row for row in bad] == [1, 3, 4, 5]
    for row, words in zip(bad, ("not JSON", "not UTF-8", "an object", "not JSON"), strict=True):
        assert f"line {row.place.row + 1}" in row.problem and words in row.problem
    with pytest.raises(DataError, match=r"rows.jsonl, row 1: line 2: not JSON"):
        list(read_rows(path))


@pytest.mark.parametrize("name", ["x.json", "instances_x.json"])
def test_json_without_an_end_to_its_depth_is_no_traceback(name, tmp_path):
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(DataError, match="is not JSON"):
        list(read_rows(tmp_path / name))
    with pytest.raises(DataError, match="is not JSON"):
        read_instances(tmp_path / name)


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "instances_x.json"])
@pytest.mark.parametrize("code", ["utf-16", "utf-32", "utf-16-le"])
def test_json_in_another_code_is_named_once(name, code, tmp_path):
    rows = [{"image": "a.png", "problem": "?", "solution": "x"}] * 3
    text = "\n".join(map(json.dumps, rows)) if name == "x.jsonl" else json.dumps(rows)
    (tmp_path / name).write_text(text, encoding=code)
    with pytest.raises(DataError, match=rf"{name} is {code[:6].upper()}.*; JSON in UTF-8 is"):
        list(read_rows(tmp_path / name))


def test_a_file_without_rows_says_so(tmp_path):
    (tmp_path / "x.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"x.jsonl has no rows"):
        list(read_rows(tmp_path / "x.jsonl"))


def test_an_image_that_is_not_there_and_one_that_is_broken(tmp_path):
    (row, *_) = read_rows(jsonl(tmp_path))
    with pytest.raises(DataError, match=r"row 0: the image .*nowhere.png does not exist"):
        open_image({"bytes": None, "path": str(tmp_path / "nowhere.png")}, row.place)
    with pytest.raises(DataError, match=r"row 0: the image in the row is broken"):
        open_image(
            {"bytes": picture(size=(400, 400), colour=(1, 2, 3))[:-300], "path": None}, row.place
        )
    with pytest.raises(DataError, match="is not an image"):
        open_image({"bytes": b"GIF, they said", "path": "x.gif"}, row.place)


def test_an_unknown_folder_says_what_is_known(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match="neither Parquet files, nor a folder of save_to_disk"):
        list(read_rows(tmp_path))
    with pytest.raises(DataError, match="does not exist"):
        list(read_rows(tmp_path / "nowhere"))
