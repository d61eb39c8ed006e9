"""Pictures of every kind, stored every way: what `data check` passes, conversion writes and
training reads, with the pixels that Pillow itself reads.
"""

import base64
import io
import json
import os
import random
import struct
import zlib
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps
from support.stored_sets import command, train_on, write_table

from swift_vlrft.datasets import DataError, open_image, read_rows, to_dataset
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.column_files import ColumnFiles
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.image import try_image_size
from swift_vlrft.report.set_page import page_of

WIDE = (40, 24)
LARGE = (400, 300)


def photo(size=WIDE, seed=0):
    """Uneven in every direction, so that a turned or mirrored copy is another picture."""
    width, height = size
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.linspace(0, 200, width), np.linspace(0, 200, height))
    base = np.stack([x, y, (x + 2 * y) / 3], axis=-1)
    return Image.fromarray((base + rng.uniform(0, 50, base.shape)).astype(np.uint8))


def saved(image, form, **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def turned_by(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def with_a_byte_changed(content):
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 255
    return bytes(changed)


def bomb(png):
    """A PNG whose head claims 40,000 x 40,000 pixels."""
    head = struct.pack(">II", 40_000, 40_000) + png[24:29]
    return png[:16] + head + struct.pack(">I", zlib.crc32(b"IHDR" + head)) + png[33:]


def with_exif_behind(png):
    """The block that says how it is turned, behind the picture."""
    at = png.index(b"eXIf") - 4
    end = at + 12 + int.from_bytes(png[at : at + 4])
    return png[:at] + png[end:-12] + png[at:end] + png[-12:]


def with_a_bad_table(jpeg):
    """Whole, but a decoder ends on a table of codes that is none."""
    at = jpeg.index(b"\xff\xc4") + 5
    return jpeg[:at] + b"\xff" * 8 + jpeg[at + 8 :]


GREY16 = np.linspace(0, 65535, 24 * 40).astype(np.uint16).reshape(24, 40)


def grey(values, form="TIFF"):
    return saved(Image.fromarray(values), form)


def pictures():
    """The file's bytes by name."""
    p, large = photo(), photo(LARGE)
    clear = p.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(WIDE))
    modes = {"PNG": "1 LA P RGBA", "JPEG": "L CMYK", "WEBP": "RGB", "TIFF": "1 RGB", "BMP": "RGB"}
    pairs = [(form, mode) for form, each in modes.items() for mode in each.split()]
    return {
        **{f"{form} {mode}": saved(clear.convert(mode), form) for form, mode in pairs},
        **{f"JPEG turned {n}": saved(p, "JPEG", exif=turned_by(n)) for n in range(1, 9)},
        "PNG turned": saved(large, "PNG", exif=turned_by(6)),
        "PNG turned, as is said behind": with_exif_behind(saved(p, "PNG", exif=turned_by(6))),
        "GIF animated": saved(p, "GIF", save_all=True, append_images=[photo(seed=1)]),
        "JPEG, bytes behind": saved(large, "JPEG") + bytes(9000),  # as some cameras write
        "JPEG, no EXIF that is read": saved(p, "JPEG", exif=b"Exif\0\0garbage"),
    }


BAD = {
    "nothing": (b"", "no known format"),
    "a page": (b"<!DOCTYPE html><html>404</html>", "no known format"),
    "PNG 16 bits": (grey(GREY16, "PNG"), "more than 8 bits"),
    "TIFF 16 bits, big end": (grey(GREY16.astype(">u2")), "more than 8 bits"),
    "32 bits": (grey(GREY16.astype(np.int32)), "more than 8 bits"),
    "floats": (grey((GREY16 / 65535).astype(np.float32)), "more than 8 bits"),
    "tall once turned": (saved(photo((2010, 10)), "JPEG", exif=turned_by(6)), "10x2010"),
    **{
        f"{form} cut of {size[0]}": (saved(photo(size), form)[:cut], "")
        for form in ("PNG", "JPEG", "WEBP", "TIFF")
        for size, cut in ((WIDE, -300), (LARGE, -8000))
    },
    "PNG, a byte changed": (with_a_byte_changed(saved(photo(LARGE), "PNG")), "is broken"),
    "bomb": (bomb(saved(photo(), "PNG")), "178956970"),
}
"""What no way may take, and what is said of it."""
GOOD = pictures()


def expected(name):
    """Pixels as Pillow alone shows them: upright, RGB."""
    with Image.open(io.BytesIO(GOOD[name])) as opened:
        return np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))


# ---- every way to store them -----------------------------------------------------------------


def rows_of(contents):
    return {
        "image": [{"bytes": content, "path": f"{n}.pic"} for n, content in enumerate(contents)],
        "problem": [f"What is it? {n}" for n in range(len(contents))],
        "solution": ["<answer>rose</answer>"] * len(contents),
        "task": ["classification"] * len(contents),
    }


def files_of(contents, folder):
    (folder / "files").mkdir(parents=True, exist_ok=True)
    for n, content in enumerate(contents):
        (folder / "files" / f"{n}.pic").write_bytes(content)
    return [f"files/{n}.pic" for n in range(len(contents))]


def as_structs(contents, folder):
    return rows_of(contents)["image"]


COLUMNS = {
    "structs": as_structs,
    "bytes": lambda contents, folder: contents,
    "large bytes": lambda contents, folder: pa.array(contents, pa.large_binary()),
    "lists": lambda contents, folder: [[image] for image in as_structs(contents, folder)],
    "paths": lambda contents, folder: files_of(contents, folder),
    "repeated paths": lambda c, folder: pa.array(files_of(c, folder)).dictionary_encode(),
    "structs of paths": lambda c, folder: [{"path": path} for path in files_of(c, folder)],
}


def parquet(contents, folder, how="structs"):
    columns = rows_of(contents) | {"image": COLUMNS[how](contents, folder)}
    return write_table(folder / "train.parquet", columns)


def arrow(contents, folder):
    from datasets import Dataset

    Dataset.from_dict(rows_of(contents)).save_to_disk(folder / "saved")
    return folder / "saved"


def jsonl(contents, folder, images=None):
    columns = rows_of(contents) | {"image": images or files_of(contents, folder)}
    rows = pa.table(columns).to_pylist()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def in_base64(contents, folder):
    urls = [f"data:image/any;base64,{base64.b64encode(content).decode()}" for content in contents]
    return jsonl(contents, folder, urls)


WAYS = {"parquet": parquet, "jsonl": jsonl, "arrow": arrow, "base64": in_base64}
WAYS |= {how: partial(parquet, how=how) for how in list(COLUMNS)[1:]}
SOME = ["PNG RGBA", "PNG turned", "PNG 16 bits", "JPEG turned 6", "GIF animated"]
SOME += ["PNG cut of 400", "floats"]
"""A picture for each thing that is done with one."""


def shown_by_swift(image):
    """What Qwen's template of ms-swift makes of a row's image: a path before bytes."""
    if image["path"] and os.path.exists(image["path"]):
        with Image.open(image["path"]) as opened:
            if opened.mode == "RGBA":  # qwen_vl_utils.to_rgb
                white = Image.new("RGB", opened.size, (255, 255, 255))
                white.paste(opened, mask=opened.split()[3])
                return np.asarray(white)
            return np.asarray(opened.convert("RGB"))
    return np.asarray(Image.open(io.BytesIO(image["bytes"])).convert("RGB"))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_check_conversion_and_training_take_the_same_rows_with_the_same_pixels(
    way, tmp_path, monkeypatch
):
    names = [*GOOD, *BAD] if way == "parquet" else [*SOME]
    random.Random(way).shuffle(names)
    path = WAYS[way]([GOOD.get(name) or BAD[name][0] for name in names], tmp_path)
    good = [name for name in names if name in GOOD]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for n in range(len(names)):  # files of the same names where ms-swift runs are not the pictures
        (elsewhere / f"{n}.pic").write_bytes(saved(Image.new("RGB", (3, 3)), "PNG"))
    monkeypatch.chdir(elsewhere)

    report = check_set(path)
    dataset, trained = train_on(path, tmp_path / "cache")
    convert_folder(path, tmp_path / "out", keep_going=True)
    written = pq.read_table(tmp_path / "out" / "data").to_pylist()
    assert (report.rows, report.good) == (trained.rows, trained.good) == (len(names), len(good))
    assert len(dataset) == len(written) == len(good)
    assert sorted(map(str, report.problems)) == sorted(map(str, trained.problems))
    for name, row, stored in zip(good, dataset, written, strict=True):
        for image in (row["images"][0], stored["image"] | {"path": ""}):
            assert np.array_equal(shown_by_swift(image), expected(name)), name


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_picture_is_said(name):
    content, message = BAD[name]
    problem = try_image_size({"bytes": content, "path": "1.pic"})
    assert "'1.pic'" in problem and message in problem
    assert " at 0x" not in problem  # no address in memory
    assert try_image_size({"bytes": content, "path": "1.pic"}, decoded=False) == problem


def test_an_image_is_opened_as_pillow_shows_it():
    for name, content in GOOD.items():
        shown = open_image({"bytes": content, "path": None})
        assert np.array_equal(shown, expected(name)), name
        sizes = [try_image_size({"bytes": content}, decoded=decoded) for decoded in (True, False)]
        assert sizes[0] == sizes[1], name


@pytest.mark.parametrize("way", ["parquet", "jsonl", "base64"])
def test_damage_inside_a_jpeg_is_found_by_check_and_named_when_its_row_trains(way, tmp_path):
    path = WAYS[way]([UPRIGHT, with_a_bad_table(saved(PHOTO, "JPEG"))], tmp_path)
    (problem,) = check_set(path).problems
    dataset, report = train_on(path, tmp_path / "cache")
    assert "is broken" in problem.problem and report.good == len(dataset) == 2
    assert dataset[0]["images"]
    with pytest.raises(DataError) as error:
        dataset[1]
    assert str(problem.place) in str(error.value) and problem.problem in str(error.value)


@pytest.mark.parametrize("way", ["parquet", "jsonl"])
def test_datasets_writes_rows_with_their_pictures_and_parquet_without(way, tmp_path):
    from datasets import Dataset, load_from_disk

    dataset = to_dataset(path := WAYS[way]([UPRIGHT] * 2, tmp_path))
    dataset.to_parquet(tmp_path / "out.parquet")
    assert [*Dataset.from_parquet(f"{tmp_path}/out.parquet")] == [*dataset]
    dataset.save_to_disk(tmp_path / "saved")
    path.unlink()
    for row in load_from_disk(tmp_path / "saved"):
        assert row["images"] == [{"bytes": UPRIGHT, "path": None}]


# ---- boxes and the picture that they were drawn on -------------------------------------------


PHOTO = photo((64, 48))
UPRIGHT = saved(PHOTO, "PNG")


def one_coco(folder, content=UPRIGHT, stated=(64, 48)):
    file, image = folder / "annotations" / "instances_train2017.json", folder / "train2017/1.jpg"
    for one in (file, image):
        one.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(content)
    annotations = {
        "images": [{"id": 7, "file_name": "1.jpg", "width": stated[0], "height": stated[1]}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 18, "bbox": [0, 0, 10, 10]}],
    }
    file.write_text(json.dumps(annotations))
    return file


def one_row(folder, content, stated, kind=int, **more):
    row = {"width": kind(stated[0]), "height": kind(stated[1])} | more
    image = {"bytes": content, "path": "1.jpg"}
    return write_table(folder / "train.parquet", [row | {"image": image}])


SIZES = {
    "drawn upright": (saved(PHOTO, "JPEG", exif=turned_by(6)), (48, 64), (48, 64)),
    "drawn as stored": (saved(PHOTO, "JPEG", exif=turned_by(6)), (64, 48), (48, 64)),
    "a smaller copy": (saved(photo((32, 24)), "JPEG"), (64, 48), (32, 24)),
    "sizes swapped": (UPRIGHT, (48, 64), (64, 48)),
}
"""A picture, the size that its annotations state, and its own."""
OBJECTS = {"image_id": 7, "objects": {"bbox": [[0.0, 0.0, 10.0, 10.0]], "category": ["dog"]}}
BOXED = {"problem": "Where?", "solution": "<answer>[0, 0, 10, 10]</answer>", "task": "grounding"}
PIXELS = BOXED | {"id": 7, "frame": "pixels"}
DRAWN = {
    "coco": (one_coco, [*SIZES]),
    "coco in parquet": (partial(one_row, **OBJECTS), [*SIZES][:3]),
    "pixels, sizes as text": (partial(one_row, kind=str, **PIXELS), [*SIZES][:3]),
    # These fit a copy of any size, but no turned one.
    "thousandths": (partial(one_row, **BOXED), [*SIZES]),
}


@pytest.mark.parametrize(
    ("way", "case"), [(way, case) for way, (_, cases) in DRAWN.items() for case in cases]
)
def test_boxes_are_drawn_on_the_picture_that_is_there(way, case, tmp_path):
    content, stated, (width, height) = SIZES[case]
    fits = stated == (width, height) or (way == "thousandths" and case == "a smaller copy")
    path = DRAWN[way][0](tmp_path, content, stated)
    report = check_set(path)
    assert (report.rows, report.good) == (1, int(fits)), report.problems
    (row,) = read_rows(path)
    wrong = f"the annotations say {stated[0]}x{stated[1]}"
    assert (wrong in page_of([row], "set")) is not fits
    if way == "coco":
        words = ["data", "coco", path, tmp_path / "train2017", tmp_path / "built", "--negatives"]
        code, said = command(*words, "0", "--categories", "dog")
        assert code == (0 if fits else 2) and (fits or ("image 7: " in said and wrong in said))
    if fits:
        assert len(train_on(path, tmp_path / "cache")[0]) == 1
        assert convert_folder(path, tmp_path / "out").rows == 1
        return
    problem = report.problems[0].problem
    assert f"1.jpg is {width}x{height}" in problem and wrong in problem
    assert way == "thousandths" or "image 7: " in problem
    for use in (train_on, convert_folder):
        with pytest.raises(DataError) as error:
            use(path, tmp_path / use.__name__)
        assert problem in str(error.value)


# ---- where the images are --------------------------------------------------------------------


@pytest.mark.parametrize("target", ["relative", "folder"])
def test_links_are_followed_wherever_they_lead(target, tmp_path):
    """Hugging Face's snapshots, DVC and git-annex keep pictures elsewhere."""
    file = one_coco(tmp_path)
    store, images = tmp_path / "blobs", tmp_path / "train2017"
    store.mkdir()
    (images / "1.jpg").rename(store / "0a1b")
    if target == "folder":
        (store / "0a1b").rename(store / "1.jpg")
        images.rmdir()
        images.symlink_to(store)
    else:
        (images / "1.jpg").symlink_to("../blobs/0a1b")
    assert check_set(file).good == 1
    assert len(train_on(file, tmp_path / "cache")[0]) == 1
    words = ["data", "coco", file, images, tmp_path / "out", "--categories", "dog"]
    assert command(*words)[0] == 0
    assert convert_folder(file, tmp_path / "converted").rows == 1
    if target != "folder":
        (store / "0a1b").unlink()
        assert "1.jpg does not exist" in check_set(file).problems[0].problem


def with_another_image(file, name, at=1):
    content = json.loads(file.read_text())
    content["images"].insert(at, content["images"][0] | {"id": 8, "file_name": name})
    content["annotations"].append(content["annotations"][0] | {"id": 2, "image_id": 8})
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "/absolute"])
def test_a_name_that_climbs_out_of_the_folder_is_refused_everywhere(name, tmp_path):
    file = one_coco(tmp_path)
    (tmp_path / "secret.png").write_bytes(UPRIGHT)
    name = str(tmp_path / "secret.png") if name == "/absolute" else name
    with_another_image(file, name)
    report = check_set(file)
    problem = report.problems[0].problem
    assert (report.rows, report.good) == (2, 1) and f"{name} lies outside the root" in problem
    dataset, trained = train_on(file, tmp_path / "cache")
    assert len(dataset) == 1 and trained.problems == report.problems
    assert convert_folder(file, tmp_path / "out", keep_going=True).left_out[0].problem == problem
    words = ["data", "coco", file, tmp_path / "train2017", tmp_path / "coco", "--categories"]
    code, said = command(*words, "dog")
    assert code == 2 and problem in said


def test_a_first_picture_that_is_missing_hides_no_folder(tmp_path):
    file = one_coco(tmp_path)
    with_another_image(file, "0.png", at=0)
    report = check_set(file)
    assert (report.rows, report.good) == (2, 1)
    assert "0.png does not exist" in report.problems[0].problem


def test_what_qwen_cannot_resize_does_not_train(tmp_path):
    """qwen-vl-utils leaves a side of no pixel where a thin picture meets a low limit."""
    from swift_vlrft.families.image_resize import ImageResize

    path = parquet([saved(photo((1400, 10)), "PNG"), saved(photo(), "PNG")], tmp_path)
    resize = ImageResize("qwen2_5_vl", 3136, 12_544)
    dataset, report = train_on(path, tmp_path / "cache", resize=resize)
    assert len(dataset) == 1 and "max_pixels 12544" in report.listed()


def test_eval_refuses_answers_to_a_turned_picture(tmp_path):
    file = one_coco(tmp_path)
    box = "<answer>[[0, 0, 156, 208]]</answer>"
    line = {"id": "7/dog", "image_id": 7, "category": "dog", "frame": "norm1000"}
    line |= {"completion": box, "solution": box, "image": "x/1.jpg"}
    for size, fits in (((64, 48), True), ((640, 480), True), ((48, 64), False)):
        line |= {"width": size[0], "height": size[1]}
        (tmp_path / "answers.jsonl").write_text(json.dumps(line) + "\n")
        words = ["eval", "--predictions", tmp_path / "answers.jsonl", "--gold", file]
        code, said = command(*words, "--task", "detection")
        assert code == (0 if fits else 2), said
        assert fits or "image 7: x/1.jpg is 48x64" in said


@pytest.mark.slow
def test_a_model_is_not_asked_about_a_picture_of_another_size(tmp_path):
    from swift_vlrft.evaluation.predictions import EvaluationError, Problems
    from swift_vlrft.evaluation.queries import QuerySet, Settings
    from swift_vlrft.swift_plugin.inference import answer_batch

    def ask(requests, _):
        return [RuntimeError("asked") for _ in requests]

    for case, (content, stated, size) in SIZES.items():
        fits = stated == size
        file = one_coco(tmp_path / case, content, stated)
        settings, problems = Settings("m", file, "detection"), Problems()
        asked = list(QuerySet(settings).read(problems))
        with pytest.raises(EvaluationError, match="asked") if fits else nullcontext():
            assert answer_batch(ask, SimpleNamespace(n=1), settings, asked, problems) == []
        (told,) = problems.counts.values() or [0]
        assert told == (not fits), case


def test_a_file_that_is_written_anew_lends_no_picture_to_other_rows(tmp_path, monkeypatch):
    old, new = ([saved(photo(seed=seed), "PNG")] for seed in (1, 2))
    file = parquet(old, tmp_path)
    kept = train_on(file)[0]
    assert kept[0]["images"][0]["bytes"] == old[0]
    parquet(new, tmp_path)
    assert train_on(file)[0][0]["images"][0]["bytes"] == new[0]
    with pytest.raises(DataError, match="has changed"):
        kept[0]
    records = ColumnFiles.records
    monkeypatch.setattr(ColumnFiles, "records", lambda *a: (parquet(old, tmp_path), records(*a))[1])
    while_read = train_on(file)[0]
    with pytest.raises(DataError, match="has changed"):
        while_read[0]
    file.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        kept[0]
