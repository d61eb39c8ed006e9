"""Tokens of an image in a prompt, by ms-swift's own template."""

from pathlib import Path

from support.swift_run import run_python

CODE = """
import sys
from PIL import Image
from swift.model import get_processor
from swift.template import get_template
template = get_template(get_processor(sys.argv[1]))
template.set_mode("train")
def length(text, images):
    turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "red"}]
    return len(template.encode({"messages": turn, "images": images})["input_ids"])
bare = length("red", [])
for size in sys.argv[2:]:
    image = Image.new("RGB", tuple(map(int, size.split("x"))))
    print("length", length("<image>red", [image]) - bare)
"""


def image_lengths(checkpoint: Path, sizes: list[tuple[int, int]]) -> list[int]:
    """How much longer an image of each size makes the prompt."""
    done = run_python(CODE, str(checkpoint), *(f"{width}x{height}" for width, height in sizes))
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("length")]
    return [int(length) for _, length in rows]
