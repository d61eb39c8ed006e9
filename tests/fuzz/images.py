"""Files of images: every format that Pillow writes here, damaged; bombs; and what is no image."""

# ruff: noqa: E501 - rows of a table stay on one line

import base64
import io
import os
import random
import struct
import warnings
import zlib
from functools import cache
from pathlib import Path

import numpy as np
from fuzz import mutate
from fuzz.target import clean, refused
from PIL import Image, features

from swift_vlrft.commands.output import printable
from swift_vlrft.datasets.image import ImageSize, image_size, open_image, stored_image
from swift_vlrft.datasets.source import DataError
from swift_vlrft.datasets.storage import image_of


def _saved(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


SECONDS, SHARE = 20.0, 1


def _png(width: int, height: int, depth: int, colour: int, data: bytes) -> bytes:
    content = b"\x89PNG\r\n\x1a\n"
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    for chunk in (b"IHDR" + head, b"IDAT" + data, b"IEND"):
        content += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return content


@cache
def seeds() -> list[bytes]:
    """Small, so that decoding is cheap; a few over 65,536 pixels, which are not decoded at once."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 255, (24, 40, 3), dtype=np.uint8))
    large = small.resize((300, 240))
    turned = Image.Exif()
    turned[0x0112] = 6
    clear = small.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(small.size))
    more = {"save_all": True, "append_images": [small.rotate(90), small]}
    grey16 = Image.fromarray(rng.integers(0, 65535, (24, 40), dtype=np.uint16))
    found = [
        *(_saved(small.convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
        *(_saved(small.convert(mode), "TIFF") for mode in ("1", "L", "P", "RGB", "CMYK", "YCbCr", "LAB", "F", "I")),
        *(_saved(grey16, form) for form in ("PNG", "TIFF")),
        *(_saved(image, "JPEG") for image in (small, large, small.convert("L"), small.convert("CMYK"))),
        *(_saved(small.quantize(8), form, transparency=3) for form in ("PNG", "GIF")),
        *(_saved(image, form, **more) for image in (small, clear) for form in ("GIF", "PNG", "WEBP")),
        *(_saved(image, form, exif=turned) for image in (small, large) for form in ("JPEG", "PNG", "WEBP", "TIFF")),
        *(_saved(small, form) for form in ("BMP", "PPM", "TGA", "ICO", "DIB", "PCX", "SGI", "JPEG2000", "ICNS", "DDS", "IM")),
        _saved(large, "JPEG", progressive=True),
        _saved(large, "PNG"),
        _saved(small, "MPO", **more),
        _saved(small, "TIFF", compression="tiff_lzw"),
        _saved(small.convert("1"), "TIFF", compression="group4"),
        _saved(Image.new("RGB", (1, 1)), "PNG"),
        _saved(Image.new("RGB", (1, 300)), "PNG"),
        # Bombs: a head that promises what the data does not hold, and data that unpacks to more.
        _png(30_000, 30_000, 8, 2, zlib.compress(bytes(1000))),
        _png(13_000, 13_000, 1, 0, zlib.compress(bytes(100_000))),
        _png(2**31 - 1, 2**31 - 1, 16, 6, b""),
        _png(40, 24, 8, 2, zlib.compress(bytes(10_000_000))),
        _png(0, 0, 8, 2, b""),
        b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="24"><image href="file:///etc/passwd"/></svg>',
        b"<!doctype html><title>404</title>",
        b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(100),
        b"%PDF-1.4\n%%EOF", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 24\n%%EndComments\n(x) run\n",
        b"PK\x03\x04" + bytes(40), b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", b"", b"\n", b"\x00" * 64,
    ]  # fmt: skip
    if features.check("avif"):
        found.append(_saved(small, "AVIF"))
    return found


def make(rng: random.Random) -> tuple[str, bytes]:
    content = rng.choice(seeds())
    if rng.random() < 0.95:
        content = mutate.raw(rng, content, 3)
    if rng.random() < 0.1:
        content = content + rng.choice(seeds())
    return rng.choice(["a.png", "a.jpg", "a.svg", "a.heic", "a"]), content


def check(name: str, content: bytes, folder: Path) -> int:
    """What is passed can be decoded, at the size that was said; what cannot is refused."""
    kept = os.dup(2)  # libtiff writes to the error stream by itself
    with warnings.catch_warnings(action="ignore"), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            _check(folder / name, content)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    return 1


def _check(file: Path, content: bytes) -> None:
    folder = file.parent
    file.write_bytes(content)
    url = "data:image/png;base64," + base64.b64encode(content).decode()
    said = []
    for value in (content, str(file), url):
        try:
            said.append(image_size(image_of(value, folder, folder)))
        except DataError as error:
            refused(error)
            clean(printable(error))
            said.append(None)
    assert (said[0] is None) == (said[1] is None) and said[0] == said[2], said
    image = {"bytes": content, "path": None}
    try:
        shown = open_image(image)
    except DataError as error:
        refused(error)
        assert said[0] is None, f"passed, but cannot be decoded: {error}"
        return
    assert shown.mode == "RGB"
    if said[0] is None:
        assert max(shown.size) > 200 * min(shown.size), "decoded, but not passed"
        return
    assert shown.size == (said[0].width, said[0].height), (shown.size, said[0])
    stored, info = stored_image(image, folder)
    assert isinstance(info, ImageSize) and open_image(stored).size == shown.size
