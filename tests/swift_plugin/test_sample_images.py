"""VLRFT_LOG_IMAGES: what is drawn of a batch."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from swift_vlrft.report.drawing import draw_sample


def colours(picture) -> set:
    return {tuple(c) for c in np.asarray(picture).reshape(-1, 3)}


@pytest.mark.parametrize(
    ("frame", "gold", "said"),
    [
        ("norm1000", "[0, 0, 500, 500]", "[500, 500, 900, 900]"),
        ("unit", "[0, 0, 0.5, 0.5]", "[0.5, 0.5, 0.9, 0.9]"),
        ("pixels", "[0, 0, 100, 50]", "[100, 50, 180, 90]"),
        ("yx1000", '{"box_2d": [0, 0, 500, 500]}', '{"box_2d": [500, 500, 900, 900]}'),
    ],
)
def test_gold_and_predicted_boxes_lie_where_they_should(frame, gold, said):
    picture = Image.new("RGB", (200, 100), (90, 90, 90))
    gold, said = (f"<answer>{boxes}</answer>" for boxes in (gold, said))
    how = {"frame": frame, "task": "detection"}
    drawn = draw_sample(picture, said, gold, {"vlrft_detection_iou": 0.0}, **how)
    pixels = np.asarray(drawn)[:168]  # 200 x 100 becomes 336 x 168
    white = np.argwhere((pixels == (255, 255, 255)).all(axis=2))
    blue = np.argwhere((pixels == (86, 180, 233)).all(axis=2))
    assert white[:, 0].max() == pytest.approx(84, abs=2)
    assert white[:, 1].max() == pytest.approx(168, abs=2)
    assert blue.min(axis=0) == pytest.approx((84, 168), abs=3)
    assert blue.max(axis=0) == pytest.approx((151, 302), abs=3)


def test_points_are_dots_and_the_text_stands_below():
    picture = Image.new("RGB", (200, 100), (90, 90, 90))
    said = "<answer>[[250, 500], [750, 500], [1, 2, 3]]</answer>"
    how = {"frame": "norm1000", "task": "pointing"}
    drawn = draw_sample(picture, said, "[0, 0, 500, 900]", {"vlrft_pointing": 0.5}, **how)
    blue = np.argwhere((np.asarray(drawn)[:168] == (86, 180, 233)).all(axis=2))
    assert blue[:, 0].mean() == pytest.approx(84, abs=1)
    left, right = (blue[blue[:, 1] < 168, 1], blue[blue[:, 1] >= 168, 1])
    assert (left.mean(), right.mean()) == (pytest.approx(84, abs=1), pytest.approx(252, abs=1))
    assert np.asarray(drawn)[168:].any()


@pytest.mark.parametrize(
    "text", ["", "<answer>\ud800 \u202e猫</answer>", "<answer>[1e300, -5, 9e99, 1e305]</answer>"]
)
def test_nothing_that_a_model_writes_stops_the_drawing(text):
    picture = Image.new("L", (3, 400))
    for task in ("detection", "pointing", "ocr", "list"):
        assert draw_sample(picture, text, "<answer>4</answer>", {}, task=task).mode == "RGB"


@pytest.mark.slow
def test_samples_of_a_batch_are_those_of_different_prompts(monkeypatch):
    pytest.importorskip("swift")
    import torch

    from swift_vlrft.swift_plugin.sample_images import chosen_samples

    monkeypatch.setenv("VLRFT_LOG_IMAGES", "2")
    samples = [
        SimpleNamespace(
            images=[], prompt_id=prompt, messages=[{"content": text}], extra={"solution": "red"}
        )
        for prompt, text in zip("aabb", "wxyz", strict=True)
    ]
    none = float("nan")
    rewards = torch.tensor([[0.0, none], [1.0, 1.0], [0.5, 0.25], [none, 1.0]])
    chosen = chosen_samples(samples, ["one", "two"], rewards)
    assert [(one["completion"], one["scores"]) for one in chosen] == [
        ("w", {"one": 0.0}),
        ("y", {"one": 0.5, "two": 0.25}),
    ]
    assert chosen[0]["solution"] == "red"
    monkeypatch.setenv("VLRFT_LOG_IMAGES", "many")
    with pytest.raises(ValueError, match="VLRFT_LOG_IMAGES=many"):
        chosen_samples(samples, ["one", "two"], rewards)
