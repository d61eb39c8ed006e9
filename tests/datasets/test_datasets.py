"""A ViRFT folder on disk: what is found in it, what is wrong with it, and the rows it becomes."""

import io
import random
import re
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.opening import find_set, open_set, splits_of
from swift_vlrft.demo.tasks import TASKS, known_task
from swift_vlrft.rewards import TASK_NAMES


def table(**changes):
    columns = {
        "image": [{"bytes": png(), "path": "a.png"}, {"bytes": png(), "path": "b.png"}],
        "problem": ["Detect all dogs.", "Detect all cats."],
        "solution": [
            "<answer>[{'Position': [254, 303, 291, 365], 'Confidence': 1}]</answer>",
            "<answer>No Objects</answer>",
        ],
    }
    columns |= changes
    return pa.table({name: values for name, values in columns.items() if values is not None})


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    return buffer.getvalue()


def write(folder, content, name="train-00000-of-00001.parquet"):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, folder / name)
    return folder


def checked(path, **options):
    report = check_set(path, images=False, **options)
    return report.good, dict(report.tasks), report.listed()


def test_a_virft_folder_passes_without_a_task(tmp_path):
    assert checked(write(tmp_path / "x", table()))[:2] == (2, {"without a task": 2})
    names = table(solution=["<answer>rose</answer>", "tulip"])
    assert checked(write(tmp_path / "y", names))[:2] == (2, {"without a task": 2})
    named = checked(write(tmp_path / "z", names), rewards=["vlrft_classification"])
    assert named[:2] == (2, {"classification": 2})


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    folder = write(tmp_path, table(solution=None, answer=["rose", "tulip"]))
    with pytest.raises(
        DataError, match=r"lacks the column solution; it has image, problem, answer"
    ):
        check_set(folder)
    assert checked(folder, rename={"answer": "solution"})[0] == 2


def test_a_solution_that_cannot_be_read_is_named_by_file_and_row(tmp_path):
    write(tmp_path, table(), "train-0.parquet")
    write(
        tmp_path,
        table(solution=["<answer>[{'Position': [1, 2]}]</answer>", "No Objects"]),
        "train-1.parquet",
    )
    good, _, listed = checked(tmp_path)
    assert good == 3
    assert re.search(r"train-1.parquet, row 0: the solution .* cannot be read as a list", listed)


def test_an_empty_prompt_is_named(tmp_path):
    assert "row 1: the problem is ' '" in checked(write(tmp_path, table(problem=["a", " "])))[2]


def test_a_task_column_decides_row_by_row(tmp_path):
    mixed = table(solution=["4", "<answer>[1, 2, 3, 4]</answer>"], task=["counting", "grounding"])
    assert checked(write(tmp_path / "a", mixed))[0] == 2
    wrong = table(solution=["four", "rose"], task=["counting", "flower"])
    listed = checked(write(tmp_path / "b", wrong))[2]
    assert "cannot be read as a whole number (counting)" in listed
    assert "unknown task 'flower'; known: detection, grounding" in listed


def test_boxes_outside_their_frame_are_named(tmp_path):
    beyond = ["<answer>[10, 20, 1400, 90]</answer>", "[1, 2, 9, 5]"]
    listed = checked(write(tmp_path / "a", table(solution=beyond)))[2]
    assert "row 0: the box (10, 20, 1400, 90) reaches beyond norm1000 (0 to 1000)" in listed
    inside = table(solution=["[1, 2, 8, 7]", "[1, 2, 19, 5]"], frame=["pixels", "pixels"])
    report = check_set(write(tmp_path / "b", inside))
    assert report.good == 1
    assert "row 1: the box (1, 2, 19, 5) reaches beyond the image of 8 x 8" in report.listed()


def test_boxes_that_look_like_pixels_are_noted(tmp_path):
    def report(name, make):
        solutions = [str(make(i)) for i in range(30)]
        image = [{"bytes": png(), "path": None}] * 30
        made = table(image=image, problem=["p"] * 30, solution=solutions)
        return check_set(write(tmp_path / name, made))

    assert "look like pixels" in report("pixels", lambda i: [0, 1, 2 + i % 5, 7]).notes[0]
    assert report("norm1000", lambda i: [0, 1, 100 + i * 20, 700]).notes == []


def test_shards_with_other_columns_are_refused(tmp_path):
    write(tmp_path, table(), "a.parquet")
    write(tmp_path, table(solution=None), "b.parquet")
    assert "b.parquet has the columns image, problem" in checked(tmp_path)[2]
    with pytest.raises(DataError, match=r"b.parquet has the columns image, problem"):
        open_set(tmp_path)


def test_only_the_train_split_trains(tmp_path):
    for name in (
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
        "test-00000-of-00001.parquet",
    ):
        write(tmp_path / "data", table(), name)
    assert [f.name[:5] for f in find_set(tmp_path).files] == ["train", "train"]
    with pytest.raises(DataError, match=r"no split 'validation'.*test, train"):
        find_set(tmp_path, "validation")
    plain = write(tmp_path / "plain", table(), "0000.parquet")
    assert len(find_set(plain).files) == 1


def test_the_hub_sets_are_those_that_were_published():
    assert {s.hub_id for s in SOURCES} >= {
        "laolao77/ViRFT_COCO_base65",
        "laolao77/ViRFT_CLS_car196_4shot",
        *("lmms-lab/textvqa", "pixparse/docvqa-single-page-questions", "lmms-lab/DocVQA"),
        *("rootsautomation/ScreenSpot", "lmms-lab/ScreenSpot-v2", "lmms-lab/ScreenSpot-Pro"),
        *("nielsr/countbench", "vikhyatk/CountBenchQA"),
    }
    # What only has a test split says so: an id stands for train elsewhere.
    assert {s.hub_id: (s.subset, s.split) for s in SOURCES if s.split != "train"} == {
        "lmms-lab/DocVQA": ("DocVQA", "validation"),
        "rootsautomation/ScreenSpot": ("default", "test"),
        "vikhyatk/CountBenchQA": ("default", "test"),
    }
    assert {s.task for s in SOURCES} <= TASK_NAMES.keys()


@pytest.mark.parametrize("name", TASKS)
def test_a_demo_prompt_never_tells_the_answer(name):
    task = known_task(name)
    train, held_out = (
        task.make(random.Random(0), task.train_rows),
        task.make(random.Random(1), task.held_out_rows, held_out=True),
    )
    by_prompt: dict[str, set[str]] = {}
    for row in train:
        by_prompt.setdefault(row.problem, set()).add(row.solution)
    assert all(len(solutions) >= 3 for solutions in by_prompt.values())
    if name == "coins":
        seen = {row.image.tobytes() for row in train}
        shared = sum(row.image.tobytes() in seen for row in held_out)
        assert shared == 0


def test_where_a_folder_lies_hides_none_of_its_files(tmp_path, monkeypatch):
    folder = write(tmp_path / ".cache" / "set", table(), "train-0.parquet")
    write(folder / ".half", table(), "test-0.parquet")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for path in (folder, Path("../.cache/set")):
        assert [file.name for file in find_set(path).files] == ["train-0.parquet"]
        assert splits_of(path) == ["train"]


def test_photographs_of_parquet_are_read_a_few_at_a_time(tmp_path):
    noise = random.Random(0).randbytes(50_000)
    images = [{"bytes": noise[i:] + noise[:i], "path": None} for i in range(600)]
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": images}), file)
    del images
    tracemalloc.start()
    try:
        rows = sum(1 for _ in ColumnFiles.of_files(file, [file], "Parquet").records())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == 600 and peak < 10e6  # of 30 MB


def test_a_class_of_the_name_none_makes_no_detection(tmp_path):
    names = table(solution=["None", "<answer>rose</answer>"])
    report = check_set(write(tmp_path, names))
    assert report.good == 2 and report.box_formats == {"none": 2} and report.fits == {
        "classification": 2, "detection": 1, "grounding": 1,
    }  # fmt: skip


def test_a_wrong_schedule_is_said_before_any_model_is_loaded(monkeypatch):
    pytest.importorskip("swift")
    from swift_vlrft.swift_plugin import register

    monkeypatch.setenv("VLRFT_IOU_SCHEDULE", "0:0.5,0.1")
    with pytest.raises(ValueError, match="VLRFT_IOU_SCHEDULE='0:0.5,0.1': expected"):
        register([])
