"""Pictures of a row: their size read off the header, or opened as the model will see them.

    head_of({"bytes": b"\\x89PNG...", "path": None})     Head(width=640, height=480, ...)
    open_image(row.image, row.place)                     a PIL image, RGB, upright

Upright: a camera's EXIF orientation is applied, as every viewer and annotation tool does and
ms-swift does not. Width and height are always those of the upright picture.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_vlrft.datasets.row import Place
from swift_vlrft.datasets.source import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

ORIENTATION = 0x0112
_ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9"}


@dataclass(frozen=True)
class Head:
    """What a picture's first bytes say; ``plain``: ms-swift shows it to the model as it is."""

    width: int
    height: int
    plain: bool


def head_of(image: Mapping[str, Any], place: Place | None = None) -> Head:
    """Size of the upright picture, without decoding it. DataError where it is no picture, or
    where its file breaks off.
    """
    with _opened(image, place) as picture:
        turned = _turned(picture)
        size = picture.size[::-1] if turned in (5, 6, 7, 8) else picture.size
        head = Head(*size, plain=turned in (0, 1) and not picture.mode.startswith(("I", "F")))
        breaks_off = _lacks_end(picture)
    if breaks_off:
        open_image(image, place)  # says so, where decoding cannot do without the end
    return head


def open_image(image: Mapping[str, Any], place: Place | None = None) -> Image:
    """The picture in RGB and upright. DataError names the place where it cannot be decoded."""
    try:
        with _opened(image, place) as picture:
            picture.load()
            upright = _upright(picture)
    except DataError:
        raise
    except Exception as error:  # Pillow raises many kinds on broken files
        raise DataError(
            f"{_where(place)}the image {_name(image)} is broken ({error}); get it again"
        ) from error
    if upright.mode.startswith("I;16"):  # 16 bits a pixel, which convert would clip to white
        upright = upright.convert("I").point(lambda value: value * (1 / 256) + 0).convert("L")
    return upright.convert("RGB")


def upright_bytes(image: Mapping[str, Any], place: Place | None = None) -> dict[str, Any]:
    """The picture as ms-swift shows it right: RGB, upright, as PNG."""
    buffer = io.BytesIO()
    open_image(image, place).save(buffer, "PNG", compress_level=1)
    return {"bytes": buffer.getvalue(), "path": image.get("path")}


def stored_image(image: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The picture's bytes as they are, tried to the end, and its path below ``base`` (else its
    name); upright in RGB where ms-swift would show it otherwise. DataError where it is broken.
    """
    content, path = image.get("bytes"), image.get("path")
    if content is None:
        head_of(image)  # names a file that is missing or no picture
        try:
            content = Path(str(path)).read_bytes()
        except OSError as error:
            raise DataError(f"the image {path} cannot be read ({error.strerror})") from error
        full = Path(str(path))
        path = str(full.relative_to(base)) if full.is_relative_to(base) else full.name
    stored = {"bytes": bytes(content), "path": path}
    open_image(stored)
    return stored if head_of(stored).plain else upright_bytes(stored)


def _opened(image: Mapping[str, Any], place: Place | None) -> Image:
    from PIL import Image as pil
    from PIL import UnidentifiedImageError

    content, path = image.get("bytes"), image.get("path")
    if content is None and not path:
        raise DataError(f"{_where(place)}the image is empty; bytes or a path is needed")
    try:
        if content is None:
            return pil.open(str(path))
        # A buffer of Arrow reads where it lies; bytes are wrapped.
        return pil.open(content if hasattr(content, "read") else io.BytesIO(content))
    except FileNotFoundError as error:
        raise DataError(f"{_where(place)}the image {path} does not exist") from error
    except Exception as error:
        # The one tells an address in memory, the other (of a buffer) that it could not seek.
        if isinstance(error, UnidentifiedImageError) or type(error) is OSError:
            error = ValueError("its bytes are in no known format")
        raise DataError(
            f"{_where(place)}the image {_name(image)} is no picture ({error}); get it again"
        ) from error


def _lacks_end(picture: Image) -> bool:
    """Whether the mark that ends a file of its format is missing: half a download, mostly."""
    mark, file = _ENDS.get(str(picture.format)), getattr(picture, "fp", None)
    if mark is None or file is None:
        return False
    file.seek(0, io.SEEK_END)
    file.seek(max(0, file.tell() - 4096))  # some cameras write more behind it
    return mark not in file.read(4096)


def _turned(picture: Image) -> int:
    """The orientation that the EXIF block states; 1, as stored, where there is none to read."""
    if not _may_have_exif(picture):
        return 1
    try:
        turned = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # a malformed block, for which Pillow raises many kinds; the pixels are fine
        return 1
    return int(turned) if turned in range(1, 9) else 1


def _upright(picture: Image) -> Image:
    from PIL import Image as pil
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except Exception:
        # The block cannot be read, or not be written again without the orientation: then with a
        # block of the orientation alone.
        exif = pil.Exif()
        exif[ORIENTATION] = _turned(picture)
        stated = picture.copy()
        stated.info["exif"] = exif.tobytes()
        return ImageOps.exif_transpose(stated)


def _may_have_exif(picture: Image) -> bool:
    # For a PNG without the chunk up front, Pillow would decode the whole picture to look for one.
    return "exif" in picture.info or picture.format == "TIFF"


def _name(image: Mapping[str, Any]) -> str:
    return repr(image.get("path")) if image.get("path") else "in the row"


def _where(place: Place | None) -> str:
    return f"{place}: " if place is not None else ""
