"""Sets, models and archives from strangers: what they may not do to the machine that reads them."""

import json
import os
import pickle

import pytest
from support.stored_sets import GOLD, PROBLEM, command, picture, write_table

from swift_vlrft.datasets import BadRow, DataError, Row, read_rows
from swift_vlrft.datasets.check import check_set


def rows_of(folder, *changes):
    """One good row, and one for each change."""
    folder.mkdir(exist_ok=True)
    (folder / "0.png").write_bytes(picture())
    row = {"image": "0.png", "problem": PROBLEM, "solution": GOLD}
    lines = [json.dumps(row | change) for change in ({}, *changes)]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return folder / "rows.jsonl"


# ---- images ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "pipe", "pipe/../pipe", "large.png"])
def test_a_device_a_pipe_and_a_file_too_large_for_an_image_are_not_read(path, tmp_path):
    """/dev/zero never ends, and a pipe waits for somebody to write into it."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(3 << 30)  # takes no room on the disk
    report = check_set(rows_of(tmp_path, {"image": path}))
    said = "3.2 GB" if path == "large.png" else "no file"
    assert report.good == 1 and said in report.problems[0].problem


# ---- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a\x00b.png", "x/" * 3000 + "a.png"])
def test_a_name_that_no_disk_has_is_a_bad_row(name, tmp_path):
    (tmp_path / "0.png").write_bytes(picture())
    row = {"image_path": "0.png", "boxes": [[10, 5, 20, 10]], "instruction": "close it"}
    (tmp_path / "set.json").write_text(json.dumps([row, row | {"image_path": name}]))
    good, bad = read_rows(tmp_path / "set.json", keep_going=True)
    assert isinstance(good, Row)
    assert isinstance(bad, BadRow) or check_set(tmp_path / "set.json").good == 1


@pytest.mark.parametrize("where", ["column", "text"])
def test_parquet_that_is_not_utf_8_is_named(where, tmp_path):
    table = {"image": [picture()], "problem": ["QQQQ"], "solution": [GOLD], "WWWW": ["a"]}
    write_table(tmp_path / "a.parquet", table, compression="none", use_dictionary=False)
    content = (tmp_path / "a.parquet").read_bytes()
    old = b"WWWW" if where == "column" else b"QQQQ"
    (tmp_path / "a.parquet").write_bytes(content.replace(old, b"\xff\xfe\xfd\xfc"))
    with pytest.raises(DataError, match=r"a\.parquet"):
        list(read_rows(tmp_path / "a.parquet"))


# ---- paths that climb, archives, pickles -----------------------------------------------------


class Runs:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


PICKLES = """pytorch_model.bin adapter_model.bin training_args.bin optimizer.pt scheduler.pt
    rng_state.pth rng_state_0.pth model.pkl"""


def test_no_command_unpickles_what_lies_in_a_checkpoint(tmp_path):
    folder, card = tmp_path / "checkpoint-1", tmp_path / "c"
    folder.mkdir()
    for name in PICKLES.split():
        (folder / name).write_bytes(pickle.dumps(Runs(tmp_path / "unpickled")))
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (folder / "trainer_state.json").write_text('{"global_step": 1, "log_history": []}')
    resumed = f"swift rlhf --rlhf_type grpo --model {folder} --resume_from_checkpoint {folder}"
    for words in (
        ["check", resumed],
        ["report", folder],
        ["publish", folder, "--hub", "hf", "--repo", "a/b", "--card-only", card],
        ["data", "check", folder],
        ["plan", folder],
    ):
        command(*words)
        assert not (tmp_path / "unpickled").exists(), words
