"""A call becomes a crop of the picture, or a line that says why not."""

import io
import json

import pytest
from PIL import Image

from swift_vlrft.zoom.calls import calls_only, read_call
from swift_vlrft.zoom.crops import MAX_CROP, cut, look, shown


def call(box, **more):
    arguments = json.dumps({"name": "image_zoom_in_tool", "arguments": {"bbox_2d": box, **more}})
    return f"<think>t</think><tool_call>{arguments}</tool_call>"


REFUSED = {
    "no JSON": "<think>t</think><tool_call>look there</tool_call>",
    "another tool": call([1, 2, 3, 4]).replace("image_zoom_in_tool", "image_rotate_tool"),
    "no box": '<tool_call>{"name": "image_zoom_in_tool", "arguments": {}}</tool_call>',
    "not closed": call([1, 2, 3, 4]).replace("</tool_call>", ""),
    "two calls": call([1, 2, 300, 400]) + call([1, 2, 300, 400]).removeprefix("<think>t</think>"),
    "no area": call([100, 100, 100, 300]),
    "inverted": call([300, 100, 100, 300]),
    "five numbers": call([1, 2, 3, 4, 5]),
    "out of the picture": call([900, 900, 1001, 1000]),
    "below zero": call([-1, 0, 100, 100]),
    "not a number": call([0, 0, "nan", 100]),
    "no such picture": call([0, 0, 100, 100], img_idx=1),
    "picture -1": call([0, 0, 100, 100], img_idx=-1),
    "deep": "<tool_call>" + "[" * 100_000 + "</tool_call>",
    "arguments in arguments": call([1, 2, 3, 4]).replace('{"bbox_2d"', '{"arguments": {"bbox_2d"'),
}


def looked(text):
    """What the text is shown of a picture of 200 x 100 pixels."""
    picture = Image.new("RGB", (200, 100))
    return look(read_call(text), [picture], [], "norm1000", None, lambda picture: picture)


@pytest.mark.parametrize("why", REFUSED)
def test_a_call_that_cannot_be_carried_out_gets_a_line(why):
    line = looked(REFUSED[why])
    assert isinstance(line, str) and line and "\n" not in line


def test_a_call_gets_its_crop():
    text = call([0, 0, 500, 500])
    assert looked(text)[0] == [0, 0, 550, 550] and calls_only(text)
    assert read_call("<think>t</think><answer>7</answer>") is None


def test_a_thin_box_is_widened_and_no_crop_is_larger_than_allowed(monkeypatch):
    assert cut((100, 500, 900, 501), (1000, 1000), "norm1000") == (20, 450, 980, 551)
    assert cut((0, 0, 1, 1), (10, 10), "norm1000") == (0, 0, 1, 1)
    for limit, most in (("", MAX_CROP), ("nonsense", MAX_CROP), ("10000", 10_000)):
        monkeypatch.setenv("MAX_PIXELS", limit)
        picture = Image.new("RGB", (3000, 2000))
        crop = Image.open(io.BytesIO(shown(picture, (0, 0, 3000, 2000))))
        assert 0.95 * most < crop.width * crop.height <= most
