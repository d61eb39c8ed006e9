"""Pictures and rows to write data sets of."""

import hashlib
import io
from pathlib import Path

from PIL import Image


def png(colour=(200, 30, 30), size=(16, 12)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def row(i: int, **more) -> dict:
    return {
        "image": {"bytes": png((i % 256, 30, 30)), "path": f"/home/me/pictures/{i}.png"},
        "problem": f"Detect all objects of kind {i}.",
        "solution": "<answer>No Objects</answer>",
        "task": "detection",
        "frame": "norm1000",
        **more,
    }


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
