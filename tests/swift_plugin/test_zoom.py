"""The scheduler vlrft_zoom in ms-swift's own loop of turns.

What a run in several turns learns is in end_to_end/test_demo.py.
"""

import base64
from types import SimpleNamespace

import pytest
from PIL import Image
from qwen_vl_utils.vision_process import smart_resize
from support.stored_sets import picture
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RequestConfig,
    RolloutInferRequest,
    RolloutOutput,
    UsageInfo,
)
from swift.rollout.agent_loop import run_multi_turn
from zoom.test_crops import call

from swift_vlrft.swift_plugin import zoom
from swift_vlrft.swift_plugin.zoom import MOST_TURNS, ZoomScheduler

pytestmark = pytest.mark.slow  # ms-swift is imported

ANSWER = "<think>t</think><answer>7</answer>"


def png(width, height, pixel=(0, 0, 0)):
    return base64.b64encode(picture(size=(width, height), colour=pixel)).decode()


def request(*pictures, **columns):
    prompt = [{"role": "user", "content": "<image>" * len(pictures) + "Which digit?"}]
    return RolloutInferRequest(prompt, images=list(pictures), data_dict=columns)


def response(text):
    message = ChatMessage(role="assistant", content=text)
    choice = ChatCompletionResponseChoice(0, message, "stop", token_ids=[1])
    return ChatCompletionResponse("tiny", [choice], UsageInfo(1, 1, 2))


def conversation(asked, *texts, **options):
    """What ms-swift's own loop makes of a model that says these texts, the last one for ever."""
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "<ids>")
    scheduler = ZoomScheduler(tokenizer=tokenizer, **options)
    said = iter(texts)

    def infer(requests, config):
        return [RolloutOutput(response=response(next(said, texts[-1]))) for _ in requests]

    first = infer([asked], None)
    return run_multi_turn([asked], first, scheduler, infer, RequestConfig(), options["max_turns"])[
        0
    ]


def test_a_call_gets_a_crop_or_a_line_and_an_answer_ends_the_turns(monkeypatch):
    monkeypatch.setenv("MAX_PIXELS", str(56 * 56))
    calls = [call(box) for box in ([300, 100, 100, 300], [250, 500, 500, 750])]
    done = conversation(request(png(2000, 1000)), *calls, ANSWER, max_turns=4)
    assert [message["role"] for message in done.messages] == ["user", "assistant"] * 3
    inverted, turn = done.rollout_infos["turns"]
    reply = f"<tool_response>\n{inverted['said']}\n</tool_response>"
    assert inverted["crop"] is None and done.messages[2] == {"role": "user", "content": reply}
    assert turn["crop"] == [225, 475, 525, 775], "500 x 250 pixels, and a tenth around"
    assert done.messages[4]["content"].count("<image>") == 1
    first, crop = done.rollout_infos["images"]
    assert zoom.opened(first).size == (2000, 1000), "the stored picture stays as it is"
    width, height = zoom.opened(crop).size
    assert 0.9 * 56 * 56 < width * height <= 56 * 56 and width / height == pytest.approx(
        2, rel=0.05
    )
    assert done.response.choices[0].message.content == ANSWER
    assert conversation(request(png(9, 9)), ANSWER, max_turns=4).rollout_infos == {"num_turns": 1}


def test_what_repeats_itself_is_bounded_and_said_once(caplog, monkeypatch):
    warned = []
    monkeypatch.setattr(zoom.logger, "warning_once", warned.append)
    done = conversation(request(png(200, 100)), call([0, 0, 100, 100]), max_turns=10_000)
    turns = done.rollout_infos["turns"]
    assert len(turns) == MOST_TURNS - 1 and len(done.rollout_infos["images"]) == 2
    assert {turn["said"] for turn in turns[1:]} == {"You have seen this part."}
    assert len(warned) == 1 and "10000" in warned[0] and "16" in warned[0]


@pytest.mark.parametrize("broken", ["no such file.png", base64.b64encode(b"GIF89a").decode()])
def test_a_picture_that_cannot_be_opened_ends_nothing(broken):
    done = conversation(request(broken), call([0, 0, 500, 500]), ANSWER, max_turns=2)
    assert done.rollout_infos["turns"][0]["said"] == "Picture 0 cannot be opened."


def test_several_pictures_are_told_apart_by_their_number():
    pictures = [png(100, 100, (200, 0, 0)), png(300, 100, (0, 200, 0))]
    texts = [call([0, 0, 500, 500], img_idx=n) for n in (1, 0, 2)]
    done = conversation(request(*pictures), *texts, ANSWER, max_turns=8)
    green, red = (zoom.opened(image).getpixel((3, 3)) for image in done.rollout_infos["images"][2:])
    assert green == (0, 200, 0) and red == (200, 0, 0)
    assert done.rollout_infos["turns"][2]["said"].startswith("There is no picture 2")


def test_boxes_in_pixels_are_those_of_the_picture_as_the_model_sees_it():
    """Against the resize that ms-swift calls for Qwen2.5-VL; the row's frame goes before it."""
    height, width = smart_resize(1500, 4000, factor=28, min_pixels=3136, max_pixels=401408)
    template = SimpleNamespace(
        model_meta=SimpleNamespace(model_type="qwen2_5_vl"),
        model_info=SimpleNamespace(model_dir=None),
        max_pixels=None,
    )
    for frame, edges in ((None, (width, height)), ("norm1000", (1000, 1000))):
        asked = request(png(4000, 1500), frame=frame)
        scheduler = ZoomScheduler(max_turns=2, template=template)
        box = [edges[0] / 2, edges[1] / 2, edges[0], edges[1]]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAX_PIXELS", "401408")
            made = scheduler.step(asked, response(call(box)).choices[0], 1)
        assert made["rollout_infos"]["turns"][0]["crop"] == pytest.approx(
            [450, 450, 1000, 1000], abs=1
        )


def test_an_evaluation_asks_in_the_same_turns():
    """`vlrft eval --max-turns` hands the first answers on; each row keeps its own turns."""

    class Engine:
        template = SimpleNamespace(
            tokenizer=SimpleNamespace(decode=lambda ids, **_: "<ids>"),
            _get_response_prefix=lambda inputs: "",
        )

        def infer(self, requests, config):
            assert [len(request.images) for request in requests] == [2]
            return [response(ANSWER)]

    rows = [SimpleNamespace(messages=[], images=[Image.new("RGB", (50, 50))]) for _ in range(2)]
    for row in rows:
        row.messages.append({"role": "user", "content": "<image>Which digit?"})
    first = [response(call([0, 0, 500, 500])), response(ANSWER)]
    frames = [{"frame": "norm1000"}] * 2
    answers, turns = zoom.answer_in_turns(Engine().infer, RequestConfig(), rows, first, frames, 2)
    assert [answer.choices[0].message.content for answer in answers] == [ANSWER] * 2
    assert [len(of) for of in turns] == [1, 0] and turns[0][0]["crop"] == [0, 0, 560, 560]
