"""Pictures of a row: one way of looking at them, for ``data check``, conversion and training.

    image_info({"bytes": b"\\x89PNG...", "path": None})   ImageInfo(640, 480, plain=True)
    open_image(row.image, row.place)                   a PIL image, RGB, upright

What ``image_info`` refuses is refused everywhere: no picture, or too large for Pillow;
one that breaks off or is damaged (a JPEG is decoded at an eighth of its size, a PNG is held against
its checksums, any other picture is decoded); one that cannot be shown in RGB; and one more than 200
times as long as wide, which no model's processor takes.

Upright: a camera's EXIF orientation is applied, as every viewer and annotation tool does and
ms-swift does not. Width and height are always those of the upright picture. Of several frames or
pages the first one counts. More than 8 bits a colour become 8 as ``_eight_bits`` says.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.row import Drawn, RowLocation
from swift_vlrft.datasets.source import DataError
from swift_vlrft.families.resize import MAX_RATIO

if TYPE_CHECKING:
    from PIL.Image import Image

ORIENTATION = 0x0112
SMALL = 256 * 256
"""Pixels up to which decoding a picture costs no more than a closer look at its bytes."""
_ORIENTED = {"exif", "Raw profile type exif", "XML:com.adobe.xmp", "xmp"}
"""Where Pillow finds an orientation."""


@dataclass(frozen=True)
class ImageInfo:
    """The size of the upright picture; ``plain``: ms-swift shows it to the model as it is."""

    width: int
    height: int
    plain: bool


@dataclass(frozen=True)
class ImageError:
    """Why an image cannot be trained on."""

    problem: str


def image_info(
    image: Mapping[str, Any], place: RowLocation | None = None, *, as_file: bool = False
) -> ImageInfo:
    """Size of the upright picture. DataError says why it cannot be trained on. ``as_file``: the
    bytes are going to be a file when ms-swift reads them.
    """
    info, mode = _looked(image, place, pixels=False)[:2]
    if info.plain and mode == "RGBA" and (as_file or image.get("bytes") is None):
        # Of a file, Qwen's own loader would put white behind what is transparent; of bytes, and in
        # vLLM, transparency is let go.
        info = replace(info, plain=False)
    if max(info.width, info.height) > MAX_RATIO * min(info.width, info.height):
        raise DataError(
            f"{_where(place)}the image {_name(image)} is {info.width}x{info.height}, more than "
            f"{MAX_RATIO} times as long as wide, which no model's processor takes; cut it"
        )
    return info


def open_image(image: Mapping[str, Any], place: RowLocation | None = None) -> Image:
    """The picture in RGB and upright. DataError names the place where it cannot be decoded."""
    picture = _looked(image, place, pixels=True)[2]
    assert picture is not None
    return picture


class ImageInfoReader:
    """``try_image_info`` for rows one after the other; rows that show the same image ask once."""

    def __init__(self, *, as_files: bool = False) -> None:
        self._as_files = as_files
        self._of_path: dict[str, ImageInfo | ImageError] = {}
        self._last: tuple[Any, ImageInfo | ImageError] = (None, ImageError(""))

    def __call__(self, image: Mapping[str, Any]) -> ImageInfo | ImageError:
        content, path = image.get("bytes"), str(image.get("path"))
        if content is None and path in self._of_path:
            return self._of_path[path]
        if content is not None and content is self._last[0]:
            return self._last[1]
        found = try_image_info(image, as_file=self._as_files)
        if content is None:
            self._of_path[path] = found
        else:
            self._last = content, found
        return found


def try_image_info(image: Mapping[str, Any], *, as_file: bool = False) -> ImageInfo | ImageError:
    """The same as a value, for callers that go on with the next row."""
    try:
        return image_info(image, as_file=as_file)
    except DataError as error:
        return ImageError(str(error))


def size_problem(
    image: Mapping[str, Any], info: ImageInfo | None, drawn: Drawn | None
) -> str | None:
    """What is wrong where boxes were drawn on a picture of another size than this upright one;
    None where one of the two is not known.
    """
    if info is None or drawn is None or (info.width, info.height) == (drawn.width, drawn.height):
        return None
    turned = (info.height, info.width) == (drawn.width, drawn.height)
    if not drawn.exact and not turned:
        return None
    name = _short(image["path"]) if image.get("path") else "the image in the row"
    return (
        f"{drawn.name + ': ' if drawn.name else ''}{name} is {info.width}x{info.height}"
        f"{' upright' if turned else ''}, but the annotations say "
        f"{drawn.width:g}x{drawn.height:g}: the boxes would be wrong; use the images that the "
        "annotations were made on"
    )


def upright_bytes(image: Mapping[str, Any], place: RowLocation | None = None) -> dict[str, Any]:
    """The picture as ms-swift shows it right: RGB, upright, as PNG."""
    buffer = io.BytesIO()
    open_image(image, place).save(buffer, "PNG", compress_level=1)
    return {"bytes": buffer.getvalue(), "path": image.get("path")}


def stored_image(image: Mapping[str, Any], base: Path) -> tuple[dict[str, Any], ImageInfo]:
    """The picture's bytes as they are, and its path below ``base`` (else its name); upright in RGB
    where ms-swift would show it otherwise. DataError where it cannot be trained on.
    """
    content, path = image.get("bytes"), image.get("path")
    if content is None:
        content = _content(image, None)
        full = Path(os.path.abspath(str(path)))
        path = str(full.relative_to(base)) if full.is_relative_to(base) else full.name
    stored = {"bytes": bytes(content), "path": path}
    try:
        info = image_info(stored)
    except DataError:
        image_info(image)  # names the whole path
        raise
    return (stored if info.plain else upright_bytes(stored)), info


def image_path(path: str, folder: Path, root: Path | None) -> Path:
    """An image's absolute path: below ``root`` where one is given, else from the set's folder. By
    its name: where a link leads does not matter, a name that climbs out of ``root`` is refused.
    """
    if path.startswith(("http://", "https://")):
        raise DataError(f"the image is the address {path[:100]}; download it and name the file")
    full = Path(os.path.normpath(os.path.join(os.path.abspath(root or folder), path)))
    if root is not None and not full.is_relative_to(os.path.abspath(root)):
        raise DataError(
            f"the image path {path} lies outside the root {root}; paths must stay in it"
        )
    return full


def _looked(
    image: Mapping[str, Any], place: RowLocation | None, *, pixels: bool
) -> tuple[ImageInfo, str, Image | None]:
    """The picture's info and mode; the picture, too, with ``pixels`` or where only it tells."""
    content = _content(image, place)
    shown = None
    with _opened(content, image, place) as picture:
        try:
            size, turned = picture.size, 1
            if pixels or not _seems_whole(picture, content):
                picture.load()
                turned = _turned(picture)
                shown = _shown(picture, turned)
                size = shown.size
            elif picture.format == "JPEG":
                turned = _turned(picture)
                size = size[::-1] if turned in (5, 6, 7, 8) else size
        except Exception as error:  # Pillow raises many kinds on broken files
            if isinstance(error, _NotRGB):
                raise DataError(f"{_where(place)}the image {_name(image)} {error}") from error
            raise DataError(
                f"{_where(place)}the image {_name(image)} is broken ({error}); get it again"
            ) from error
        plain = turned == 1 and not picture.mode.startswith(("I", "F"))
    return ImageInfo(*size, plain=plain), picture.mode, shown


class _NotRGB(ValueError):
    """A picture that decodes and cannot be shown all the same."""


def _content(image: Mapping[str, Any], place: RowLocation | None) -> bytes:
    content, path = image.get("bytes"), image.get("path")
    if content is not None:
        return bytes(content)
    if not path:
        raise DataError(f"{_where(place)}the image is empty; bytes or a path is needed")
    try:
        return Path(str(path)).read_bytes()
    except FileNotFoundError as error:
        link = f"is a link to {os.readlink(path)}, which" if os.path.islink(path) else ""
        raise DataError(
            f"{_where(place)}the image {_short(path)} {link + ' ' if link else ''}does not exist"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(
            f"{_where(place)}the image {_short(path)} cannot be read ({why})"
        ) from error


def _opened(content: bytes, image: Mapping[str, Any], place: RowLocation | None) -> Image:
    from PIL import Image as pil
    from PIL import UnidentifiedImageError

    try:
        return pil.open(io.BytesIO(content))
    except pil.DecompressionBombError as error:
        raise DataError(
            f"{_where(place)}the image {_name(image)} is too large: Pillow and ms-swift open at "
            f"most {2 * (pil.MAX_IMAGE_PIXELS or 0)} pixels ({error}); scale it down"
        ) from error
    except Exception as error:
        # The first tells an address in memory.
        if isinstance(error, UnidentifiedImageError):
            error = ValueError("its bytes are in no known format")
        raise DataError(
            f"{_where(place)}the image {_name(image)} is no picture ({error}); get it again"
        ) from error


def _seems_whole(picture: Image, content: bytes) -> bool:
    """Whether a JPEG or PNG decodes, at a part of the cost. False: only decoding tells. Raises as
    decoding does.
    """
    if picture.width * picture.height <= SMALL:
        return False
    if picture.format == "JPEG":
        picture.draft(None, (1, 1))  # at an eighth: all of the data is read, few pixels are made
        picture.load()
        return True
    return picture.format == "PNG" and not _ORIENTED & picture.info.keys() and _sound_png(content)


def _sound_png(content: bytes) -> bool:
    """Whether every checksum holds, from the first chunk to the end mark, and nothing stands behind
    the pixels that could turn them.
    """
    view, at, pixels = memoryview(content), 8, False
    while at + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        end = at + 8 + length
        if end + 4 > len(content):
            return False
        if zlib.crc32(view[at + 4 : end]) != int.from_bytes(view[end : end + 4]):
            return False
        if kind == b"IEND":
            return pixels
        if pixels and kind != b"IDAT":
            return False
        pixels = kind == b"IDAT"
        at = end + 4
    return False


def _turned(picture: Image) -> int:
    """The orientation that Pillow finds; 1, as stored, where there is none to read."""
    try:
        turned = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # a malformed block, for which Pillow raises many kinds; the pixels are fine
        return 1
    return int(turned) if turned in range(1, 9) else 1


def _shown(picture: Image, turned: int) -> Image:
    """A loaded picture upright, in RGB."""
    from PIL.Image import Transpose

    ways = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    made = _eight_bits(picture) if picture.mode.startswith(("I", "F")) else picture
    try:
        made = made.convert("RGB")
    except ValueError as error:
        raise _NotRGB(f"cannot be shown ({error}); save it as RGB") from error
    return made.transpose(ways[turned]) if turned in ways else made


def _eight_bits(picture: Image) -> Image:
    """Grey of 16 or 32 bits, or of floats, in 8: by its range, so that black stays black and white
    white. 16 bits go from 0 to 65535; 32 bits and floats state no range, so it is the smallest of 0
    to 1 (floats only), 0 to 255 and 0 to 65535 that holds every value, else lowest to highest.
    """
    import numpy as np
    from PIL import Image as pil

    values = np.asarray(picture)
    unsigned = picture.format == "TIFF" and picture.tag_v2.get(339, (1,))[0] == 1  # type: ignore[attr-defined]
    if picture.mode == "I" and unsigned and values.min() < 0:
        values = values.view(np.uint32)  # Pillow reads what is over 2^31 as negative
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise _NotRGB("holds NaN or infinity; fill these pixels and save it again")
    exact = values.astype(np.float64)
    if picture.mode == "F" and low >= 0 and high <= 1:
        exact = np.rint(exact * 255)
    elif low >= 0 and high <= 255 and not picture.mode.startswith("I;16"):
        exact = np.rint(exact)
    elif low >= 0 and high <= 65535:
        exact = exact // 256
    else:
        exact = np.rint((exact - low) / (high - low) * 255) if high > low else exact * 0
    return pil.fromarray(exact.astype(np.uint8))


def _name(image: Mapping[str, Any]) -> str:
    return _short(image["path"], repr) if image.get("path") else "in the row"


def _short(path: Any, shown: Any = str) -> str:
    text = str(path)
    return str(shown(text if len(text) <= 300 else f"{text[:100]}..."))


def _where(place: RowLocation | None) -> str:
    return f"{place}: " if place is not None else ""
