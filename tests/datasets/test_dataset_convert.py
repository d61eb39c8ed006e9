"""`vlrft data convert` and `show`: any form in, one folder or one page out, whatever happens."""

import base64
import io
import json
import random
import re
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.written_sets import png
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import BadRow, DataError, Row, RowLocation, read_rows
from swift_vlrft.datasets.coco import CocoFile
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.opening import find_set, splits_of
from swift_vlrft.report.set_page import page_of, sample

GOLD = "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>"


def virft(folder: Path, count: int, name="train-00000-of-00001.parquet", **columns) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "image": [{"bytes": png((i % 256, 9, 9)), "path": f"{i}.png"} for i in range(count)],
        "problem": [f"Detect all dogs of row {i}." for i in range(count)],
        "solution": [GOLD] * count,
        **columns,
    }
    pq.write_table(pa.table(content), folder / name)
    return folder


def rows_in(folder: Path, split="train") -> list[dict]:
    files = sorted((folder / "data").glob(f"{split}-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def run(*arguments: object):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_parquet_with_splits_comes_out_with_its_splits_and_columns(tmp_path):
    source = virft(tmp_path / "in", 5, note=list("abcde"))
    virft(source, 2, "test-00000-of-00001.parquet", note=list("xy"))
    done = run("convert", source, tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 7
    assert [row["note"] for row in rows_in(tmp_path / "out")] == list("abcde")
    (first, second) = rows_in(tmp_path / "out", "test")
    assert first["image"]["bytes"] == png((0, 9, 9))  # as it came, byte by byte
    assert (second["task"], second["frame"], second["solution"]) == (None, "norm1000", GOLD)
    assert run("convert", source, tmp_path / "one", "--split", "test").exit_code == 0
    assert not rows_in(tmp_path / "one") and len(rows_in(tmp_path / "one", "test")) == 2
    done = run("convert", source, tmp_path / "no", "--split", "dev")
    assert done.exit_code == 2 and "no split 'dev'" in done.stderr
    # What came out goes in again, and nothing changes.
    assert run("convert", tmp_path / "out", tmp_path / "again").exit_code == 0
    assert rows_in(tmp_path / "again") == rows_in(tmp_path / "out")


def test_a_dataset_dict_on_disk(tmp_path):
    from datasets import Dataset, DatasetDict

    def part(colours):
        return Dataset.from_dict(
            {
                "image": [Image.new("RGBA", (9, 7), colour) for colour in colours],
                "problem": ["What is it?"] * len(colours),
                "solution": [f"<answer>{colour}</answer>" for colour in colours],
            }
        )

    DatasetDict({"train": part(["red", "blue"]), "test": part(["lime"])}).save_to_disk(
        tmp_path / "in"
    )
    written = convert_folder(tmp_path / "in", tmp_path / "out")
    assert written.rows == 3
    (row,) = rows_in(tmp_path / "out", "test")
    assert Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB").getpixel((0, 0)) == (
        0,
        255,
        0,
    )
    assert (row["task"], row["frame"]) == (None, None)


def test_json_with_image_paths_and_a_turned_picture(tmp_path):
    folder = tmp_path / "pictures" / "a"
    folder.mkdir(parents=True)
    (folder / "1.png").write_bytes(png())
    turned = Image.new("RGB", (40, 20), "white")
    turned.paste("red", (0, 0, 10, 20))  # left as stored, top as it is to be seen
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(folder / "2.jpg", exif=exif, quality=95)
    rows = [
        {"image": f"a/{name}", "problem": "Find it.", "solution": GOLD, "task": "detection"}
        for name in ("1.png", "2.jpg")
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("convert", source, tmp_path / "out", "--root", tmp_path / "pictures")
    assert done.exit_code == 0, done.output
    first, second = rows_in(tmp_path / "out")
    assert first["image"] == {"bytes": png(), "path": "a/1.png"}
    upright = Image.open(io.BytesIO(second["image"]["bytes"]))
    assert upright.size == (20, 40) and not upright.getexif()
    assert upright.getpixel((10, 2))[1] < 60 < 200 < upright.getpixel((10, 35))[1]


def test_coco_annotations(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "9.png").write_bytes(png(size=(640, 480)))
    content = {
        "images": [{"id": 9, "file_name": "9.png", "width": 640, "height": 480}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"image_id": 9, "category_id": 18, "bbox": [64, 48, 320, 240]}],
    }
    (tmp_path / "instances_val.json").write_text(json.dumps(content))
    convert_folder(tmp_path / "instances_val.json", tmp_path / "out", root=tmp_path / "images")
    assert splits_of(tmp_path / "instances_val.json") == ["validation"]
    (row,) = rows_in(tmp_path / "out", "validation")
    assert "[100, 100, 600, 600]" in row["solution"] and row["category"] == "dog"


def spoiled(tmp_path) -> Path:
    """Three shards: whole; cut off; with a broken image, an empty prompt and a bad solution."""
    source = tmp_path / "in"
    for i in range(3):
        virft(source, 4, f"train-0000{i}-of-00003.parquet")
    second = source / "train-00001-of-00003.parquet"
    second.write_bytes(second.read_bytes()[:-100])
    virft(
        source,
        4,
        "train-00002-of-00003.parquet",
        image=[{"bytes": png()[: 40 if i == 1 else None], "path": "p.png"} for i in range(4)],
        problem=["Find it.", "Find it.", " ", "Find it."],
        solution=[GOLD, GOLD, GOLD, "[[1, 2]]"],
    )
    return source


def test_what_is_broken_is_named_by_file_and_row_and_the_rest_is_kept(tmp_path):
    source = spoiled(tmp_path)
    done = run("convert", source, tmp_path / "out")
    assert done.exit_code == 2
    assert re.search(r"train-00001-of-00003.parquet cannot be read", done.stderr.replace("\n", ""))
    assert "Traceback" not in done.output and not (tmp_path / "out").exists()
    done = run("convert", source, tmp_path / "out", "--keep-going", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["rows"] == 5
    left = {Path(one["place"]).name: one["reason"] for one in result["left_out"]}
    assert set(left) == {
        "train-00001-of-00003.parquet",
        "train-00002-of-00003.parquet, row 1",
        "train-00002-of-00003.parquet, row 2",
        "train-00002-of-00003.parquet, row 3",
    }
    assert "image" in left["train-00002-of-00003.parquet, row 1"]
    assert "prompt is needed" in left["train-00002-of-00003.parquet, row 2"]
    assert "cannot be read as" in left["train-00002-of-00003.parquet, row 3"]
    listed = (tmp_path / "out" / "left_out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in listed] == result["left_out"]
    (source / "train-00001-of-00003.parquet").unlink()
    done = run("convert", source, tmp_path / "stops")
    assert done.exit_code == 2 and "row 1: " in done.stderr and "--keep-going" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "out"], "nowhere does not exist"),
        (
            ["missing.jsonl", "s3://bucket/out"],
            "s3:/bucket/out is an address; name a place on this",
        ),
        (["missing.jsonl", "link"], "link is there already"),
        (["empty", "out"], "holds no data set"),
        (["wrong", "out"], "lacks the column solution; it has image, problem, answer"),
        (["leaves.jsonl", "out", "--root", "empty"], "outside the root"),
        (["missing.jsonl", "out"], "row 0: the image .*no.png does not exist"),
        (["wrong", "out", "--columns", "answer"], "expected JSON such as"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("link").symlink_to("out")
    virft(Path("wrong"), 1, answer=["x"])
    file = Path("wrong/train-00000-of-00001.parquet")
    pq.write_table(pq.read_table(file).drop_columns("solution"), file)
    for name, image in (("leaves", "../x.png"), ("missing", "no.png")):
        row = {"image": image, "problem": "Find it.", "solution": GOLD}
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    done = run("convert", *arguments)
    assert done.exit_code == 2
    assert re.search(message, done.stderr.replace("\n", " ")), done.stderr
    assert not Path("out").exists() and "Traceback" not in done.output


def test_columns_of_other_names_and_a_task(tmp_path):
    virft(tmp_path / "in", 2, question=["Is it?", "Is it?"])
    file = tmp_path / "in" / "train-00000-of-00001.parquet"
    table = pq.read_table(file).drop_columns("problem")
    pq.write_table(table.set_column(1, "solution", pa.array(["yes", "no"])), file)
    rename = '{"question": "problem"}'
    done = run("convert", tmp_path / "in", tmp_path / "o", "--columns", rename, "--task", "yes_no")
    assert done.exit_code == 0, done.output
    assert [(row["problem"], row["task"]) for row in rows_in(tmp_path / "o")] == [
        ("Is it?", "yes_no")
    ] * 2


# ---- show ------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a browser would make of the page: elements and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]

    def boxes(self):
        return [a for _, a in self.elements if a.get("class", "").startswith("box ")]


def shown(solution, problem="Find it.", **columns) -> Page:
    given = {"task": "detection", "frame": "norm1000", **columns}
    image = {"bytes": png(size=(900, 600)), "path": None}
    return Page(page_of([Row(RowLocation(Path("x"), 3), image, problem, solution, given)], "set"))


def test_boxes_lie_where_the_gold_says_and_bear_their_label():
    page = shown("[{'Position': [100, 250, 600, 500], 'label': 'dog'}, {'Position': [0,0,9,9]}]")
    first, second = page.boxes()
    assert first["style"].startswith("left:10.00%;top:25.00%;width:50.00%;height:25.00%")
    assert first["class"] != second["class"]  # another label, another colour
    assert "dog" in page.text and "900 x 600" in page.text and "x, row 3" in page.text
    pixels = shown("[[90, 150, 540, 300]]", frame="pixels", task="grounding", category="cat")
    (box,) = pixels.boxes()
    assert box["style"].startswith("left:10.00%;top:25.00%;width:50.00%;height:25.00%")
    assert "cat" in pixels.text
    assert not shown("rose", task="classification").boxes()
    assert "No Objects" in shown("<answer>No Objects</answer>").text


def test_what_is_odd_about_a_row_is_said():
    assert "box 1 reaches outside 1000 x 1000" in shown("[[10, 10, 1200, 50]]").text
    assert "box 1 is invalid" in shown("[[50, 50, 10, 10]]").text
    assert "does not read as boxes" in shown("a dog").text
    broken = Row(RowLocation(Path("x"), 0), {"bytes": b"GIF", "path": None}, "p", "s", {})
    assert "no image" in Page(page_of([broken], "set")).text
    bad = page_of([BadRow(RowLocation(Path("y.parquet"), 7), "the image is cut off")], "set")
    assert "the image is cut off" in bad and "y.parquet, row 7" in bad


def test_text_is_escaped_and_the_page_loads_nothing():
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&"
    page = shown(
        f"[{{'Position': [1, 2, 3, 4], 'label': '{evil[:30]}'}}]", evil, category=evil, note=evil
    )
    assert not page.all("script") and evil in page.text
    (image,) = page.all("img")
    kind, content = image["src"].split(",", 1)
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (640, 427)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; img-src data:")
    assert not any(a.get("href") or a.get("onerror") for _, a in page.elements)


def test_the_sample_is_by_seed_and_in_order():
    rows = [Row(RowLocation(Path("x"), i), {}, "", "") for i in range(1000)]
    found, total = sample(rows, 12, 0)
    places = [row.place.row for row in found]
    assert total == 1000 and places == sorted(set(places)) and len(places) == 12
    assert sample(rows, 12, 0)[0] == found and sample(rows, 12, 1)[0] != found
    assert len(sample(rows[:5], 12, 0)[0]) == 5
    # Every row is as likely as any other.
    drawn = [row.place.row for seed in range(400) for row in sample(rows[:20], 5, seed)[0]]
    assert all(60 < drawn.count(i) < 140 for i in range(20))


def test_the_show_command(tmp_path):
    source = spoiled(tmp_path)
    done = run("show", source, "--rows", 20, "--out", tmp_path / "pages" / "p.html")
    assert done.exit_code == 0, done.output
    page = Page((tmp_path / "pages" / "p.html").read_text())
    assert len(page.all("article")) == 9 and "cannot be read as Parquet" in page.text
    assert "9 of 9 rows" in page.text
    done = run("show", tmp_path / "nowhere")
    assert done.exit_code == 2 and "does not exist" in done.stderr
    with pytest.raises(DataError):
        convert_folder(tmp_path / "nowhere", tmp_path / "o")


def lines_of(folder: Path, *names: str) -> None:
    folder.mkdir()
    (folder / "1.png").write_bytes(png())
    for name in names:
        row = {"image": "1.png", "problem": name, "solution": GOLD}
        (folder / name).write_text(json.dumps(row) + "\n")


def test_a_file_that_names_two_splits_is_of_one(tmp_path):
    lines_of(tmp_path / "in", "refcoco_train_val.jsonl", "refcoco_val.jsonl")
    single = tmp_path / "in" / "refcoco_train_val.jsonl"
    assert splits_of(single) == ["train"] and convert_folder(single, tmp_path / "one").rows == 1
    assert convert_folder(tmp_path / "in", tmp_path / "two").rows == 2
    (row,) = rows_in(tmp_path / "two", "validation")
    assert row["problem"] == "refcoco_val.jsonl"
    (tmp_path / "in" / "refcoco_val.jsonl").rename(tmp_path / "in" / "refcoco_test.jsonl")
    (row,) = read_rows(tmp_path / "in", split="val")  # asked for by its other name
    assert row.problem == "refcoco_train_val.jsonl"


def test_what_crowds_of_coco_leave_out_is_counted(tmp_path):
    from test_data_check import coco_with_a_crowd

    done = run("convert", coco_with_a_crowd(tmp_path), tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    ((reason, count),) = json.loads(done.stdout)["counts"].items()
    assert count == 2 and "makes no row: a crowd region or a box without area" in reason


def test_outlines_are_let_go_while_the_form_is_found_and_kept_in_rows(tmp_path):
    from test_data_check import coco_with_a_crowd

    file = coco_with_a_crowd(tmp_path)
    content = json.loads(file.read_text())
    rng = random.Random(0)
    for i, one in enumerate(content["annotations"]):
        one["segmentation"] = [[rng.random() for _ in range(20)] for _ in range(2000)]
        one["id"] = i
    content["annotations"] *= 10
    file.write_text(json.dumps(content))
    del content
    size = file.stat().st_size
    tracemalloc.start()
    try:
        assert isinstance(find_set(file), CocoFile)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * size  # the text, as bytes and as characters
    row = {"image": "8.png", "problem": "Find it.", "solution": GOLD, "segmentation": [[1, 2]]}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    assert find_set(tmp_path / "rows.json").columns == list(row)
    (found,) = read_rows(tmp_path / "rows.json")
    assert found.columns["segmentation"] == [[1, 2]]
