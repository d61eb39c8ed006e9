"""Sets, models and archives from strangers: what they may not do to the machine that reads them."""

import io
import json
import os
import pickle
import shutil
import struct
import zlib

import pytest
from PIL import Image
from support.stored_sets import (
    GOLD,
    PROBLEM,
    command,
    picture,
    saved_dataset,
    saved_dict,
    write_table,
)

from swift_vlrft.datasets import BadRow, DataError, Row, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.image import image_info, open_image


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
    said = "3.2 GB" if path == "large.png" else "is a device or a pipe"
    assert report.good == 1 and said in report.problems[0].problem


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
    assert report.good == 1 and "bad.png" in report.problems[0].problem


# ---- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a\x00b.png", "x/" * 3000 + "a.png"])
def test_a_name_that_no_disk_has_is_a_bad_row(name, tmp_path):
    (tmp_path / "0.png").write_bytes(picture())
    row = {"image_path": "0.png", "boxes": [[10, 5, 20, 10]], "instruction": "close it"}
    (tmp_path / "set.json").write_text(json.dumps([row, row | {"image_path": name}]))
    good, bad = read_rows(tmp_path / "set.json", keep_going=True)
    assert isinstance(good, Row)
    assert isinstance(bad, BadRow) or check_set(tmp_path / "set.json").good == 1


def test_a_column_whose_name_no_file_can_store_is_named(tmp_path):
    with pytest.raises(DataError, match=r"'\\ud800'"):
        convert_folder(rows_of(tmp_path, {"\ud800": 1}), tmp_path / "out")


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


@pytest.mark.parametrize("name", ["../other/data.arrow", "/etc/passwd", "a/../../b", "", None, 3])
def test_a_saved_set_reads_no_file_outside_of_its_folder(name, tmp_path):
    folder = saved_dataset(tmp_path)
    state = json.loads((folder / "state.json").read_text())
    state["_data_files"] = [{"filename": name}]
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=r"state\.json is damaged .*no name of a file in it"):
        list(read_rows(folder))


def test_a_saved_dictionary_has_no_split_outside_of_its_folder(tmp_path):
    saved_dataset(tmp_path)
    folder = saved_dict(tmp_path)
    for name in ("../saved", "/tmp", "..", None):
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": [name]}))
        with pytest.raises(DataError, match=r"dataset_dict\.json is damaged"):
            list(read_rows(folder, split="train"))


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_archives_are_not_unpacked(form, tmp_path):
    folder = rows_of(tmp_path / "rows").parent
    archive = shutil.make_archive(str(tmp_path / "set" / "set"), form, folder)
    before = sorted(tmp_path.rglob("*"))
    for path in (tmp_path / "set", archive):
        with pytest.raises(DataError, match="no known data set"):
            list(read_rows(path))
    assert sorted(tmp_path.rglob("*")) == before


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
