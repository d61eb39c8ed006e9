"""Sizes of videos' frames beside qwen-vl-utils and the model's processor, through ms-swift."""

import random

import pytest
from support.clips import RATE, draw_clip

from swift_vlrft.families.video import VARIABLES, VideoRule

SETTINGS = [
    {},
    {"FPS": "1", "FPS_MAX_FRAMES": "5"},
    {"VIDEO_MAX_PIXELS": "120000", "VIDEO_MIN_PIXELS": "20000"},
    {"VIDEO_MAX_PIXELS": "100352", "FPS": "0.5"},
    {"VIDEO_MIN_TOKEN_NUM": "4", "VIDEO_MAX_TOKEN_NUM": "30", "FPS_MIN_FRAMES": "2"},
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "factor"), [("qwen2_5_vl", 28), ("qwen3_vl", 32)])
@pytest.mark.parametrize("said", SETTINGS, ids=str)
def test_tokens_are_the_processors(family, factor, said, tmp_path, monkeypatch):
    from qwen_vl_utils import vision_process
    from swift.model import get_processor
    from swift.template import get_template

    from swift_vlrft.swift_plugin import video
    from swift_vlrft.tiny.checkpoint import write_tiny

    # ms-swift sets some, and the module.
    for name in (*VARIABLES, "VIDEO_MIN_PIXELS", "VIDEO_MAX_PIXELS"):
        monkeypatch.delenv(name, raising=False)
        if hasattr(vision_process, name):
            monkeypatch.setattr(vision_process, name, getattr(vision_process, name))
    monkeypatch.delattr(vision_process, "_patch", raising=False)
    monkeypatch.setattr(vision_process, "get_video_reader_backend", lambda: video.NAME)
    video.register()
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    write_tiny(family, tmp_path / "tiny")
    template = get_template(get_processor(str(tmp_path / "tiny")))
    template.set_mode("train")
    rng, rule = random.Random(0), VideoRule(factor).of(said)
    for n in range(4):
        side, seconds = rng.randrange(32, 700, 2), rng.choice([0.5, 1, 2, 6.5])
        path = draw_clip(tmp_path / f"{n}.mp4", seconds=seconds, side=side)
        row = {"messages": [{"role": "user", "content": "<video>?"}], "videos": [str(path)]}
        ids = template.encode(row)["input_ids"]
        frames = vision_process.smart_nframes({}, round(seconds * RATE), RATE)
        width, height = rule.size(side, side, frames)
        assert ids.count(template.video_token_id) * 2 * factor**2 == width * height * frames
