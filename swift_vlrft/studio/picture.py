"""An image that a browser sent, as one that is safe to show: small, upright, RGB.

    picture("data:image/png;base64,iVBOR...")      Picture(url="data:image/jpeg;base64,...", size)

Only formats that Pillow decodes by itself are opened (an EPS file would start Ghostscript), and
only when its header states a size that fits into memory.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from typing import NamedTuple

from swift_vlrft.report.html import data_url
from swift_vlrft.studio.limits import IMAGE, PIXELS, SIDE, TooMuch

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
TOO_LARGE = "too large:"
"""What the page's script sends in place of a file that is not worth sending, with its bytes."""
UNREADABLE = "unreadable"


class Picture(NamedTuple):
    """``size``: of the upright image, before it was scaled down."""

    url: str
    size: tuple[int, int]


def picture(text: str) -> Picture:
    """ValueError says why it cannot be shown."""
    from PIL import Image

    content = _content(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is refused below
            with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
                width, height = opened.size
    except Image.DecompressionBombError:
        width, height = PIXELS, PIXELS
    except Exception:  # Pillow raises many kinds on broken files
        raise ValueError(
            f"the image cannot be read: it is broken, or none of {', '.join(FORMATS)}"
        ) from None
    if width * height > PIXELS:
        raise TooMuch(
            f"the image has more than {PIXELS:,} pixels, the most that this page decodes; "
            "scale it down"
        )
    return Picture(*data_url({"bytes": content, "path": "upload"}, SIDE))


def _content(text: str) -> bytes:
    if text.startswith(TOO_LARGE):
        raise TooMuch(_large(text.removeprefix(TOO_LARGE)[:20]))
    if len(text) > IMAGE * 4 // 3 + 200:
        raise TooMuch(_large(str(len(text) * 3 // 4)))
    head, comma, body = text.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise ValueError("the image cannot be read: your browser could not open the file")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the image cannot be read: it was sent incompletely") from None


def _large(count: str) -> str:
    size = f"{int(count) / 2**20:.1f} MiB" if re.fullmatch("[0-9]{1,12}", count) else "too large"
    return f"the image's file is {size}; this page takes {IMAGE // 2**20} MiB"
