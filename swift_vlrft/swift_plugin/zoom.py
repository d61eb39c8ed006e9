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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from PIL import Image
from swift.infer_engine.protocol import RolloutInferRequest, RolloutOutput
from swift.rollout.agent_loop import run_multi_turn
from swift.rollout.multi_turn import MultiTurnScheduler
from swift.utils import get_logger

from swift_vlrft.families import family_of
from swift_vlrft.families.image_resize import ImageResize
from swift_vlrft.recipe.rules.turns import MOST_TURNS, TURNS
from swift_vlrft.zoom import SCHEDULER
from swift_vlrft.zoom.calls import Call, read_call
from swift_vlrft.zoom.crops import REPLY, Resize, as_png, look

logger = get_logger()


class ZoomScheduler(MultiTurnScheduler):
    """Shows the model the parts of a row's pictures that it asks for, until it answers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = self.max_turns or TURNS
        self.most = min(asked, MOST_TURNS)
        if asked > MOST_TURNS:
            text = f"swift_vlrft: {SCHEDULER}: --max_turns {asked} is taken as {self.most}"
            logger.warning_once(text)

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
        picture = call.picture if isinstance(call, Call) else 0
        try:
            looked = look(call, pictures, turns, *self._format(columns), opened)
        except Exception as error:  # whatever a picture does must not end the run
            why = f"swift_vlrft: {SCHEDULER}: a picture cannot be cut: {error!r:.200}"
            logger.warning_once(why)
            looked = f"Picture {picture} cannot be opened."
        crop, reply = (None, looked) if isinstance(looked, str) else (looked[0], "<image>")
        if not isinstance(looked, str):
            image = base64.b64encode(looked[1]).decode()
            infer_request.images = [*infer_request.images, image]
        infer_request.messages.append({"role": "user", "content": REPLY.format(reply)})
        turns.append({"text": text, "crop": crop, "picture": picture, "said": reply})
        infos = {"turns": turns, "images": infer_request.images}
        return {"infer_request": infer_request, "rollout_infos": infos}

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


def answer_in_turns(
    ask: Callable[..., list[Any]],
    config: Any,
    requests: Sequence[Any],
    answers: Sequence[Any],
    columns: Sequence[Mapping[str, Any]],
    most: int,
) -> tuple[list[Any], list[Any]]:
    """Return the last answers, and the turns before them, as ms-swift has them in GRPO.

    ``answers`` are those of the first turn, and ``ask`` is the method of an engine.
    """
    engine = ask.func.__self__ if isinstance(ask, partial) else ask.__self__  # type: ignore[attr-defined]
    template = engine.template
    scheduler = ZoomScheduler(max_turns=most, template=template, tokenizer=template.tokenizer)
    begun = []
    for request, of in zip(requests, columns, strict=True):
        pictures = [base64.b64encode(as_png(picture)).decode() for picture in request.images]
        frame = {"frame": of.get("frame")}
        begun.append(RolloutInferRequest(request.messages, images=pictures, data_dict=frame))

    def rollout(further: list[Any], config: Any) -> list[RolloutOutput]:
        answered = ask(further, config) if further else []
        return [RolloutOutput(response=answer) for answer in answered]

    first = [RolloutOutput(response=answer) for answer in answers]
    done = run_multi_turn(begun, first, scheduler, rollout, config, scheduler.most)
    return [o.response for o in done], [o.rollout_infos.get("turns", []) for o in done]


def opened(picture: Any) -> Image.Image:
    """Return a picture of a row as ms-swift opens it: a path, base64, or a dictionary."""
    from swift.template.vision_utils import load_image

    if isinstance(picture, dict):
        picture = picture.get("bytes") or picture.get("path")
    image: Image.Image = load_image(picture)
    return image
