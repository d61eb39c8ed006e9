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
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps, features
from test_training_rows import made
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets import BadRow, DataError, open_image, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.image import ImageInfo, image_info, try_image_info
from swift_vlrft.datasets.training import LoadOptions, streamed_rows
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


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(
        ">I", zlib.crc32(kind + content)
    )  # fmt: skip


def with_exif_behind_the_pixels(png, orientation):
    block = turned_by(orientation).tobytes().removeprefix(b"Exif\0\0")
    return png[:-12] + chunk(b"eXIf", block) + png[-12:]


def with_newline_near_the_start(**options):
    """A WebP whose first 100 bytes hold 0x0A, which Pillow's IM reader looks for."""
    for seed in range(300):
        content = saved(photo(seed=seed), "WEBP", **options)
        if b"\n" in content[:100]:
            return content
    raise AssertionError("none found")


def xmp_turned(orientation):
    xmp = f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'
    return saved(photo(), "JPEG", xmp=xmp.encode())


def tiled_tiff():
    """Grey, 32 x 32 in four tiles, which Pillow itself cannot write."""
    grey = np.arange(1024, dtype=np.uint16).reshape(32, 32).astype(np.uint8)
    tiles = [grey[y : y + 16, x : x + 16].tobytes() for y in (0, 16) for x in (0, 16)]
    first = 8 + 2 + 10 * 12 + 4 + 32
    tags = [
        (256, 4, 1, 32), (257, 4, 1, 32), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
        (277, 3, 1, 1), (322, 4, 1, 16), (323, 4, 1, 16), (324, 4, 4, first - 32),
        (325, 4, 4, first - 16),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    offsets = struct.pack("<4I", *(first + 256 * n for n in range(4)))
    head = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    return head + offsets + struct.pack("<4I", *[256] * 4) + b"".join(tiles)


GREY16 = np.linspace(0, 65535, 24 * 40).astype(np.uint16).reshape(24, 40)
GREY8 = (GREY16 >> 8).astype(np.uint8)
FLOAT = (GREY16 / 65535).astype(np.float32)


def grey(values, form="TIFF", **options):
    return saved(Image.fromarray(values), form, **options)


def pictures():
    """name -> the file's bytes, and its grey values where Pillow's own conversion would not do."""
    p = photo()
    clear = p.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(WIDE))
    found = {
        "png": saved(p, "PNG"),
        "png large": saved(photo(LARGE), "PNG"),
        "png alpha": saved(clear, "PNG"),
        "png alpha large": saved(clear.resize(LARGE), "PNG"),
        "png grey": saved(p.convert("L"), "PNG"),
        "png grey alpha": saved(clear.convert("LA"), "PNG"),
        "png 1 bit": saved(p.convert("1"), "PNG"),
        "png palette": saved(p.quantize(16), "PNG"),
        "png palette, clear": saved(p.quantize(16), "PNG", transparency=3),
        "png animated": saved(p, "PNG", save_all=True, append_images=[photo(seed=1)]),
        "png turned": saved(p, "PNG", exif=turned_by(6)),
        "png turned, large": saved(photo(LARGE), "PNG", exif=turned_by(8)),
        "png turned behind": with_exif_behind_the_pixels(saved(p, "PNG"), 6),
        "png turned behind, large": with_exif_behind_the_pixels(saved(photo(LARGE), "PNG"), 5),
        "jpeg large": saved(photo(LARGE), "JPEG"),
        "jpeg grey": saved(p.convert("L"), "JPEG"),
        "jpeg cmyk": saved(p.convert("CMYK"), "JPEG"),
        "jpeg progressive": saved(photo(LARGE), "JPEG", progressive=True),
        "jpeg turned by xmp": xmp_turned(6),
        "jpeg turned, large": saved(photo(LARGE), "JPEG", exif=turned_by(7)),
        "jpeg, two pictures": saved(p, "MPO", save_all=True, append_images=[photo(seed=1)]),
        **{f"jpeg turned {n}": saved(p, "JPEG", exif=turned_by(n)) for n in range(1, 9)},
        "webp": saved(p, "WEBP"),
        "webp newline": with_newline_near_the_start(),
        "webp exact newline": with_newline_near_the_start(lossless=True),
        "webp alpha": saved(clear, "WEBP", lossless=True),
        "webp animated": saved(p, "WEBP", save_all=True, append_images=[photo(seed=1)]),
        "webp turned": saved(p, "WEBP", exif=turned_by(6)),
        "tiff": saved(p, "TIFF"),
        "tiff lzw": saved(p, "TIFF", compression="tiff_lzw"),
        "tiff cmyk": saved(p.convert("CMYK"), "TIFF"),
        "tiff ycbcr": saved(p.convert("YCbCr"), "TIFF"),
        "tiff 1 bit": saved(p.convert("1"), "TIFF", compression="group4"),
        "tiff lab": saved(p.convert("LAB"), "TIFF"),
        "tiff palette": saved(p.quantize(16), "TIFF"),
        "tiff pages": saved(p, "TIFF", save_all=True, append_images=[photo((30, 30), 1)]),
        "tiff turned": saved(p, "TIFF", exif=turned_by(6)),
        "tiff tiled": tiled_tiff(),
        "gif": saved(p, "GIF"),
        "gif animated": saved(p, "GIF", save_all=True, append_images=[photo(seed=1)]),
        "bmp": saved(p, "BMP"),
        "bmp palette": saved(p.quantize(16), "BMP"),
        "ico": saved(photo((64, 64)), "ICO"),
        "ppm": saved(p, "PPM"),
        "pbm": saved(p.convert("1"), "PPM"),
        "tga": saved(p, "TGA"),
    }
    if features.check("avif"):
        found |= {
            "avif": saved(p, "AVIF"), "avif turned": saved(p, "AVIF", exif=turned_by(6)),
        }  # fmt: skip
    cases = {name: (content, None) for name, content in found.items()}
    cases |= {
        "png 16 bits": (grey(GREY16, "PNG"), GREY8),
        "png 16 bits, large": (grey(np.resize(GREY16, (300, 400)), "PNG"), None),
        "tiff 16 bits": (grey(GREY16), GREY8),
        "tiff 16 bits, big end": (grey(GREY16.astype(">u2")), GREY8),
        "pgm 16 bits": (saved(Image.fromarray(GREY16), "PPM"), GREY8),
        "tiff 32 bits": (grey(GREY16.astype(np.int32)), GREY8),
        "tiff 32 bits, to 255": (grey(GREY8.astype(np.int32)), GREY8),
        "tiff 32 bits, far": (grey(GREY8.astype(np.int32) * 4_000_000 - 7), GREY8),
        "tiff float to 1": (grey(FLOAT), np.rint(FLOAT * 255).astype(np.uint8)),
        "tiff float to 255": (grey(GREY8.astype(np.float32)), GREY8),
        "tiff float to 65535": (grey(GREY16.astype(np.float32)), GREY8),
        "tiff float, far": (grey(GREY8.astype(np.float32) * -2 - 5), 255 - GREY8),
    }
    content, _ = cases["png 16 bits, large"]
    cases["png 16 bits, large"] = (content, (np.resize(GREY16, (300, 400)) >> 8).astype(np.uint8))
    return cases


def bad_pictures():
    """name -> bytes that no way may take, and what is said of them."""
    large = {
        form: saved(photo(LARGE), form)
        for form in ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP")
    }  # fmt: skip
    small = {form: saved(photo(), form) for form in large}
    nan = FLOAT.copy()
    nan[3, 3] = np.nan
    huge = saved(photo(), "PNG")
    header = struct.pack(">II", 40_000, 40_000) + huge[24:29]
    flipped = bytearray(large["PNG"])
    flipped[len(flipped) // 2] ^= 255
    return {
        **{f"{form} cut": (content[: len(content) // 2], "") for form, content in large.items()},
        **{f"{form} cut small": (c[: len(c) * 2 // 3], "") for form, c in small.items()},
        "png, end missing": (large["PNG"][:-8000], "is broken"),
        "png, a byte changed": (bytes(flipped), "is broken"),
        "nothing": (b"", "no known format"),
        "a page": (b"<!DOCTYPE html><html>404</html>", "no known format"),
        "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "no known"),
        "nan": (grey(nan), "NaN or infinity"),
        "tall": (saved(photo((1, 500)), "PNG"), "1x500, more than 200 times as long as wide"),
        "wide": (saved(photo((5000, 8)), "PNG"), "5000x8, more than 200"),
        "tall once turned": (
            saved(photo((2010, 10)), "JPEG", exif=turned_by(6)), "10x2010, more than 200",
        ),
        "bomb": (huge[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + huge[33:],
                 "too large: Pillow and ms-swift open at most 178956970 pixels"),
    }  # fmt: skip


GOOD = pictures()
BAD = bad_pictures()


def expected(name):
    """Pixels as Pillow alone shows them: upright, RGB."""
    content, values = GOOD[name]
    if values is not None:
        return np.stack([values] * 3, axis=-1)
    with Image.open(io.BytesIO(content)) as opened:
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


def parquet(contents, folder, image=None):
    columns = rows_of(contents) | ({} if image is None else {"image": image})
    pq.write_table(pa.table(columns), folder / "train.parquet")
    return folder / "train.parquet"


def parquet_of_bytes(contents, folder):
    return parquet(contents, folder, contents)


def parquet_of_large_bytes(contents, folder):
    return parquet(contents, folder, pa.array(contents, pa.large_binary()))


def parquet_of_lists(contents, folder):
    return parquet(contents, folder, [[image] for image in rows_of(contents)["image"]])


def parquet_of_paths(contents, folder):
    return parquet(contents, folder, files_of(contents, folder))


def parquet_of_repeated_paths(contents, folder):
    return parquet(contents, folder, pa.array(files_of(contents, folder)).dictionary_encode())


def parquet_of_structs_of_paths(contents, folder):
    return parquet(contents, folder, [{"path": path} for path in files_of(contents, folder)])


def arrow(contents, folder):
    from datasets import Dataset

    Dataset.from_dict(rows_of(contents)).save_to_disk(folder / "saved")
    return folder / "saved"


def jsonl(contents, folder, images=None):
    columns = rows_of(contents) | {"image": images or files_of(contents, folder)}
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def jsonl_of_base64(contents, folder):
    texts = [base64.b64encode(content).decode() for content in contents]
    return jsonl(contents, folder, [f"data:image/any;base64,{text}" for text in texts])


def size_of(content):
    try:
        head = image_info({"bytes": content, "path": None})
        return head.width, head.height
    except DataError:
        return 500, 500


def coco(contents, folder):
    sizes = [size_of(content) for content in contents]
    images = [
        {"id": n, "file_name": f"{n}.pic", "width": w, "height": h}
        for n, (w, h) in enumerate(sizes)
    ]
    boxes = [{"image_id": n, "category_id": 1, "bbox": [0, 0, *s]} for n, s in enumerate(sizes)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "dog"}]}
    files_of(contents, folder / "images")
    (folder / "images" / "files").rename(folder / "train")
    (folder / "instances_train.json").write_text(json.dumps(content))
    return folder / "instances_train.json"


def coco_parquet(contents, folder):
    sizes = [size_of(content) for content in contents]
    table = {
        "image": rows_of(contents)["image"],
        "width": [w for w, _ in sizes],
        "height": [h for _, h in sizes],
        "objects": [{"bbox": [[0.0, 0.0, w, h]], "category": ["dog"]} for w, h in sizes],
    }
    pq.write_table(pa.table(table), folder / "train.parquet")
    return folder / "train.parquet"


WAYS = [
    parquet, parquet_of_bytes, parquet_of_large_bytes, parquet_of_lists, parquet_of_paths,
    parquet_of_repeated_paths, parquet_of_structs_of_paths, arrow, jsonl, jsonl_of_base64, coco,
    coco_parquet,
]  # fmt: skip


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


@pytest.mark.parametrize("way", WAYS)
def test_check_conversion_and_training_take_the_same_rows_with_the_same_pixels(
    way, tmp_path, monkeypatch
):
    names = [*GOOD, *BAD]
    random.Random(way.__name__).shuffle(names)
    path = way([(GOOD | BAD)[name][0] for name in names], tmp_path)
    good = [name for name in names if name in GOOD]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for n in range(len(names)):  # files of the same names where ms-swift runs are not the pictures
        (elsewhere / f"{n}.pic").write_bytes(saved(Image.new("RGB", (3, 3)), "PNG"))
    monkeypatch.chdir(elsewhere)

    report = check_set(path)
    dataset, trained = made(path, tmp_path)
    convert_folder(path, tmp_path / "out", keep_going=True)
    written = pq.read_table(tmp_path / "out" / "data").to_pylist()
    assert (report.rows, report.good) == (trained.rows, trained.good) == (len(names), len(good))
    assert len(dataset) == len(written) == len(good)
    assert sorted(map(str, report.problems)) == sorted(map(str, trained.problems))

    order = good
    if way is coco:  # its rows come shuffled
        order = [names[n] for n in dataset["image_id"]]
        assert [row["image_id"] for row in written] == dataset["image_id"]
    wrong = []
    for name, row, stored in zip(order, dataset, written, strict=True):
        want = expected(name)
        for got in (
            shown_by_swift(row["images"][0]),
            shown_by_swift(stored["image"] | {"path": ""}),
        ):
            if got.shape != want.shape or not np.array_equal(got, want):
                wrong.append(name)
    assert not wrong
    for row in read_rows(path, keep_going=True):
        if isinstance(try_image_info(row.image), ImageInfo):
            picture = open_image(row.image)
            assert size_of(saved(picture, "PNG")) == picture.size


def test_text_is_no_bytes_of_a_picture(tmp_path):
    row = {"image": {"bytes": "iVBOR"}, "problem": "What is it?", "solution": "cat"}
    (tmp_path / "set.json").write_text(json.dumps([row | {"task": "classification"}]))
    (problem,) = check_set(tmp_path / "set.json").problems
    assert "row 0" in str(problem) and "has str for bytes; store the bytes themselves" in str(
        problem
    )


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_picture_is_said(name, tmp_path):
    content, message = BAD[name]
    problem = try_image_info({"bytes": content, "path": "1.pic"})
    assert "'1.pic'" in problem and message in problem
    assert " at 0x" not in problem  # no address in memory


def test_a_stream_takes_the_same_rows(tmp_path):
    from swift_vlrft.datasets.report import Report

    path = parquet([content for content, _ in (GOOD | BAD).values()], tmp_path)
    report = Report(path)
    rows = list(streamed_rows(read_rows(path), LoadOptions(tmp_path / "cache"), report))
    assert (report.rows, report.good, len(rows)) == (len(GOOD) + len(BAD), len(GOOD), len(GOOD))
    for name, row in zip(GOOD, rows, strict=True):
        assert np.array_equal(shown_by_swift(row["images"][0]), expected(name)), name


def test_damaged_files_are_told_as_decoding_tells_them():
    """The quick look at large JPEGs and PNGs, held against decoding, on every kind of damage."""
    rng = random.Random(3)
    large = photo(LARGE)
    sound = [
        saved(large, "JPEG"), saved(large, "JPEG", progressive=True),
        saved(large.convert("CMYK"), "JPEG"), saved(large, "PNG"), saved(large.quantize(), "PNG"),
        grey(np.resize(GREY16, (300, 400)), "PNG"),
    ]  # fmt: skip
    told = Counter()
    for content in sound:
        for _ in range(60):
            damaged = bytearray(content)
            at = rng.randrange(len(damaged))
            kind = rng.randrange(5)
            if kind == 0:
                del damaged[at:]
            elif kind == 1:
                del damaged[at : at + rng.randrange(1, 999)]
            elif kind == 2:
                damaged[at:at] = rng.randbytes(50)
            elif kind == 3:
                damaged[at] ^= 1 << rng.randrange(8)
            else:
                damaged[rng.randrange(700)] = rng.randrange(256)
            image = {"bytes": bytes(damaged), "path": None}
            found = try_image_info(image)
            try:
                size = open_image(image).size
            except DataError:
                assert isinstance(found, str)
                told["broken"] += 1
            else:
                long = isinstance(found, str) and "times as long" in found
                assert long or (found.width, found.height) == size
                told["whole"] += 1
    assert min(told["broken"], told["whole"]) > 50


# ---- boxes and the picture that they were drawn on -------------------------------------------


def one_coco(folder, content, stated, name="1.jpg", box=(0, 0, 10, 10), image_id=7):
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "train2017").mkdir(exist_ok=True)
    (folder / "train2017" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "train2017" / name).write_bytes(content)
    width, height = stated
    made = {
        "images": [{"id": image_id, "file_name": name, "width": width, "height": height}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": image_id, "category_id": 18, "bbox": list(box)}],
    }
    file = folder / "annotations" / "instances_train2017.json"
    file.write_text(json.dumps(made))
    return file


def one_coco_parquet(folder, content, stated):
    width, height = stated
    row = {
        "image_id": 7, "image": {"bytes": content, "path": "1.jpg"},
        "width": width, "height": height,
        "objects": {"bbox": [[0.0, 0.0, 10.0, 10.0]], "category": ["dog"]},
    }  # fmt: skip
    pq.write_table(pa.Table.from_pylist([row]), folder / "train.parquet")
    return folder / "train.parquet"


def one_lvis(folder, content, stated):
    file = one_coco(folder, content, stated)
    made = json.loads(file.read_text())
    (image,) = made["images"]
    image["coco_url"] = "http://images.example.org/train2017/" + image.pop("file_name")
    image |= {"neg_category_ids": [], "not_exhaustive_category_ids": []}
    file.write_text(json.dumps(made))
    return file


def one_in_pixels(folder, content, stated):
    row = {
        "id": 7, "image": {"bytes": content, "path": "1.jpg"}, "problem": "Where is the dog?",
        "solution": "<answer>[0, 0, 10, 10]</answer>", "task": "grounding", "frame": "pixels",
        "width": stated[0], "height": stated[1],
    }  # fmt: skip
    pq.write_table(pa.Table.from_pylist([row]), folder / "train.parquet")
    return folder / "train.parquet"


def as_text(way):
    """The sizes as CSV brings them."""

    def made_so(folder, content, stated):
        return way(folder, content, [str(side) for side in stated])

    return made_so


coco_parquet_as_text, in_pixels_as_text = as_text(one_coco_parquet), as_text(one_in_pixels)
WAYS = [
    one_coco, one_lvis, one_coco_parquet, one_in_pixels, coco_parquet_as_text, in_pixels_as_text,
]  # fmt: skip


SIZES = {
    "as stated": (saved(photo((64, 48)), "JPEG"), (64, 48), True),
    "turned, drawn upright": (saved(photo((64, 48)), "JPEG", exif=turned_by(6)), (48, 64), True),
    "turned, drawn as stored": (saved(photo((64, 48)), "JPEG", exif=turned_by(6)), (64, 48), False),
    "turned by half": (saved(photo((64, 48)), "JPEG", exif=turned_by(3)), (64, 48), True),
    "sizes swapped": (saved(photo((64, 48)), "PNG"), (48, 64), False),
    "a smaller copy": (saved(photo((32, 24)), "JPEG"), (64, 48), False),
    "another picture": (saved(photo((63, 48)), "WEBP"), (64, 48), False),
    "a turned tiff": (saved(photo((64, 48)), "TIFF", exif=turned_by(8)), (48, 64), True),
}


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_boxes_are_drawn_on_the_picture_that_is_there(way, case, tmp_path):
    content, stated, fits = SIZES[case]
    path = way(tmp_path, content, stated)
    report = check_set(path)
    assert (report.rows, report.good) == (1, int(fits)), report.problems
    (row,) = read_rows(path)
    assert ("the boxes would be wrong" in page_of([row], "set")) is not fits
    if fits:
        dataset, _ = made(path, tmp_path)
        assert len(dataset) == 1
        assert convert_folder(path, tmp_path / "out").rows == 1
        return
    width, height = size_of(content)
    problem = report.problems[0].problem
    assert f"is {width}x{height}" in problem and "image 7: " in problem
    assert f"the annotations say {stated[0]}x{stated[1]}: the boxes would be wrong" in problem
    assert "1.jpg" in problem or way in (one_coco_parquet, coco_parquet_as_text)
    for attempt in (lambda: made(path, tmp_path), lambda: convert_folder(path, tmp_path / "out")):
        with pytest.raises(DataError) as error:
            attempt()
        assert problem in str(error.value)


@pytest.mark.parametrize("case", SIZES)
def test_the_command_coco_says_the_same(case, tmp_path):
    content, stated, fits = SIZES[case]
    path = one_coco(tmp_path, content, stated)
    arguments = ["data", "coco", path, tmp_path / "train2017", tmp_path / "out", "--categories"]
    done = CliRunner().invoke(app, [*map(str, arguments), "dog", "--negatives", "0"])
    assert done.exit_code == (0 if fits else 2), done.output
    if not fits:
        problem = check_set(path).problems[0].problem
        said = " ".join(done.output.split())
        assert "image 7: " in said and problem.removeprefix("image 7: ") in said


def test_thousandths_fit_a_copy_of_any_size_but_no_turned_one(tmp_path):
    content = saved(photo((64, 48)), "PNG")
    for stated, good in (((640, 480), 1), ((48, 64), 0), ((64, 48), 1)):
        row = {
            "image": {"bytes": content, "path": "1.png"}, "problem": "Where?", "width": stated[0],
            "solution": "<answer>[0, 0, 10, 10]</answer>", "height": stated[1],
        }  # fmt: skip
        pq.write_table(pa.Table.from_pylist([row | {"task": "grounding"}]), tmp_path / "a.parquet")
        assert check_set(tmp_path / "a.parquet").good == good


# ---- ids -------------------------------------------------------------------------------------


def two_images(folder):
    folder.mkdir(exist_ok=True)
    for name, size in (("1.png", (64, 48)), ("2.png", (48, 64))):
        (folder / name).write_bytes(saved(photo(size), "PNG"))
    return {
        "images": [
            {"id": 1, "file_name": "1.png", "width": 64, "height": 48},
            {"id": 2, "file_name": "2.png", "width": 48, "height": 64},
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 10, 10]},
            {"id": 2, "image_id": 2, "category_id": 2, "bbox": [3, 4, 10, 10]},
        ],
    }


IDS = {
    "image": (lambda c: c["images"][1].update(id=1), ["images[0] and images[1]", "1.png", "2.png"]),
    "category": (
        lambda c: c["categories"][1].update(id=1),
        ["categories[0] and categories[1]", "dog", "cat"],
    ),
    "annotation": (
        lambda c: c["annotations"][1].update(id=1),
        ["annotations[0] and annotations[1]", "[1, 2, 10, 10]", "[3, 4, 10, 10]"],
    ),
    "annotation twice": (
        lambda c: c["annotations"].append(dict(c["annotations"][0])),
        ["annotations[0] and annotations[2]"],
    ),
    "text": (lambda c: c["images"][1].update(id="1"), ["images[0] and images[1]", "'id': '1'"]),
    "float": (lambda c: c["images"][1].update(id=1.0), ["images[0] and images[1]"]),
    "true": (lambda c: c["images"][0].update(id=True), ["images[0]: id is True", "whole number"]),
    "null": (lambda c: c["images"][0].update(id=None), ["images[0]: id is None"]),
    "broken number": (lambda c: c["categories"][0].update(id=1.5), ["categories[0]: id is 1.5"]),
    "true image": (lambda c: c["annotations"][0].update(image_id=True), ["image_id is True"]),
    "null category": (
        lambda c: c["annotations"][0].update(category_id=None),
        ["annotations[0]: category_id is None"],
    ),
    "unknown image": (
        lambda c: c["annotations"][0].update(image_id="1"),
        ["annotations[0]: no image has the id '1'; they are like 1, 2"],
    ),
    "unknown category": (
        lambda c: c["annotations"][0].update(category_id=9),
        ["annotations[0]: no category has the id 9; they are like 1, 2"],
    ),
    "file": (lambda c: c["images"][1].update(file_name="./1.png"), ["images 1 and 2", "1.png"]),
    "sentence": (
        lambda c: [i.update(caption="the left dog", tokens_negative=[]) for i in c["images"]],
        ["image 1 stands for a sentence, 'the left dog'", "a row for each sentence"],
    ),
    "expressions": (
        lambda c: c["images"][1].update(expressions=["the left dog"]),
        ["image 2 stands for a sentence", "the left dog"],
    ),
}


@pytest.mark.parametrize("case", IDS)
def test_ids_that_do_not_tell_entries_apart_are_refused_by_every_command(case, tmp_path):
    edit, said = IDS[case]
    content = two_images(tmp_path / "images")
    edit(content)
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(content))
    predictions = tmp_path / "results.json"
    predictions.write_text(
        json.dumps([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 10, 10], "score": 1}])
    )
    commands = [
        ["data", "check", file],
        ["data", "convert", file, tmp_path / "out"],
        ["data", "coco", file, tmp_path / "images", tmp_path / "out", "--categories", "dog"],
        ["data", "show", file, "--out", tmp_path / "page.html"],
        ["eval", "--predictions", predictions, "--gold", file, "--task", "detection"],
    ]
    if case in ("file", "sentence", "expressions"):
        commands.pop()  # reads no picture
    for command in commands:
        done = CliRunner().invoke(app, [*map(str, command)])
        output = " ".join(done.output.split())
        assert done.exit_code == 2, (command, output)
        assert all(text in output for text in said), (command, output)
    with pytest.raises(DataError):
        made(file, tmp_path)
    assert not (tmp_path / "out").exists()


def test_ids_of_other_kinds_are_taken(tmp_path):
    """pandas writes 1.0, some tools text; further columns that end in id may hold anything."""
    for edit in (
        lambda c: [
            a.update(id=a["id"] * 1.0, image_id=a["image_id"] * 1.0) for a in c["annotations"]
        ],
        lambda c: [image.update(license_id=None, flickr_id=[3]) for image in c["images"]],
        lambda c: [a.pop("id") for a in c["annotations"]],
        lambda c: [c["images"][0].update(id="x/1"), c["annotations"][0].update(image_id="x/1")],
        lambda c: [c["images"][0].update(id=0), c["annotations"][0].update(image_id=0)],
    ):
        content = two_images(tmp_path / "images")
        edit(content)
        (tmp_path / "instances.json").write_text(json.dumps(content))
        report = check_set(tmp_path / "instances.json")
        assert (report.rows, report.good) == (2, 2)
        dataset, _ = made(tmp_path / "instances.json", tmp_path)
        assert {row["category"]: size_of(shown(row)) for row in dataset} == {
            "dog": (64, 48), "cat": (48, 64),
        }  # fmt: skip


def shown(row):
    return saved(Image.fromarray(shown_by_swift(row["images"][0])), "PNG")


# ---- where the images are --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["1.png", "sub/deep/1.png"])
@pytest.mark.parametrize(
    ("start", "file"),
    [
        (".", "coco/annotations/instances_train2017.json"),
        ("coco", "annotations/instances_train2017.json"),
        ("coco/annotations", "instances_train2017.json"),
        ("coco/train2017", "../annotations/instances_train2017.json"),
        (".", None),
    ],
)
@pytest.mark.parametrize("root", [None, "relative", "absolute"])
def test_annotations_by_any_path_from_any_folder(name, start, file, root, tmp_path, monkeypatch):
    (tmp_path / "coco").mkdir()
    whole = one_coco(tmp_path / "coco", saved(photo((64, 48)), "PNG"), (64, 48), name)
    monkeypatch.chdir(tmp_path / start)
    file = str(whole) if file is None else file
    images = tmp_path / "coco" / "train2017"
    options = []
    if root is not None:
        if root == "relative":
            images = os.path.relpath(images)
        options = ["--root", str(images)]
        monkeypatch.setenv("ROOT_IMAGE_DIR", str(images))
    out = tmp_path / "written"
    for command in (
        ["data", "check", file, *options],
        ["data", "convert", file, out / "a", *options],
        ["data", "check", file, "--fix", out / "b"],
        ["data", "coco", file, images, out / "c", "--categories", "dog", "--negatives", "0"],
        ["data", "show", file, "--out", out / "page.html"],
    ):
        done = CliRunner().invoke(app, [*map(str, command)])
        assert done.exit_code == 0, (command, done.output)
    dataset, report = made(os.path.relpath(whole) if start != "." else file, tmp_path)
    assert (report.rows, report.good) == (1, 1)
    assert np.array_equal(shown_by_swift(dataset[0]["images"][0]), photo((64, 48)))
    for folder in "abc":
        (row,) = pq.read_table(out / folder / "data").to_pylist()
        assert row["image"]["path"].endswith(name.split("/")[-1])


def test_gold_of_annotations_by_a_relative_path_and_with_a_byte_order_mark(tmp_path, monkeypatch):
    file = one_coco(tmp_path, saved(photo((64, 48)), "PNG"), (64, 48), "1.png", (0, 0, 32, 24), 7)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    results = [{"image_id": 7, "category_id": 18, "bbox": [0, 0, 32, 24], "score": 0.9}]
    (tmp_path / "results.json").write_text(json.dumps(results))
    monkeypatch.chdir(tmp_path / "annotations")
    arguments = ["eval", "--predictions", "../results.json", "--gold", file.name, "--json"]
    done = CliRunner().invoke(app, [*arguments, "--task", "detection"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["metrics"]["AP"]["value"] == pytest.approx(1)


@pytest.mark.parametrize("target", ["absolute", "relative", "folder", "chain"])
def test_links_are_followed_wherever_they_lead(target, tmp_path):
    """Hugging Face's snapshots, DVC and git-annex keep pictures elsewhere."""
    file = one_coco(tmp_path / "", saved(photo((64, 48)), "PNG"), (64, 48), "1.png")
    store, images = tmp_path / "blobs", tmp_path / "train2017"
    store.mkdir()
    (images / "1.png").rename(store / "0a1b")
    if target == "folder":
        (store / "0a1b").rename(store / "1.png")
        images.rmdir()
        images.symlink_to(store)
    else:
        to = {"absolute": store / "0a1b", "relative": "../blobs/0a1b", "chain": "2.png"}[target]
        (images / "1.png").symlink_to(to)
        (images / "2.png").symlink_to("../blobs/0a1b")
    assert check_set(file).good == 1
    assert len(made(file, tmp_path)[0]) == 1
    arguments = ["data", "coco", file, images, tmp_path / "out", "--categories", "dog"]
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert convert_folder(file, tmp_path / "converted").rows == 1
    if target != "folder":
        (store / "0a1b").unlink()
        problem = check_set(file).problems[0].problem
        assert "1.png is a link to " in problem and "which does not exist" in problem


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "/absolute"])
def test_a_name_that_climbs_out_of_the_folder_is_refused_everywhere(name, tmp_path):
    file = one_coco(tmp_path, saved(photo((64, 48)), "PNG"), (64, 48), "1.png")
    (tmp_path / "secret.png").write_bytes(saved(photo((64, 48)), "PNG"))
    content = json.loads(file.read_text())
    name = str(tmp_path / "secret.png") if name == "/absolute" else name
    content["images"].append(content["images"][0] | {"id": 8, "file_name": name})
    content["annotations"].append(content["annotations"][0] | {"id": 2, "image_id": 8})
    file.write_text(json.dumps(content))
    report = check_set(file)
    assert (report.rows, report.good) == (2, 1)
    problem = report.problems[0].problem
    assert f"the image path {name} lies outside the root" in problem
    dataset, trained = made(file, tmp_path)
    assert len(dataset) == 1 and trained.problems == report.problems
    assert convert_folder(file, tmp_path / "out", keep_going=True).left_out[0].problem == problem
    arguments = ["data", "coco", file, tmp_path / "train2017", tmp_path / "coco", "--categories"]
    done = CliRunner().invoke(app, [*map(str, arguments), "dog"])
    assert done.exit_code == 2 and problem in " ".join(done.output.split()), done.output


def test_a_first_picture_that_is_missing_hides_no_folder(tmp_path):
    file = one_coco(tmp_path, saved(photo((64, 48)), "PNG"), (64, 48), "1.png")
    content = json.loads(file.read_text())
    content["images"].insert(0, content["images"][0] | {"id": 3, "file_name": "0.png"})
    content["annotations"].append(content["annotations"][0] | {"id": 2, "image_id": 3})
    file.write_text(json.dumps(content))
    report = check_set(file)
    assert (report.rows, report.good) == (2, 1)
    assert "0.png does not exist" in report.problems[0].problem


def test_pictures_without_objects_are_counted(tmp_path):
    row = {"image": {"bytes": saved(photo(), "PNG"), "path": "1.png"}}
    objects = {"bbox": [[0.0, 0.0, 10.0, 10.0]], "category": ["dog"]}
    rows = [row | {"objects": o} for o in (objects, {"bbox": [], "category": []}, None, objects)]
    kind = pa.struct({"bbox": pa.list_(pa.list_(pa.float64())), "category": pa.list_(pa.string())})
    image = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    schema = pa.schema({"image": image, "objects": kind})
    pq.write_table(pa.Table.from_pylist(rows[:2] + rows[3:], schema), tmp_path / "train.parquet")
    report = check_set(tmp_path / "train.parquet")
    assert (report.rows, report.good) == (2, 2)
    (note,) = report.notes
    assert "an image without an object makes no row" in note and "row 1" in note
    content = two_images(tmp_path / "images")
    content["annotations"].pop()
    (tmp_path / "instances.json").write_text(json.dumps(content))
    (note,) = check_set(tmp_path / "instances.json").notes
    assert "an image without an object" in note and "(image 2)" in note


def test_what_qwen_cannot_resize_does_not_train(tmp_path):
    """qwen-vl-utils leaves a side of no pixel where a thin picture meets a low limit."""
    from qwen_vl_utils.vision_process import smart_resize

    from swift_vlrft.datasets.box_format import ImageResize

    rng = random.Random(0)
    told = Counter()
    for _ in range(4000):
        long, ratio = rng.randint(100, 6000), rng.uniform(20, 200)
        size = (long, max(1, round(long / ratio)))
        size = size[::-1] if rng.random() < 0.5 else size
        limit = rng.choice([3136, 12_544, 50_176, 100_352, 401_408])
        fits = max(size) <= 200 * min(size) and all(smart_resize(size[1], size[0], 28, 3136, limit))
        problem = ImageResize("qwen2_5_vl", 3136, limit).problem(*size)
        assert (problem is None) == fits, (size, limit, problem)
        told[fits] += 1
    assert min(told.values()) > 500
    path = parquet([saved(photo((1400, 10)), "PNG"), saved(photo(), "PNG")], tmp_path)
    dataset, report = made(path, tmp_path, resize=ImageResize("qwen2_5_vl", 3136, 12_544))
    assert len(dataset) == 1 and "a side of 0 pixels under max_pixels 12544" in report.listed()


def test_a_data_url_that_is_none_is_named(tmp_path):
    path = jsonl([b"", b""], tmp_path, ["data:image/png;base64,%%%", "data:image/png,abc"])
    report = check_set(path)
    assert report.good == 0 and all("no base64 text" in one.problem for one in report.problems)
    assert all(isinstance(row, BadRow) for row in read_rows(path, keep_going=True))


def test_eval_refuses_answers_to_a_turned_picture(tmp_path):
    file = one_coco(tmp_path, saved(photo((64, 48)), "PNG"), (64, 48), "1.png")
    answer = {"id": "7/dog", "image_id": 7, "category": "dog", "frame": "norm1000"} | {
        "completion": "<answer>[[0, 0, 156, 208]]</answer>",
        "solution": "<answer>[[0, 0, 156, 208]]</answer>",
    }  # fmt: skip
    for size, code in (((64, 48), 0), ((640, 480), 0), ((48, 64), 2)):
        line = answer | {"width": size[0], "height": size[1], "image": "x/1.png"}
        (tmp_path / "answers.jsonl").write_text(json.dumps(line) + "\n")
        arguments = ["eval", "--predictions", tmp_path / "answers.jsonl", "--gold", file]
        done = CliRunner().invoke(app, [*map(str, arguments), "--task", "detection"])
        assert done.exit_code == code, done.output
    said = " ".join(done.output.split())
    assert "image 7: x/1.png is 48x64 upright, but the annotations say 64x48" in said


def test_a_model_is_not_asked_about_a_picture_of_another_size(tmp_path):
    from swift_vlrft.evaluation.predictions import EvaluationError, Problems
    from swift_vlrft.evaluation.queries import QuerySet, Settings
    from swift_vlrft.swift_plugin.inference import answer_batch

    one = SimpleNamespace(n=1)  # answer to each request
    for n, (case, (content, stated, fits)) in enumerate(SIZES.items()):
        folder = tmp_path / str(n)
        folder.mkdir()
        settings = Settings("m", one_coco(folder, content, stated), "detection", protocol="all")
        problems = Problems()

        def ask(requests, _):
            return [RuntimeError("asked") for _ in requests]

        asked = list(QuerySet(settings).read(problems))
        if fits:
            with pytest.raises(EvaluationError, match="asked"):
                answer_batch(ask, one, settings, asked, problems)
        else:
            assert answer_batch(ask, one, settings, asked, problems) == []
        told = problems.counts["images of another size than the annotations say, skipped"]
        assert told == (not fits), case
