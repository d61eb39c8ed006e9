"""``vlrft data check``: what it finds, where, and the clean copy."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.stored_sets import SIZE, columns, parquet_folder, picture, saved_dict
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import open_image, read_rows
from swift_vlrft.datasets.image import image_info


def run(*arguments):
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


def found(*arguments):
    result = run(*arguments, "--json")
    return result.exit_code, json.loads(result.stdout)


def test_a_good_set_of_any_form_passes(tmp_path):
    result = run(parquet_folder(tmp_path))
    assert result.exit_code == 0, result.output
    # train and test, 3 detection rows and 1 that would be a classification by itself
    assert "4 of 4 rows are fit to train on" in result.output
    assert found(saved_dict(tmp_path))[0] == 0


@pytest.fixture
def bad_set(tmp_path):
    rows = columns(8)
    rows["image"][1] = {"bytes": picture(size=(300, 300))[:-40], "path": "1.png"}
    rows["problem"][2] = ""
    rows["solution"][3] = "<answer>[{'Position': [254, 303]}]</answer>"
    rows["solution"][4] = "<answer>[{'Position': [254, 303, 1291, 365], 'Confidence': 1}]</answer>"
    rows["solution"][5] = "not json: {'Position'"
    folder = tmp_path / "bad"
    folder.mkdir()
    pq.write_table(pa.table(rows), folder / "train-00000-of-00002.parquet")
    (folder / "train-00001-of-00002.parquet").write_bytes(b"PAR1 and no more")
    return folder


def test_shards_that_the_names_speak_of_are_missed(tmp_path):
    folder = parquet_folder(tmp_path) / "data"
    assert found(folder, "--split", "train")[1]["notes"] == []
    (folder / "train-00001-of-00002.parquet").unlink()
    code, report = found(folder, "--split", "train")
    assert code == 0
    assert "shards are missing (1: train-00001-of-00002.parquet)" in report["notes"][0]


def test_shards_of_older_sets_bear_a_checksum_in_their_names(tmp_path):
    for total in (3, 2):
        folder = tmp_path / str(total)
        folder.mkdir()
        for number in (0, 1):
            name = f"train-{number:05d}-of-{total:05d}-a1b2c3d4e5f6071{number}.parquet"
            pq.write_table(pa.table(columns()), folder / name)
    code, report = found(tmp_path / "3")
    assert (code, report["good"]) == (0, 6)
    assert "shards are missing (1: train-00002-of-00003.parquet)" in report["notes"][0]
    assert found(tmp_path / "2")[1]["notes"] == []


def test_columns_are_renamed_as_the_error_says(tmp_path):
    made = columns()
    made["answer"] = made.pop("solution")
    folder = tmp_path / "set"
    folder.mkdir()
    pq.write_table(pa.table(made), folder / "train.parquet")
    done = CliRunner().invoke(app, ["data", "check", str(folder)])
    assert done.exit_code == 2 and "--columns" in done.output
    rename = ["--columns", '{"answer": "solution"}']
    assert found(folder, *rename)[1]["good"] == 3
    code, report = found(folder, *rename, "--fix", str(tmp_path / "clean"))
    assert code == 0 and found(tmp_path / "clean")[1]["good"] == report["good"] == 3
    mistyped = ["--columns", '{"answer": "solution", "tsk": "task"}']
    note = "--columns renames tsk, which is none of its columns: "
    done = CliRunner().invoke(app, ["data", "check", str(folder), *mistyped])
    assert done.exit_code == 0 and note in done.output
    done = CliRunner().invoke(app, ["data", "convert", str(folder), f"{folder}_new", *mistyped])
    assert done.exit_code == 0 and note in done.output
    done = CliRunner().invoke(app, ["data", "check", str(folder), "--columns", "answer"])
    assert done.exit_code == 2 and "--columns answer: expected JSON" in done.output


def test_messages_beside_our_columns_are_for_ms_swift(tmp_path):
    talk = [[{"role": "user", "content": "?"}]] * 8
    pq.write_table(pa.table(columns(8) | {"messages": talk}), tmp_path / "train.parquet")
    code, report = found(tmp_path)
    assert code == 0 and "ms-swift's own loader" in report["notes"][0]
    remedy = re.search(r"--columns '(.*)'", report["notes"][0])[1]
    assert found(tmp_path, "--columns", remedy)[1]["notes"] == []


def test_what_is_wrong_with_a_solution_is_said(tmp_path):
    rows = columns(5)
    rows["solution"][0] = None
    rows["solution"][1] = "<answer>[{'Position': [254, 303, 254, 365]}]</answer>"
    rows["image"][2] = {"bytes": b"", "path": None}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    problems = [p["problem"] for p in found(tmp_path / "a.parquet")[1]["problems"]]
    assert problems[0] == "the row has no solution"
    assert "box 1 of 1 is not four numbers with an area" in problems[1]
    assert "its bytes are in no known format" in problems[2]  # no address in memory
    assert len(problems) == 3


def test_half_a_character_is_named_and_shown(tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    row = {"image": "a.png", "problem": "Where?", "solution": "[1, 2, 3, 4]"}
    rows = [row, row | {"problem": "\ud800?"}, row | {"solution": "[[1, 2, 3, 4]] \udfff"}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    code, report = found(tmp_path / "a.jsonl")
    assert code == 1 and [p["place"][-5:] for p in report["problems"]] == ["row 1", "row 2"]
    assert "the problem holds '\\ud800', half a character" in report["problems"][0]["problem"]
    options = ["show", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "page.html")]
    assert CliRunner().invoke(app, ["data", *options]).exit_code == 0
    assert "\\ud800?" in (tmp_path / "page.html").read_text()


def test_every_problem_is_named_by_row_and_the_healthy_shard_is_read(bad_set):
    code, report = found(bad_set)
    assert code == 1 and (report["rows"], report["good"]) == (8, 3)
    problems = {p["place"].rsplit("/", 1)[-1]: p["problem"] for p in report["problems"]}
    first = "train-00000-of-00002.parquet, row "
    assert "cannot be read as Parquet" in problems.pop("train-00001-of-00002.parquet")
    assert "is broken" in problems.pop(f"{first}1")
    assert "a prompt is needed" in problems.pop(f"{first}2")
    assert "cannot be read as a list of boxes" in problems.pop(f"{first}3")
    assert "reaches beyond norm1000 (0 to 1000)" in problems.pop(f"{first}4")
    assert "cannot be read as a list of boxes" in problems.pop(f"{first}5")
    assert not problems
    shown = run(bad_set, "--show", "2")
    assert shown.exit_code == 1 and "and 4 more" in shown.output


def test_fix_writes_the_good_rows_and_lists_the_others(bad_set, tmp_path):
    code, report = found(bad_set, "--fix", tmp_path / "clean")
    assert code == 1 and report["clean"]["rows"] == 3
    rows = list(read_rows(tmp_path / "clean"))
    assert [row.problem for row in rows] == [columns()["problem"][0]] * 3
    assert rows[0].image["bytes"] == picture()
    left_out = (tmp_path / "clean" / "left_out.jsonl").read_text().splitlines()
    assert len(left_out) == 6
    assert found(tmp_path / "clean")[0] == 0
    again = run(bad_set, "--fix", tmp_path / "clean")
    assert again.exit_code == 2 and "is there already" in again.output


def test_gold_that_no_reward_pays_in_full_is_found(tmp_path):
    rows = columns(2) | {"task": ["choice", "classification"], "solution": ["A", "..."]}
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    code, report = found(tmp_path)
    assert code == 1 and report["good"] == 1
    (problem,) = report["problems"]
    assert problem["place"].endswith("row 1")


def test_what_cannot_be_used_exits_2_without_a_traceback(tmp_path):
    result = run(tmp_path / "nowhere")
    assert result.exit_code == 2 and "does not exist" in result.output
    result = run(saved_dict(tmp_path), "--split", "test")
    assert result.exit_code == 2 and "no split 'test'" in result.output
    result = run(saved_dict(tmp_path / "x"), "--max-length", "5")
    assert result.exit_code == 2 and "give --model" in result.output


def test_rows_that_are_too_long_are_named_with_their_tokens(tmp_path):
    """Against ms-swift's own template, which encodes the pictures to know."""
    pytest.importorskip("swift")
    from swift.model import get_processor
    from swift.template import get_template

    from swift_vlrft.tiny.checkpoint import write_tiny

    write_tiny("qwen2_5_vl", tmp_path / "tiny")
    rows = columns(2)
    rows["image"][1] = {"bytes": picture(size=(400, 300)), "path": "big.png"}
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    template = get_template(get_processor(str(tmp_path / "tiny")))
    lengths = []
    for image, problem in zip(rows["image"], rows["problem"], strict=True):
        message = {"role": "user", "content": f"<image>{problem}"}
        encoded = template.encode({"messages": [message], "images": [image]})
        lengths.append(len(encoded["input_ids"]))
    assert lengths[1] > lengths[0] + 100
    for limit, good in ((lengths[0] - 1, 0), (lengths[0], 1), (lengths[1] - 1, 1), (lengths[1], 2)):
        code, report = found(tmp_path, "--max-length", limit, "--model", tmp_path / "tiny")
        assert (report["good"], report["too_long"], code) == (good, 2 - good, int(good < 2)), report
    assert f"takes {lengths[1]} tokens" in str(
        found(tmp_path, "--max-length", lengths[1] - 1, "--model", tmp_path / "tiny")[1]["problems"]
    )


def test_a_malformed_exif_block_takes_nothing_from_the_pixels(tmp_path, monkeypatch):
    # Turned, and with a tag that Pillow reads but cannot write again; read by no Pillow, and as
    # some versions answer to that.
    turned = (
        b"MM\0*\0\0\0\x08\0\x02\x01\x03\0\x02\0\0\0\x06\0\0\0&"
        b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0hello\0"
    )
    rows = columns(3)
    for i, block in enumerate((turned, b"garbage")):
        photo = picture(form="JPEG", exif=b"Exif\0\0" + block)
        rows["image"][i] = {"bytes": photo, "path": f"{i}.jpg"}
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    getexif = Image.Image.getexif

    def strict(self):
        if self.info.get("exif", b"").endswith(b"garbage"):
            raise SyntaxError("not a TIFF file")
        return getexif(self)

    monkeypatch.setattr(Image.Image, "getexif", strict)
    code, report = found(tmp_path)
    assert code == 0 and report["good"] == 3, report
    sizes = [(image_info(row.image), open_image(row.image)) for row in read_rows(tmp_path)]
    for (head, shown), size in zip(sizes, [SIZE[::-1], SIZE, SIZE], strict=True):
        assert (head.width, head.height) == shown.size == size


def coco_with_a_crowd(folder):
    for name in ("8.png", "9.png"):
        (folder / name).write_bytes(picture())
    size = {"width": 40, "height": 20}
    content = {
        "images": [{"id": 8, "file_name": "8.png"} | size, {"id": 9, "file_name": "9.png"} | size],
        "categories": [{"id": 18, "name": "dog"}, {"id": 19, "name": "cat"}],
        "annotations": [
            {"image_id": 8, "category_id": 18, "bbox": [4, 5, 16, 10]},
            {"image_id": 9, "category_id": 18, "bbox": [4, 5, 16, 10]},
            {"image_id": 9, "category_id": 18, "bbox": [0, 0, 9, 9], "iscrowd": 1},
            {"image_id": 9, "category_id": 19, "bbox": [3, 3, 0, 5]},
        ],
    }
    (folder / "instances_train.json").write_text(json.dumps(content))
    return folder / "instances_train.json"


def test_what_crowds_of_coco_leave_out_is_told_and_is_no_problem(tmp_path):
    code, report = found(coco_with_a_crowd(tmp_path))
    assert code == 0 and report["rows"] == report["good"] == 1
    (note,) = report["notes"]
    assert "2 times a category of an image makes no row: a crowd region" in note
    assert note.endswith("(image 9: dog; image 9: cat)")


def test_fix_stores_gold_of_numbers_and_lists_as_text(tmp_path):
    (tmp_path / "a.png").write_bytes(picture())
    row = {"image": "a.png", "problem": "How many?", "solution": 4, "task": "counting"}
    boxes = {"solution": [{"Position": [1, 2, 30, 40], "Confidence": 1}], "task": "detection"}
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(r) for r in (row, row | boxes)))
    code, report = found(tmp_path / "a.jsonl", "--fix", tmp_path / "clean")
    assert code == 0 and report["clean"]["rows"] == 2
    first, second = read_rows(tmp_path / "clean")
    assert first.solution == "4" and "Position" in second.solution
    assert found(tmp_path / "clean")[0] == 0


def test_rewards_that_fit_are_those_of_the_tasks_that_the_named_rewards_score(tmp_path):
    gold = "<answer>[[254, 303, 291, 365]]</answer>"
    pq.write_table(pa.table(columns() | {"solution": [gold] * 3}), tmp_path / "train.parquet")
    fitting = found(tmp_path)[1]["rewards"]
    assert {"vlrft_detection_iou", "vlrft_grounding_iou"} <= set(fitting)
    asked = found(tmp_path, "--reward", "vlrft_detection_iou")[1]["rewards"]
    assert asked and all(name.startswith("vlrft_detection") for name in asked)


@pytest.mark.parametrize("subset", ["", ":pixels"])
def test_a_gold_that_no_named_reward_reads_is_the_first_thing_said_of_a_row(subset, tmp_path):
    prompt = "Find it. Give coordinates in thousandths."  # cannot be rewritten, either
    pq.write_table(pa.table(columns() | {"problem": [prompt] * 3}), tmp_path / "train.parquet")
    code, report = found(f"{tmp_path}{subset}", "--reward", "vlrft_counting")
    assert code == 1 and len(report["problems"]) == 3
    for one in report["problems"]:
        assert "cannot be read as a whole number (vlrft_counting)" in one["problem"]


def test_the_clean_copy_says_of_which_task_the_named_reward_takes_its_rows_for(tmp_path):
    gold = {"solution": ["<answer>[[254, 303, 291, 365]]</answer>", "4", "a dog"]}
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table(columns() | gold), tmp_path / "set" / "train.parquet")
    named = ["--reward", "vlrft_grounding_iou", "--reward", "vlrft_counting"]
    assert found(tmp_path / "set", *named, "--fix", tmp_path / "clean")[0] == 1
    rows = list(read_rows(tmp_path / "clean"))
    assert [row.columns["task"] for row in rows] == ["grounding", "counting"]
    assert [row.columns["frame"] for row in rows] == ["norm1000", None]


def test_columns_are_renamed_to_names(tmp_path):
    result = run(tmp_path, "--columns", '{"picture": 5}')
    assert result.exit_code == 2 and '--columns {"picture": 5}: expected JSON' in result.stderr


def test_a_split_that_no_named_reward_scores_is_noted(tmp_path):
    tasks = {"train": ("classification", "rose"), "test": ("counting", "4")}
    for split, (task, solution) in tasks.items():
        rows = columns(2) | {"solution": [solution] * 2, "task": [task] * 2}
        pq.write_table(pa.table(rows), tmp_path / f"{split}.parquet")
    unscored = "no reward that is named scores a row of the split 'train': 2 classification"
    code, report = found(tmp_path, "--reward", "vlrft_counting", "--reward", "vlrft_format")
    assert code == 0
    assert [unscored in note for note in report["notes"]] == [True]
    both = "--reward", "vlrft_counting", "--reward", "vlrft_classification"
    for rewards in (both, (), ("--reward", "vlrft_format")):
        assert found(tmp_path, *rewards)[1]["notes"] == []
    # Where no split is scored, that is a problem of the set, said once.
    code, report = found(tmp_path, "--reward", "vlrft_choice")
    assert (code, len(report["problems"]), report["notes"]) == (1, 1, [])
