"""Image files for a page that takes them from a browser."""

import base64
import io
import struct
import zlib

from PIL import Image


def image_file(size, kind="PNG", mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind)
    return file.getvalue()


def png_of(width, height):
    """A small file of many black pixels, a thousand rows of them present."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width // 8 + 1) * 1000)
    chunks = (b"IHDR", head), (b"IDAT", rows), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


def data_url(content):
    return "data:image/png;base64," + base64.b64encode(content).decode()
