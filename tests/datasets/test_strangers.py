"""Sets, models and archives from strangers: what they may not do to the machine that reads them."""

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.stored_sets import GOLD, PROBLEM, picture, saved_dataset, saved_dict
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import BadRow, DataError, Row, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.image import image_info, open_image


def rows_of(folder, *changes):
    """One good row, and one for each change."""
    (folder / "0.png").write_bytes(picture())
    row = {"image": "0.png", "problem": PROBLEM, "solution": GOLD}
    lines = [json.dumps(row | change) for change in ({}, *changes)]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return folder / "rows.jsonl"


# ---- images ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "pipe", "pipe/../pipe"])
def test_a_device_or_a_pipe_is_no_image(path, tmp_path):
    """/dev/zero never ends, and a pipe waits for somebody to write into it."""
    os.mkfifo(tmp_path / "pipe")
    report = check_set(rows_of(tmp_path, {"image": path}))
    assert report.good == 1
    assert "is a device or a pipe" in report.problems[0].problem


def test_a_file_that_is_too_large_for_an_image_is_not_read(tmp_path):
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate(3 << 30)  # takes no room on the disk
    report = check_set(rows_of(tmp_path, {"image": "large.png"}))
    assert report.good == 1 and "3.2 GB" in report.problems[0].problem


def chunk(kind, content):
    crc = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def png(data, size=(300, 300), depth=8, colour=2):
    head = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


LINES = b"".join(b"\x01" + bytes(range(225)) * 4 for _ in range(300))
SOUND_HEAD = {
    "whole": LINES,
    "more than the head says": LINES + bytes(10_000_000),
    "a byte too few": LINES[:-1],
    "half": LINES[: len(LINES) // 2],
    "none": b"",
    "a filter that there is not": LINES[:901] + b"\x07" + LINES[902:],
}


@pytest.mark.parametrize("kind", SOUND_HEAD)
def test_a_png_whose_checksums_hold_is_passed_only_if_its_pixels_are_there(kind):
    """As Pillow decodes it."""
    content = png(zlib.compress(SOUND_HEAD[kind]))
    image = {"bytes": content, "path": None}
    try:
        Image.open(io.BytesIO(content)).load()
        decodes = True
    except OSError:
        decodes = False
    assert decodes or not kind.startswith(("whole", "more"))
    if decodes:  # Pillow takes some that end early, and makes the rest black
        assert (image_info(image).width, open_image(image).size) == (300, (300, 300))
        return
    for reader in (image_info, open_image):
        with pytest.raises(DataError, match="is broken"):
            reader(image)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pngs_of_every_depth_are_passed(mode):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (333, 407, 3), dtype=np.uint8))
    if mode == "I;16":
        image = Image.fromarray(rng.integers(0, 65535, (333, 407), dtype=np.uint16))
    buffer = io.BytesIO()
    (image if image.mode == mode else image.convert(mode)).save(buffer, "PNG")
    assert image_info({"bytes": buffer.getvalue(), "path": None}).width == 407


BOMBS = {
    "a gigapixel": png(zlib.compress(bytes(1000)), (30_000, 30_000)),
    "2^31 pixels wide": png(b"", (2**31 - 1, 2**31 - 1), 16, 6),
    "169 megapixels in 41 bytes": png(zlib.compress(bytes(20_000)), (13_000, 13_000), 1, 0),
    "an SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n",
    "HEIC": b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(100),
    "nothing": b"",
}


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_and_what_is_no_picture_are_named_rows(kind, tmp_path):
    (tmp_path / "bad.png").write_bytes(BOMBS[kind])
    report = check_set(rows_of(tmp_path, {"image": "bad.png"}))
    assert (report.rows, report.good) == (2, 1)
    assert "bad.png" in report.problems[0].problem


# ---- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"task": ["detection"]},
        {"task": {"name": "detection"}},
        {"frame": ["norm1000"]},
        {"frame": {"a": [1]}},
    ],
)
def test_a_task_or_a_frame_that_is_no_text_is_a_bad_row(change, tmp_path):
    path = rows_of(tmp_path, change)
    report = check_set(path)
    assert (report.rows, report.good) == (2, 1)
    (name,) = change
    assert f"the {name} is" in report.problems[0].problem
    assert convert_folder(path, tmp_path / "out", keep_going=True).rows == 1


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a\x00b.png", "x/" * 3000 + "a.png"])
def test_a_name_that_no_disk_has_is_a_bad_row(name, tmp_path):
    (tmp_path / "0.png").write_bytes(picture())
    row = {"img_filename": "0.png", "bbox": [10, 5, 20, 10], "instruction": "close it"}
    (tmp_path / "set.json").write_text(json.dumps([row, row | {"img_filename": name}]))
    good, bad = read_rows(tmp_path / "set.json", keep_going=True)
    assert isinstance(good, Row)
    assert isinstance(bad, BadRow) or check_set(tmp_path / "set.json").good == 1


def test_a_column_whose_name_no_file_can_store_is_named(tmp_path):
    with pytest.raises(DataError, match=r"the column '\\ud800' cannot be stored"):
        convert_folder(rows_of(tmp_path, {"\ud800": 1}), tmp_path / "out")


@pytest.mark.parametrize("where", ["column", "text"])
def test_parquet_that_is_not_utf_8_is_named(where, tmp_path):
    table = {"image": [picture()], "problem": ["QQQQ"], "solution": [GOLD], "WWWW": ["a"]}
    pq.write_table(
        pa.table(table), tmp_path / "a.parquet", compression="none", use_dictionary=False
    )
    content = (tmp_path / "a.parquet").read_bytes()
    old = b"WWWW" if where == "column" else b"QQQQ"
    (tmp_path / "a.parquet").write_bytes(content.replace(old, b"\xff\xfe\xfd\xfc"))
    with pytest.raises(DataError, match=r"a\.parquet"):
        list(read_rows(tmp_path / "a.parquet"))


# ---- paths that climb, archives, pickles -----------------------------------------------------


@pytest.mark.parametrize("name", ["../other/data.arrow", "/etc/passwd", "a/../../b", "", None, 3])
def test_a_saved_set_reads_no_file_outside_of_its_folder(name, tmp_path):
    folder = saved_dataset(tmp_path)
    state = json.loads((folder / "state.json").read_text())
    state["_data_files"] = [{"filename": name}]
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=r"state\.json is damaged .*no name of a file in it"):
        list(read_rows(folder))


@pytest.mark.parametrize("name", ["../saved", "/tmp", "..", None])
def test_a_saved_dictionary_has_no_split_outside_of_its_folder(name, tmp_path):
    saved_dataset(tmp_path)
    folder = saved_dict(tmp_path)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [name]}))
    with pytest.raises(DataError, match=r"dataset_dict\.json is damaged"):
        list(read_rows(folder, split="train"))


def _tar(file):
    with tarfile.open(file, "w") as made:
        for name in ("../climbed.txt", "/tmp/vlrft-climbed.txt", "0.png"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            made.addfile(entry, io.BytesIO(b"x"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        made.addfile(link)


def _zip(file):
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("../climbed.txt", "x")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("name, make", [("set.tar", _tar), ("set.zip", _zip)])
def test_archives_are_not_unpacked(name, make, alone, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    make(folder / name)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="no data set that is known"):
        list(read_rows(folder / name if alone else folder))
    assert sorted(tmp_path.rglob("*")) == before


class Runs:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


PICKLES = (
    *("pytorch_model.bin", "adapter_model.bin", "training_args.bin", "optimizer.pt"),
    *("scheduler.pt", "rng_state.pth", "rng_state_0.pth", "model.pkl"),
)


def test_no_command_unpickles_what_lies_in_a_checkpoint(tmp_path):
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(Runs(tmp_path / "unpickled")))
    (folder / "config.json").write_text('{"model_type": "qwen2_5_vl"}')
    (folder / "trainer_state.json").write_text('{"global_step": 1, "log_history": []}')
    for command in (
        [
            "check",
            f"swift rlhf --rlhf_type grpo --model {folder} --resume_from_checkpoint {folder}",
        ],
        ["report", str(folder)],
        [
            "publish",
            str(folder),
            "--hub",
            "hf",
            "--repo",
            "a/b",
            "--card-only",
            str(tmp_path / "c"),
        ],
        ["data", "check", str(folder)],
        ["plan", str(folder), "--quick"],
    ):
        CliRunner().invoke(app, command)
        assert not (tmp_path / "unpickled").exists(), command


@pytest.mark.slow
@pytest.mark.parametrize("safe", [True, False])
def test_a_model_whose_pickle_holds_code_does_not_run_it(safe, tmp_path):
    """transformers takes safetensors where they are, and tensors alone from a pickle."""
    from transformers import AutoModelForImageTextToText

    from swift_vlrft.tiny.checkpoint import write_tiny

    folder = tmp_path / "model"
    write_tiny("qwen2_5_vl", folder, seed=0)
    if not safe:
        (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Runs(tmp_path / "unpickled")))
    try:
        AutoModelForImageTextToText.from_pretrained(folder)
        loaded = True
    except Exception:  # of torch: it only loads weights
        loaded = False
    assert loaded == safe
    assert not (tmp_path / "unpickled").exists()
