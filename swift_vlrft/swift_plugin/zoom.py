"""`--multi_turn_scheduler vlrft_zoom` lets the model look closer at a part of a picture.

    turn 1   <think>..</think><tool_call>{"name": "image_zoom_in_tool", "arguments": ..}</tool_call>
    we       <tool_response> the crop, from the picture as it is stored </tool_response>
    turn 2   <think>..</think><answer>7</answer>

The box is in the row's box format (the column ``frame``), else in the family's own, and always of a
picture of the row, never of a crop. A call that cannot be carried out gets a line instead of a
picture. A row's turns go on as the column ``turns``, which rewards, logs and the report read.
"""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from PIL import Image
from swift.infer_engine.protocol import RolloutInferRequest, RolloutOutput
from swift.rollout.agent_loop import run_multi_turn
from swift.rollout.multi_turn import MultiTurnScheduler
from swift.utils import get_logger

from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.families import family_of
from swift_vlrft.geometry.box_format import FORMATS, Corners, Size
from swift_vlrft.parsing.calls import MOST_TURNS, TURNS, Call, read_call
from swift_vlrft.recipe.rules.turns import NAME

logger = get_logger()

MARGIN = 0.1
"""Of the box's sides, around it."""
NARROWEST = 8
"""The largest ratio of a crop's sides, where the picture is wide enough."""
ENLARGED = 256 * 28 * 28
"""Pixels that a smaller crop is enlarged to, within MAX_PIXELS."""
LARGEST = 1280 * 28 * 28
"""Pixels of a crop where MAX_PIXELS says nothing."""

REPLY = "<tool_response>\n{}\n</tool_response>"
PICTURE = REPLY.format("<image>")

Resize = Callable[[int, int], Size]
"""The size in which the model sees a picture."""


class Zoom(MultiTurnScheduler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = self.max_turns or TURNS
        self.most = min(asked, MOST_TURNS)
        if asked > MOST_TURNS:
            logger.warning_once(f"swift_vlrft: {NAME}: --max_turns {asked} is taken as {self.most}")

    async def on_trajectory_start(self, requests: Any) -> None:
        """From here on the pictures are what they are now, whatever becomes of their files."""
        for request in requests:
            request.images = list(map(held, request.images))

    def check_finished(self, infer_request: Any, response_choice: Any, current_turn: int) -> bool:
        text = response_choice.message.content or ""
        stops = super().check_finished(infer_request, response_choice, current_turn)
        return stops or current_turn >= self.most or read_call(text) is None

    def step(self, infer_request: Any, response_choice: Any, current_turn: int) -> dict[str, Any]:
        text, columns = response_choice.message.content or "", infer_request.data_dict
        turns: list[dict[str, Any]] = columns.setdefault("turns", [])
        crops = [turn["crop"] for turn in turns if turn["crop"] is not None]
        pictures = infer_request.images[: len(infer_request.images) - len(crops)]
        call = read_call(text)
        shown_or_why = self._cut(call, pictures, columns, turns)
        crop, reply = None, shown_or_why
        if not isinstance(shown_or_why, str):
            crop, image = shown_or_why
            infer_request.images = [*infer_request.images, image]
            reply = "<image>"
        infer_request.messages.append({"role": "user", "content": REPLY.format(reply)})
        picture = call.picture if isinstance(call, Call) else 0
        turns.append({"text": text, "crop": crop, "picture": picture, "said": reply})
        infos = {"turns": turns, "images": infer_request.images}
        return {"infer_request": infer_request, "rollout_infos": infos}

    def _cut(
        self,
        call: Call | str | None,
        pictures: Sequence[Any],
        columns: dict[str, Any],
        turns: Sequence[Any],
    ) -> tuple[list[int], str] | str:
        """The crop in thousandths, and its picture; or why there is none."""
        if not isinstance(call, Call):
            return call or "There is no call."
        if call.picture >= len(pictures):
            last = f"; the last one is {len(pictures) - 1}" if pictures else ""
            return f"There is no picture {str(call.picture)[:9]}{last}."
        try:
            picture = opened(pictures[call.picture])
            part = cut(call.box, picture.size, *self._format(columns))
            if part is None:
                return "The box leaves the picture."
            crop = [round(side) for side in thousandths(part, picture.size)]
            if any(turn["crop"] == crop and turn["picture"] == call.picture for turn in turns):
                return "You have seen this part."
            return crop, base64.b64encode(shown(picture, part)).decode()
        except Exception as error:  # whatever a picture does must not end the run
            logger.warning_once(f"swift_vlrft: {NAME}: a picture cannot be cut: {error!r:.200}")
            return f"Picture {call.picture} cannot be opened."

    def _format(self, columns: dict[str, Any]) -> tuple[str, Resize | None]:
        """The row's box format, else the model's own, and how the model resizes a picture."""
        template: Any = self._template or getattr(self.infer_engine, "template", None)
        kind = getattr(getattr(template, "model_meta", None), "model_type", None)
        family = family_of(model_type=kind) if kind else None
        frame = columns.get("frame") or (family and family.box_format) or "norm1000"
        if family is None or family.images is None:
            return frame, None
        low, high = family.images.limits(model=template.model_info.model_dir)
        return frame, ImageResize(family.name, low, high, template.max_pixels).size


def go_on(
    ask: Callable[..., list[Any]],
    config: Any,
    requests: Sequence[Any],
    answers: Sequence[Any],
    columns: Sequence[Mapping[str, Any]],
    most: int,
) -> tuple[list[Any], list[Any]]:
    """Return the last answers where the first may call the tool, and the turns before them: as
    ms-swift has it in GRPO. ``ask`` is the method of an engine.
    """
    engine = ask.func.__self__ if isinstance(ask, partial) else ask.__self__  # type: ignore[attr-defined]
    scheduler = Zoom(max_turns=most, template=engine.template, tokenizer=engine.template.tokenizer)
    begun = []
    for request, of in zip(requests, columns, strict=True):
        pictures = [base64.b64encode(as_png(picture)).decode() for picture in request.images]
        frame = {"frame": of.get("frame")}
        begun.append(RolloutInferRequest(request.messages, images=pictures, data_dict=frame))

    def rollout(further: list[Any], config: Any) -> list[RolloutOutput]:
        return (
            [RolloutOutput(response=answer) for answer in ask(further, config)] if further else []
        )

    first = [RolloutOutput(response=answer) for answer in answers]
    done = run_multi_turn(begun, first, scheduler, rollout, config, scheduler.most)
    return [o.response for o in done], [o.rollout_infos.get("turns", []) for o in done]


@lru_cache(maxsize=64)
def _of_file(path: str) -> str:
    with open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()


def held(picture: Any) -> Any:
    """Return a picture's file as text, or the picture as it is if its file cannot be read."""
    try:
        return (
            _of_file(picture) if isinstance(picture, str) and os.path.isfile(picture) else picture
        )
    except (OSError, ValueError):
        return picture


def opened(picture: Any) -> Image.Image:
    from swift.template.vision_utils import load_image

    if isinstance(picture, dict):
        picture = picture.get("bytes") or picture.get("path")
    image: Image.Image = load_image(picture)
    return image


def cut(
    box: Corners, size: Size, frame: str, resize: Resize | None = None
) -> tuple[int, int, int, int] | None:
    """Return the part of a picture of that size to show for ``box``, in its pixels: with a margin,
    and not too narrow. None for a box that leaves the picture.
    """
    box_format = FORMATS[frame]
    seen = resize(*size) if box_format.scale is None and resize is not None else size
    edges = box_format.edges(seen)
    sides = []
    for first, last, edge, side in zip(box[:2], box[2:], edges, size, strict=True):
        if first < 0 or last > edge:
            return None
        sides.append((first * side / edge, last * side / edge))
    longest = max(last - first for first, last in sides)
    corners = []
    for (first, last), side in zip(sides, size, strict=True):
        half = max((last - first) * (0.5 + MARGIN), longest / NARROWEST / 2, 0.5)
        middle = (first + last) / 2
        corners.append((max(0, math.floor(middle - half)), min(side, math.ceil(middle + half))))
    (x1, x2), (y1, y2) = corners
    return x1, y1, x2, y2


def thousandths(part: Corners, size: Size) -> Corners:
    (width, height), (x1, y1, x2, y2) = size, part
    return 1000 * x1 / width, 1000 * y1 / height, 1000 * x2 / width, 1000 * y2 / height


def shown(picture: Image.Image, part: tuple[int, int, int, int]) -> bytes:
    """Return the part as a PNG: enlarged where it is small, as a patch would swallow it, and within
    MAX_PIXELS.
    """
    crop, limit = picture.crop(part), os.environ.get("MAX_PIXELS", "")
    most = int(limit) if limit.isdecimal() and int(limit) else LARGEST
    area = crop.width * crop.height
    scale = math.sqrt(min(max(area, min(ENLARGED, most)), most) / area)
    width, height = (max(1, int(side * scale)) for side in crop.size)
    return as_png(crop.resize((width, height), Image.Resampling.BICUBIC))


def as_png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
