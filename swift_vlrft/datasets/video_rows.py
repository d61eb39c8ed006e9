"""Rows of temporal grounding: one video, a question, and spans in seconds. As here, as ms-swift's
own, as TimeR1 and as VideoChat-R1 store Charades-STA:

    {"videos": ["3MSZA.mp4"], "problem": "When ...? ...", "solution": "24.3 to 30.4"}
    {"messages": [{"role": "user", "content": "<video>When ...?"}], "videos": ["3MSZA.mp4"],
     "solution": [24.3, 30.4]}
    {"video": "3MSZA.mp4", "timestamp": [24.3, 30.4], "sentence": "person turn a light on.",
     "duration": 30.96}
    {"3MSZA": {"duration": 30.96, "timestamps": [[24.3, 30.4]], "sentences": ["person turn ..."]}}

The last, a file alone, is a row a sentence of the video NAME.mp4. A column ``unit`` may say
"seconds"; no other is read. ``duration`` is compared with the video.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swift_vlrft.datasets.image import image_path
from swift_vlrft.datasets.row import RowLocation
from swift_vlrft.datasets.schema import ANSWER_FORM, Context, RawExample, RecordSchema, further
from swift_vlrft.datasets.storage import Record, Records, StoredSet
from swift_vlrft.parsing.answers import gold_text
from swift_vlrft.parsing.spans import read_spans

QUESTION = (
    'When does this happen in the video: "{}"? Give start and end in seconds, such as "12.5 to '
    '18.2".\n' + ANSWER_FORM.replace("{}", "start to end")
)
"""The prompt of a sentence."""
SENTENCES = {"video", "timestamp", "sentence"}


@dataclass
class VideoSentences(StoredSet):
    """A JSON object of videos by name, each with its sentences."""

    videos: Any = None

    def _read(self, names: list[str]) -> Records:
        number = 0
        for name, video in self.videos.items():
            for span, sentence in zip(video["timestamps"], video["sentences"], strict=True):
                row = {"video": f"{name}.mp4", "timestamp": span, "sentence": sentence}
                yield RowLocation(self.path, number), row | {"duration": video.get("duration")}
                number += 1


def video_of(value: Any, folder: Path, root: Path | None) -> dict[str, Any]:
    """Return a column's one video as {"bytes", "path", "video"}; ValueError for anything else."""
    paths = value if isinstance(value, list) else [value]
    if len(paths) != 1 or not isinstance(paths[0], str):
        raise ValueError(f"the videos are {str(value)[:80]}; the path of one file is needed")
    return {"bytes": None, "path": str(image_path(paths[0], folder, root, "video")), "video": True}


def are_sentences(content: Any) -> bool:
    """Tell whether a JSON file holds videos by name."""
    videos = list(content.values()) if isinstance(content, dict) else []
    return bool(videos) and all(
        isinstance(video, dict) and {"timestamps", "sentences"} <= video.keys()
        and len(video["timestamps"]) == len(video["sentences"])
        for video in videos
    )  # fmt: skip


def _matches(columns: set[str]) -> bool:
    asked = {"problem", "solution"} <= columns or "messages" in columns
    return ("videos" in columns and asked and "image" not in columns) or columns >= SENTENCES


def _rows(record: Record, context: Context) -> Iterator[RawExample]:
    if (unit := record.get("unit")) not in (None, "seconds"):
        raise ValueError(
            f"the unit is {str(unit)[:40]!r}; spans are read in seconds: divide frames by the rate"
        )
    solution, video = record.get("solution"), record.get("videos")
    if "sentence" in record:
        problem: Any = QUESTION.format(record["sentence"].strip())
        solution, video = record["timestamp"], record["video"]
    elif record.get("messages"):
        problem, system, solution = _turns(record["messages"], solution)
        record = record | ({"system": system} if system else {})
    else:
        problem = record.get("problem")
    if isinstance(problem, str):
        problem = problem.removeprefix("<video>").strip()
    text = gold_text(solution)
    if text in ("", "[]"):
        raise ValueError("the row has no span; each row needs a start and an end in seconds")
    if None in (spans := read_spans(text) or []):
        number = spans.index(None) + 1
        raise ValueError(f"span {number} of {text[:80]!r} does not end behind its start")
    used = ("videos", "video", "problem", "solution", "messages", "timestamp", "sentence")
    example = further(record, *used) | {"task": record.get("task") or "temporal"}
    yield example | {"image": video, "problem": problem, "solution": text}


def _turns(messages: Any, solution: Any) -> tuple[Any, Any, Any]:
    """The user's text, the system's, and the solution, which may be the assistant's."""
    of = {turn.get("role"): turn.get("content") for turn in messages}
    if len(of) != len(messages) or not {"user"} <= of.keys() <= {"system", "user", "assistant"}:
        shown = ", ".join(str(turn.get("role")) for turn in messages)
        raise ValueError(f"its turns are {shown[:80]}; one user's turn and an answer are needed")
    return of["user"], of.get("system"), of.get("assistant") if solution is None else solution


VIDEO_SCHEMA = RecordSchema("video", _matches, _rows, single=False)
