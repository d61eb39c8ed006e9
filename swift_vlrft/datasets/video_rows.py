"""Rows of temporal grounding: one video, a question, and spans in seconds. As here, as ms-swift's
own, as TimeR1 and as VideoChat-R1 store Charades-STA:

    {"videos": ["3MSZA.mp4"], "problem": "When ...? ...", "solution": "24.3 to 30.4"}
    {"messages": [{"role": "user", "content": "<video>When ...?"}], "videos": ["3MSZA.mp4"],
     "solution": [24.3, 30.4]}
    {"video": "3MSZA.mp4", "timestamp": [24.3, 30.4], "sentence": "person turn a light on.",
     "duration": 30.96}
    {"3MSZA": {"duration": 30.96, "timestamps": [[24.3, 30.4]], "sentences": ["person turn ..."]}}

The last, a file alone, is a row a sentence of the video NAME.mp4. A column ``unit`` may say
"seconds" or "frames", which become seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.image import image_path
from swift_vlrft.datasets.schema import (
    ANSWER_FORM,
    Context,
    RawExample,
    RecordSchema,
    conversation,
    further,
    text_in,
)
from swift_vlrft.datasets.storage import Record
from swift_vlrft.files.video import video_facts
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.parsing.spans import read_spans

QUESTION = (
    'When does this happen in the video: "{}"? Give start and end in seconds, such as "12.5 to '
    '18.2".\n' + ANSWER_FORM.replace("{}", "start to end")
)
"""The prompt of a sentence."""


def sentences_of(content: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return a row a sentence of a JSON object of videos by name; None for any other object."""
    rows: list[dict[str, Any]] = []
    for name, video in content.items():
        of = video if isinstance(video, dict) else {}
        if not isinstance(of.get("timestamps"), list) or not isinstance(of.get("sentences"), list):
            return None
        of = {"video": f"{name}.mp4", "duration": video.get("duration")}
        pairs = zip_longest(video["timestamps"], video["sentences"])
        rows += [of | {"timestamp": span, "sentence": text} for span, text in pairs]
    return rows


def video_of(value: Any, folder: Path, root: Path | None) -> dict[str, Any]:
    """Return a column's one video as {"bytes", "path", "video"}; ValueError for anything else."""
    paths = value if isinstance(value, list) else [value]
    if len(paths) != 1 or not isinstance(paths[0], str):
        raise ValueError(f"the videos are {str(value)[:80]}; the path of one file is needed")
    return {"bytes": None, "path": str(image_path(paths[0], folder, root, "video")), "video": True}


def write_video_rows(folder: Path, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write rows of videos as SPLIT.jsonl to ``folder``, with the whole paths of their videos."""
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows:
                kept = {k: v for k, v in row.items() if k not in ("image", "frame")}
                line = json.dumps(kept | {"videos": [row["image"]["path"]]}, default=str)
                file.write(line + "\n")


def _matches(columns: set[str]) -> bool:
    asked = {"problem", "solution"} <= columns or "messages" in columns
    of_videos = "videos" in columns and asked and "image" not in columns
    return of_videos or columns >= {"video", "timestamp", "sentence"}


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    if (unit := record.get("unit")) not in (None, "seconds", "frames"):
        raise ValueError(f"the unit is {str(unit)[:40]!r}; spans are in seconds or frames")
    if cut := [name for name in ("video_start", "video_end") if record.get(name) is not None]:
        raise ValueError(f"a part of a video ({cut[0]}) is not read; store it as a file of its own")
    if record.get("messages") is not None:
        record = conversation(record, "messages")
    problem, solution, video = (record.get(name) for name in ("problem", "solution", "videos"))
    if "sentence" in record:
        problem = QUESTION.format(text_in(record, "sentence"))
        solution, video = record["timestamp"], record["video"]
    if isinstance(problem, str):
        problem = problem.removeprefix("<video>").strip()
    if "<image>" in str(problem) or record.get("images"):
        raise ValueError("the row has a picture, the set a column videos: part them, or drop it")
    text = gold_text(solution)
    if text in ("", "[]"):
        raise ValueError("the row has no span; each row needs a start and an end in seconds")
    if None in (spans := read_spans(text) or []):
        number = spans.index(None) + 1
        raise ValueError(f"span {number} of {text[:80]!r} is no start with an end behind it")
    if unit == "frames" and re.search(r"\d:\d|\d\s?[s秒]", text):
        raise ValueError(f"the unit is frames, but {text[:80]!r} holds seconds or a clock")
    if unit == "frames" and spans:
        path = video_of(video, context.stored.folder, context.stored.image_root())["path"]
        _, _, seconds, count = video_facts(path)
        ends = [[f"{n * seconds / count:.3f}" for n in span[::2]] for span in spans if span]
        text = "; ".join(map(" to ".join, ends))
    used = ("videos", "video", "problem", "solution", "messages", "timestamp", "sentence", "unit")
    example = further(record, *used) | {"task": record.get("task") or "temporal"}
    yield example | {"image": video, "problem": problem, "solution": text}


VIDEO_SCHEMA = RecordSchema("video", _matches, _rows, single=False)
