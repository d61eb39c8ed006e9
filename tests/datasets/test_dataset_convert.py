"""`vlrft data convert` and `show`: any form in, one folder or one page out, whatever happens."""

import base64
import html
import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image
from support.stored_sets import GOLD
from support.written_sets import data, png, rows_in, spoiled_set, write_rows, write_set

from swift_vlrft.datasets import BadRow, Row, RowLocation
from swift_vlrft.report.set_page import page_of


def convert(*arguments):
    """What the command says; it succeeds."""
    done = data("convert", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_parquet_with_splits_comes_out_with_its_splits_and_columns(tmp_path):
    source = write_set(tmp_path / "in", 5, note=list("abcde"))
    images = [{"bytes": png((n, 9, 9)), "path": f"{n}.png"} for n in range(2)]
    write_set(source, 2, "test-00000-of-00001.parquet", note=list("xy"), image=images)
    assert convert(source, tmp_path / "out")["rows"] == 7
    assert [row["note"] for row in rows_in(tmp_path / "out")] == list("abcde")
    first, _ = rows_in(tmp_path / "out", "test")
    assert first["image"]["bytes"] == png((0, 9, 9))  # as it came, byte by byte
    assert (first["task"], first["frame"], first["solution"]) == (None, "norm1000", GOLD)
    convert(source, tmp_path / "test alone", "--split", "test")
    assert not rows_in(tmp_path / "test alone") and len(rows_in(tmp_path / "test alone", "test"))
    done = data("convert", source, tmp_path / "no", "--split", "dev")
    assert done.exit_code == 2 and "'dev'" in done.stderr
    # What came out goes in again, and nothing changes.
    convert(tmp_path / "out", tmp_path / "again")
    assert rows_in(tmp_path / "again") == rows_in(tmp_path / "out")


def test_what_is_broken_is_named_by_file_and_row_and_the_rest_is_kept(tmp_path):
    source = spoiled_set(tmp_path / "in")
    unstated = convert(source, tmp_path / "unstated", "--keep-going")
    assert "3 solutions are boxes, and 1 may be classes" in " ".join(unstated["notes"])
    done = data("convert", source, tmp_path / "out", "--task", "detection")
    assert done.exit_code == 2 and "Traceback" not in done.output
    assert "row 1: " in done.stderr and "--keep-going" in done.stderr
    assert not (tmp_path / "out").exists()
    shown = data("check", source, "--show", "2", "--reward", "vlrft_detection_iou")
    assert shown.exit_code == 1 and "and 3 more" in shown.output
    result = convert(source, tmp_path / "out", "--keep-going", "--task", "detection")
    places = {Path(bad["place"]).name for bad in result["left_out"]}
    rows = {f"train-00000-of-00001.parquet, row {n}" for n in (1, 2, 3, 4, 5)}
    assert result["rows"] == 3 and places == rows
    listed = (tmp_path / "out" / "left_out.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in listed] == result["left_out"]
    (source / "train-00001-of-00001.parquet").write_bytes(b"PAR1 and no more")
    for words in (["convert", source, tmp_path / "stops", "--keep-going"], ["check", source]):
        done = data(*words)
        assert (
            done.exit_code == 2 and "train-00001-of" in done.stderr and "stops" not in done.stderr
        )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nowhere", "out"], "nowhere"),
        (["rows.jsonl", "s3://bucket/out"], "s3:/bucket/out"),
        (["rows.jsonl", "link"], "link is there"),
        (["rows.jsonl", "out", "--root", "empty"], "outside the root"),
        (["rows.jsonl", "out"], "row 0: the image"),
        (["rows.jsonl", "out", "--columns", "answer"], "--columns answer"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("link").symlink_to("out")
    write_rows(Path("rows.jsonl"), {"image": "../x.png", "problem": "p", "solution": GOLD})
    done = data("convert", *arguments)
    assert done.exit_code == 2 and named in done.stderr.replace("\n", " "), done.stderr
    assert not Path("out").exists() and "Traceback" not in done.output


# ---- show ------------------------------------------------------------------------------------


def shown(solution, problem="Find it.", image=None, **columns) -> str:
    """The page of one row."""
    columns = {"task": "detection", "frame": "norm1000", **columns}
    image = {"bytes": image or png(size=(900, 600)), "path": None}
    return page_of([Row(RowLocation(Path("x"), 3), image, problem, solution, columns)], "set")


def boxes(page: str) -> list[tuple[str, str]]:
    """Class and place of every box that is drawn."""
    return re.findall(r'class="(box [^"]*)" style="([^"]*)"', page)


def test_boxes_lie_where_the_gold_says_and_bear_their_label():
    place = "left:10.00%;top:25.00%;width:50.00%;height:25.00%"
    page = shown("[{'Position': [100, 250, 600, 500], 'label': 'dog'}, {'Position': [0,0,9,9]}]")
    first, second = boxes(page)
    assert first[1].startswith(place) and first[0] != second[0]  # another label, another colour
    assert "dog" in page and "900 x 600" in page and "x, row 3" in page
    page = shown("[[90, 150, 540, 300]]", frame="pixels", task="grounding", category="cat")
    ((_, style),) = boxes(page)
    assert style.startswith(place) and "cat" in page
    assert not boxes(shown("rose", task="classification"))
    assert "No Objects" in shown("<answer>No Objects</answer>")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"solution": "[[10, 10, 1200, 50]]"}, "box 1 reaches outside 1000 x 1000"),
        ({"solution": "[[50, 50, 10, 10]]"}, "box 1 is invalid"),
        ({"solution": "a dog"}, "does not read as boxes"),
        ({"solution": "s", "image": b"GIF"}, "no image"),
    ],
)
def test_what_is_odd_about_a_row_is_said(row, said):
    assert said in shown(**row)
    bad = page_of([BadRow(RowLocation(Path("y.parquet"), 7), "the image is cut off")], "set")
    assert "the image is cut off" in bad and "y.parquet, row 7" in bad


def test_text_is_escaped_and_the_page_loads_nothing():
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&"
    solution = f"[{{'Position': [1, 2, 3, 4], 'label': '{evil[:30]}'}}]"
    page = shown(solution, evil, category=evil, note=evil)
    assert "<script" not in page and "<a " not in page and evil in html.unescape(page)
    ((kind, content),) = re.findall(r'<img[^>]* src="([^,]*),([^"]*)"', page)
    assert kind == "data:image/jpeg;base64" and page.count("<img") == 1
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (640, 427)
    assert "default-src 'none'; img-src data:" in html.unescape(page)


def test_the_show_command(tmp_path):
    source, file = spoiled_set(tmp_path / "in"), tmp_path / "pages" / "p.html"
    done = data("show", source, "--rows", 20, "--out", file)
    assert done.exit_code == 0, done.output
    page = file.read_text()
    assert page.count("<article") == 8 and "8 of 8 rows" in page
    done = data("show", tmp_path / "nowhere")
    assert done.exit_code == 2 and "nowhere" in done.stderr
