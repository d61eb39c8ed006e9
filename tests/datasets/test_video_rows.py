"""Rows of videos: published forms, what is refused, and what training gets."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from support.clips import ASK, clip_rows, draw_clip
from support.stored_sets import command, train_on
from support.written_sets import write_rows

from swift_vlrft.datasets import open_image, read_rows
from swift_vlrft.datasets.check import check_set
from swift_vlrft.files.video import video_facts

ASKED = ASK.format("red") + " Answer such as <answer>12 to 14</answer>."
TURNS = [{"role": "user", "content": f"<video>{ASKED}"}]
FORMS = {
    "ours": {"videos": ["AO8RW.mp4"], "problem": ASKED, "solution": "0.0 to 6.9"},
    "ms-swift": {"messages": TURNS, "videos": ["AO8RW.mp4"], "solution": [0.0, 6.9]},
    "ms-swift's answer": {
        "messages": [*TURNS, {"role": "assistant", "content": "<answer>0.0 to 6.9</answer>"}],
        "videos": ["AO8RW.mp4"],
    },
    "timer1": {
        **{"video": "AO8RW.mp4", "duration": 33.75, "timestamp": [0.0, 6.9]},
        **{"sentence": "a person is putting a book on a shelf.", "qid": "my|charades|AO8RW"},
        **{"video_start": None, "video_end": None, "difficulty": 50.0, "pred": [0.0, 3.0]},
    },
}
CHARADES = {
    "AO8RW": {
        "duration": 33.75,
        "timestamps": [[0.0, 6.9]],
        "sentences": ["a person is putting a book on a shelf."],
    }
}
SAYS = [*map(json.loads, Path(__file__).with_name("bad_video_rows.jsonl").read_text().splitlines())]


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    draw_clip(folder / "a.mp4")
    draw_clip(folder / "AO8RW.mp4", (0, 6.9), seconds=33.75)
    draw_clip(folder / "rate.mp4", times=[0, 0.1, 0.2, 0.3, 1.5, 1.6, 2.0])
    draw_clip(folder / "one.mp4", times=[0.0])
    whole = (folder / "a.mp4").read_bytes()
    (folder / "half.mp4").write_bytes(whole[: len(whole) // 2])
    Image.new("RGB", (50, 50)).save(folder / "picture.mp4", "JPEG")
    with av.open(folder / "sound.wav", "w") as out:
        stream = out.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), layout="mono")
        frame.rate = 8000
        out.mux(stream.encode(frame))
    return folder


@pytest.mark.parametrize("form", [*FORMS, "charades"])
def test_every_form_asks_and_answers_the_same(form, clips):
    path = clips / f"{form.replace(' ', '_')}.json"
    path.write_text(json.dumps(CHARADES if form == "charades" else [FORMS[form]]))
    (row,) = read_rows(path)
    assert row.columns["task"] == "temporal" and row.image["path"] == str(clips / "AO8RW.mp4")
    assert video_facts(row.image["path"]) == (56, 56, pytest.approx(33.75), 270)
    assert row.size == (56, 56)
    report = check_set(path)
    assert (report.good, report.problems) == (1, []) and report.fits["temporal"] == 1
    assert not any(asked.what == "a span of time" for _, asked in report.unasked)
    ((trained,), _) = train_on(path, rewards=("vlrft_temporal_iou", "vlrft_format"))
    assert trained["videos"] == [row.image["path"]] and "images" not in trained
    assert trained["messages"][-1]["content"] == f"<video>{row.problem}"


@pytest.mark.parametrize(("what", "change", "said"), [case.values() for case in SAYS])
def test_what_is_no_row_is_said_with_its_place(what, change, said, clips):
    good = {"videos": ["a.mp4"], "problem": ASKED, "solution": "0.5 to 1.5"}
    path = write_rows(clips / f"bad_{what}.jsonl", good, good | change)
    report = check_set(path)
    (problem,) = report.problems
    assert report.good == 1 and str(problem).startswith(f"{path}, row 1: ") and said in str(problem)


def test_a_span_may_end_a_little_behind_the_video(clips):
    row = {"videos": ["a.mp4"], "problem": ASKED, "solution": "0.5 to 3.4"}
    path = write_rows(clips / "behind.jsonl", row | {"width": 56, "height": 56})
    assert [check_set(path, images=looked_at).good for looked_at in (True, 0)] == [1, 1]


def test_spans_in_frames_become_seconds(clips):
    row = {"videos": ["a.mp4"], "problem": ASKED, "solution": [[4, 12], [13, 16]], "unit": "frames"}
    (read,) = read_rows(write_rows(clips / "frames.jsonl", row))
    assert read.solution == "0.500 to 1.500; 1.625 to 2.000" and "unit" not in read.columns


def test_videos_are_not_converted_and_shown_on_a_time_line(clips, tmp_path):
    row = {"videos": ["a.mp4"], "problem": ASKED, "solution": "0.5 to 1.5"}
    path = write_rows(clips / "kept.jsonl", row)
    code, said = command("data", "convert", path, tmp_path / "out")
    assert code == 2 and "row 0: rows of videos train as they lie" in said
    assert command("data", "show", path, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "left:25.00%;top:0.00%;width:50.00%;height:100.00%" in page and "0.5 to 1.5 s" in page
    (row,) = read_rows(path)
    strip = np.asarray(open_image(row.image))  # at a sixth, a half and five sixths
    assert [strip[28, 28 + 56 * n, 0] > 180 for n in range(3)] == [False, True, False]


def test_a_picture_is_no_row_of_spans(tmp_path):
    Image.new("RGB", (50, 50)).save(tmp_path / "a.png")
    row = {"image": "a.png", "problem": ASKED, "solution": "0.5 to 1.5", "task": "temporal"}
    (problem,) = check_set(write_rows(tmp_path / "rows.jsonl", row)).problems
    assert "is of a video, in a column videos" in str(problem)


def test_prompts_that_ask_for_no_span_are_named(tmp_path):
    rows = [row | {"problem": "Where? <answer>"} for row in clip_rows(tmp_path, 4)]
    path = write_rows(tmp_path / "rows.jsonl", *rows)
    code, said = command("data", "check", path, "--reward", "vlrft_temporal_iou")
    assert "4 of 4 prompts never ask for a span of time, and every answer" in said


@pytest.mark.slow
def test_frames_are_those_of_the_numbers_asked_for(clips):
    """The reader that qwen-vl-utils gets, beside a plain decoding."""
    from swift_vlrft.swift_plugin.video import read_video

    path = str(clips / "AO8RW.mp4")
    video, known, rate = read_video({"video": path, "fps": 1.0})
    with av.open(path) as opened:
        frames = [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]
    assert len(known["frames_indices"]) == len(video) == 32 == rate * 270 / 8
    for number, frame in zip(known["frames_indices"], video, strict=True):
        assert (frame.permute(1, 2, 0).numpy() == frames[number]).all()
