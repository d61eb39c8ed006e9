"""A ViRFT folder on disk: what is found in it, what is wrong with it, and the rows it becomes."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from swift_vlrft.datasets import SOURCES, DataError
from swift_vlrft.datasets.check import check_parquet
from swift_vlrft.datasets.parquet import parquet_files
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import TASKS, known_task


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


def test_a_virft_folder_passes_and_its_task_is_read_off_the_solutions(tmp_path):
    assert check_parquet(write(tmp_path / "x", table())) == (2, "detection")
    names = table(solution=["<answer>rose</answer>", "tulip"])
    assert check_parquet(write(tmp_path / "y", names)) == (2, "classification")


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path):
    folder = write(tmp_path, table(solution=None, answer=["rose", "tulip"]))
    with pytest.raises(
        DataError, match=r"lacks the column solution; it has image, problem, answer"
    ):
        check_parquet(folder)
    assert check_parquet(folder, rename={"answer": "solution"}) == (2, "classification")


def test_a_solution_that_cannot_be_read_is_named_by_file_and_row(tmp_path):
    write(tmp_path, table(), "train-0.parquet")
    write(
        tmp_path,
        table(solution=["<answer>[{'Position': [1, 2]}]</answer>", "No Objects"]),
        "train-1.parquet",
    )
    with pytest.raises(
        DataError,
        match=r"train-1.parquet, row 0: the solution .* cannot be read as a list of boxes",
    ):
        check_parquet(tmp_path)


def test_an_empty_prompt_is_named(tmp_path):
    with pytest.raises(DataError, match=r"row 1: the problem is ' '"):
        check_parquet(write(tmp_path, table(problem=["a", " "])))


def test_a_task_column_decides_row_by_row(tmp_path):
    mixed = table(solution=["4", "<answer>[1, 2, 3, 4]</answer>"], task=["counting", "grounding"])
    assert check_parquet(write(tmp_path / "a", mixed))[0] == 2
    wrong = table(solution=["four", "rose"], task=["counting", "flower"])
    with pytest.raises(DataError) as error:
        check_parquet(write(tmp_path / "b", wrong))
    assert "cannot be read as a whole number (counting)" in str(error.value)
    assert "unknown task 'flower'; known: detection, grounding" in str(error.value)


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "train-0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"train-0.parquet cannot be read as Parquet"):
        check_parquet(tmp_path)


def test_shards_with_other_columns_are_refused(tmp_path):
    write(tmp_path, table(), "a.parquet")
    write(tmp_path, table(solution=None), "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet has the columns image, problem"):
        check_parquet(tmp_path)


def test_only_the_train_split_trains(tmp_path):
    for name in (
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
        "test-00000-of-00001.parquet",
    ):
        write(tmp_path / "data", table(), name)
    assert [f.name[:5] for f in parquet_files(tmp_path)] == ["train", "train"]
    with pytest.raises(DataError, match=r"no split 'validation'.*test, train"):
        parquet_files(tmp_path, "validation")
    plain = write(tmp_path / "plain", table(), "0000.parquet")
    assert len(parquet_files(plain)) == 1


def test_training_rows_leave_gold_image_and_prompt_as_they_were(tmp_path):
    datasets = pytest.importorskip("datasets")
    from swift_vlrft.datasets.rows import training_rows

    task = known_task("detection")
    rows = task.make(random.Random(0), 5)
    write_parquet(rows, tmp_path)
    raw = datasets.load_dataset("parquet", data_files=str(tmp_path / "*.parquet"), split="train")
    for made in (training_rows(raw), training_rows(raw.to_iterable_dataset())):
        for row, got in zip(rows, made, strict=True):
            assert got["messages"] == [{"role": "user", "content": "<image>" + row.problem}]
            assert got["solution"] == row.solution
            assert (got["task"], got["frame"]) == ("detection", "norm1000")
            assert (
                Image.open(io.BytesIO(got["images"][0]["bytes"])).tobytes() == row.image.tobytes()
            )


def test_training_rows_survive_selection_and_keep_further_columns(tmp_path):
    datasets = pytest.importorskip("datasets")
    from swift_vlrft.datasets.rows import training_rows

    write(tmp_path, table(aliases=[["hound"], None]))
    raw = datasets.load_dataset("parquet", data_files=str(tmp_path / "*.parquet"), split="train")
    made = training_rows(raw.select([1, 0]))
    assert made["aliases"] == [None, ["hound"]]
    assert made[1]["images"][0]["path"] == "a.png"


def test_the_hub_sets_are_those_that_were_published():
    assert {s.hub_id for s in SOURCES} >= {
        "laolao77/ViRFT_COCO_base65",
        "laolao77/ViRFT_CLS_car196_4shot",
    }


@pytest.mark.parametrize("name", TASKS)
def test_a_demo_prompt_never_tells_the_answer(name):
    task = known_task(name)
    train, held_out = (
        task.make(random.Random(0), task.train_rows),
        task.make(random.Random(1), task.held_out_rows),
    )
    by_prompt: dict[str, set[str]] = {}
    for row in train:
        by_prompt.setdefault(row.problem, set()).add(row.solution)
    assert all(len(solutions) >= 4 for solutions in by_prompt.values())
    if name == "digits":
        seen = {row.image.tobytes() for row in train}
        shared = sum(row.image.tobytes() in seen for row in held_out)
        assert shared == 0
