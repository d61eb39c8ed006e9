"""Images of rows are opened in one way, for ``data check``, conversion and training.

    image_size({"bytes": b"\\x89PNG...", "path": None})   ImageSize(640, 480, plain=True)
    open_image(row.image, row.place)                   a PIL image, RGB, upright

What ``image_size`` refuses is refused everywhere: a file that is no image, or too large for Pillow;
one that is cut off or damaged; numbers of more than 8 bits, of which no value is known to be white;
and one more than 200 times as long as wide, which no model's processor takes. A JPEG is decoded at
an eighth of its size, any other image as a whole. At the start of a training, which passes
``decoded=False``, a JPEG that has its end mark and a PNG whose checksums hold are not decoded: what
is damaged inside comes up when its row is read.

Upright: a camera's EXIF orientation is applied, as every viewer and annotation tool does and
ms-swift does not. Width and height are always those of the upright image. Of several frames or
pages the first one counts.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from swift_vlrft.datasets.source import AnnotatedSize, DataError, RowLocation
from swift_vlrft.families.resize import MAX_RATIO
from swift_vlrft.files.text import InputError
from swift_vlrft.files.video import video_facts, video_strip

if TYPE_CHECKING:
    from PIL.Image import Image

ORIENTATION = 0x0112
LARGEST_FILE = 1 << 30
JPEG_END = 1 << 16
"""The end mark of a JPEG is looked for in so many last bytes: cameras write more behind it."""


@dataclass(frozen=True)
class ImageSize:
    """The size of the upright image; ``plain``: ms-swift shows it to the model as it is."""

    width: int
    height: int
    plain: bool
    seconds: float = 0.0
    """The length of a video, whose frames have this size."""


def image_size(image: Mapping[str, Any], *, decoded: bool = True) -> ImageSize:
    """Return the size of the upright image or video; DataError: why it cannot be trained on. Not
    ``decoded``: a JPEG or PNG that is there from beginning to end is taken to be in order.
    """
    if image.get("video"):
        try:
            width, height, seconds, _ = video_facts(str(image["path"]))
        except InputError as error:
            raise DataError(str(error)) from error
        return ImageSize(width, height, True, seconds)
    with _opened(image) as (opened, file):
        mode, size = opened.mode, opened.size
        if decoded or not _has_its_end(opened, file):
            if opened.format == "JPEG":
                opened.draft(None, (1, 1))  # all of the data is read, and few pixels are made
            opened.load()
        turned = _turned(opened)
    if turned >= 5:
        size = size[1], size[0]
    # Of a file, Qwen's own loader would put white behind what is transparent; of bytes, and in
    # vLLM, transparency is let go.
    whitened = mode == "RGBA" and image.get("bytes") is None
    if max(size) > MAX_RATIO * min(size):
        raise _refused(
            image,
            f"is {size[0]}x{size[1]}, more than {MAX_RATIO} times as long as wide, which no "
            "model's processor takes; crop it",
        )
    return ImageSize(*size, plain=turned == 1 and not whitened)


def open_image(image: Mapping[str, Any], place: RowLocation | None = None) -> Image:
    """Open the image, RGB and upright, or a video's strip of frames. DataError names the place
    where it cannot be decoded.
    """
    from PIL import ImageOps

    try:
        if image.get("video"):
            return video_strip(str(image["path"]))
        with _opened(image) as (opened, _):
            opened.load()
            shown = opened if _turned(opened) == 1 else ImageOps.exif_transpose(opened)
            return shown.convert("RGB")
    except InputError as error:
        raise DataError(f"{place}: {error}" if place is not None else str(error)) from error


def try_image_size(image: Mapping[str, Any], *, decoded: bool = True) -> ImageSize | str:
    """Return the same, or why it cannot be trained on, for callers that go on with the next row."""
    try:
        return image_size(image, decoded=decoded)
    except DataError as error:
        return str(error)


def size_problem(
    image: Mapping[str, Any], size: ImageSize | None, annotated: AnnotatedSize | None
) -> str | None:
    """Say why boxes drawn on an image of another size do not fit this upright image.

    None if they do, or if one of the two sizes is not known.
    """
    if size is None or annotated is None:
        return None
    turned = (size.height, size.width) == (annotated.width, annotated.height)
    same = (size.width, size.height) == (annotated.width, annotated.height)
    if same or not (annotated.exact or turned):
        return None
    name = _short(image["path"]) if image.get("path") else "the image in the row"
    return (
        f"{annotated.name + ': ' if annotated.name else ''}{name} is {size.width}x{size.height}"
        f"{' upright' if turned else ''}, but the annotations say "
        f"{annotated.width:g}x{annotated.height:g}: the boxes would be wrong; use the images that "
        "the annotations were made on"
    )


def upright_bytes(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return the image as an upright RGB PNG."""
    buffer = io.BytesIO()
    open_image(image).save(buffer, "PNG", compress_level=1)
    return {"bytes": buffer.getvalue(), "path": image.get("path")}


def stored_image(image: Mapping[str, Any], base: Path, size: ImageSize) -> dict[str, Any]:
    """Return the image's bytes as they are, and its path below ``base`` (else its name). By its
    ``size``, it is upright and RGB where ms-swift would show it otherwise.
    """
    if image.get("video"):
        raise DataError("rows of videos train as they lie; they are not written anew")
    stored = {"bytes": content(image), "path": image.get("path")}
    if image.get("bytes") is None:
        full = Path(os.path.abspath(str(stored["path"])))
        stored["path"] = str(full.relative_to(base)) if full.is_relative_to(base) else full.name
    return stored if size.plain else upright_bytes(stored)


def image_hash(image: Mapping[str, Any]) -> str:
    """Return the first 16 digits of the SHA-256 of an image's file; DataError if it is unread."""
    return hashlib.sha256(content(image)).hexdigest()[:16]


def image_path(path: str, folder: Path, root: Path | None, what: str = "image") -> Path:
    """Return an image's absolute path: below ``root`` if given, else from the set's folder. The
    name decides: where a link leads does not matter, a name that climbs out of ``root`` is refused.
    """
    if path.startswith(("http://", "https://")):
        raise DataError(f"the {what} is the address {path[:100]}; download it and name the file")
    full = Path(os.path.normpath(os.path.join(os.path.abspath(root or folder), path)))
    if "\\" in path and not full.exists():
        raise DataError(f"the {what} path {path} has backslashes; write / between its folders")
    if root is not None and not full.is_relative_to(os.path.abspath(root)):
        raise DataError(
            f"the {what} path {path} lies outside the root {root}; paths must stay in it"
        )
    return full


@contextmanager
def _opened(image: Mapping[str, Any]) -> Iterator[tuple[Image, BinaryIO]]:
    """Yield the image, not decoded yet, and its file. DataError for one that Pillow cannot open, or
    whose decoding fails then; for numbers of more than 8 bits.
    """
    from PIL import Image as pil
    from PIL import UnidentifiedImageError

    with _file(image) as file:
        try:
            opened = pil.open(file)
        except Exception as error:
            unknown = isinstance(error, UnidentifiedImageError)  # its text tells an address
            why = "its bytes are in no known format" if unknown else error
            raise _refused(image, f"is no image that is read ({why}): get it again") from error
        if opened.mode.startswith(("I", "F")):
            text = f"has numbers of more than 8 bits (Pillow's mode {opened.mode}), and no value is"
            raise _refused(image, f"{text} known to be white; save it as 8-bit RGB")
        try:
            yield opened, file
        except Exception as error:  # Pillow raises many kinds on broken files
            raise _refused(image, f"is broken ({error}); get it again") from error


def _has_its_end(opened: Image, file: BinaryIO) -> bool:
    """Tell whether a JPEG has its end mark, and all parts of a PNG the right checksums. A PNG ends
    with its picture, too. False: decoding tells.
    """
    from PIL.PngImagePlugin import ChunkStream

    start = file.tell()  # of a JPEG behind the head, which may hold a small picture with its end
    if opened.format == "JPEG":
        file.seek(max(start, file.seek(0, os.SEEK_END) - JPEG_END))
        return file.read().rfind(b"\xff\xd9") >= 0  # from behind, where it mostly stands
    if opened.format != "PNG":
        return False
    file.seek(8)
    try:
        return ChunkStream(file).verify()[-1:] == [b"IDAT"]
    except (OSError, SyntaxError):
        file.seek(start)
        return False


def _refused(image: Mapping[str, Any], text: str) -> DataError:
    name = repr(_short(image["path"])) if image.get("path") else "in the row"
    return DataError(f"the image {name} {text}")


def content(image: Mapping[str, Any]) -> bytes:
    """Return the bytes of an image's file; DataError if it is unread."""
    with _file(image) as file:
        return file.read()


@contextmanager
def _file(image: Mapping[str, Any]) -> Iterator[BinaryIO]:
    content, path = image.get("bytes"), image.get("path")
    if content is not None:
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise DataError(
                f"the image in the row has {type(content).__name__} for bytes; store the bytes "
                "themselves, in Parquet, or a path"
            )
        yield io.BytesIO(content)
        return
    if not path:
        raise DataError("the image is empty; bytes or a path is needed")
    if not os.path.isfile(str(path)):  # /dev/zero never ends, a pipe waits for its writer
        raise DataError(f"the image {_short(path)} does not exist, or is no file")
    if (size := os.path.getsize(str(path))) > LARGEST_FILE:
        raise DataError(f"the image {_short(path)} is {size / 1e9:.1f} GB; is it an image?")
    try:
        with open(str(path), "rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"the image {_short(path)} cannot be read ({error.strerror})") from error


def _turned(image: Image) -> int:
    """The orientation that Pillow finds; 1, as stored, where there is none to read."""
    from PIL.Image import Image as Plain

    try:  # of a PNG its own method decodes, as the block may stand behind the picture
        turned = Plain.getexif(image).get(ORIENTATION, 1)
    except Exception:  # a malformed block, for which Pillow raises many kinds; the pixels are fine
        return 1
    return int(turned) if turned in range(1, 9) else 1


def _short(path: Any) -> str:
    text = str(path)
    return text if len(text) <= 300 else f"{text[:100]}..."
