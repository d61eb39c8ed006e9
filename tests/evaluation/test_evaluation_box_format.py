"""Boxes asked in pixels of what the model sees are worth what they are worth in thousandths."""

import json
import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets.box_format import ImageResize
from swift_vlrft.datasets.build import PROMPT
from swift_vlrft.datasets.row import Row
from swift_vlrft.evaluation.annotations import Gold, open_annotations
from swift_vlrft.evaluation.compare import compare
from swift_vlrft.evaluation.detections import boxes_of_annotations, boxes_of_rows
from swift_vlrft.evaluation.joined import join_gold, same_gold
from swift_vlrft.evaluation.predictions import (
    EvaluationError,
    Prediction,
    Predictions,
    Problems,
    read_predictions,
)
from swift_vlrft.evaluation.queries import Query, QuerySet, Settings
from swift_vlrft.evaluation.run import Manifest, answer_line
from swift_vlrft.evaluation.summary import summarise
from swift_vlrft.files.records import write_record
from swift_vlrft.geometry.box_format import BOX_FORMATS
from swift_vlrft.parsing.answers import gold_text, read_boxes
from swift_vlrft.report.html import place
from swift_vlrft.report.samples import drawn_boxes

VIEW = ImageResize("qwen2_5_vl", 56 * 56, 401408)
STORED = (1920, 1080)
SEEN = VIEW.size(*STORED)


def query(box_format: str | None, box: list[int], task: str = "detection") -> Query:
    gold = f"<answer>[{{'Position': {box}, 'Confidence': 1}}]</answer>"
    columns = {"task": task, "frame": box_format, "image_id": "1", "category": "dog"}
    return Query("0", Row(None, {}, PROMPT.format(category="dog"), gold, columns))


def test_prompt_and_gold_are_in_the_frame_that_is_wanted():
    asked = query("norm1000", [250, 250, 750, 500]).rewritten("pixels", STORED, SEEN)
    seen = asked.seen
    assert seen == SEEN and seen[0] * seen[1] <= 401408 and seen != STORED
    assert f"in pixels, x from 0 to {seen[0]} and y from 0 to {seen[1]}" in asked.row.problem
    gold = read_boxes(gold_text(asked.row.solution))
    wanted = (seen[0] / 4, seen[1] / 4, seen[0] * 3 / 4, seen[1] / 2)
    assert gold.boxes[0] == pytest.approx(wanted, abs=1)

    stored = query("pixels", [480, 270, 1440, 540])  # RefCOCO's: pixels of the stored picture
    asked = stored.rewritten("norm1000", STORED, STORED)
    assert asked.seen is None and asked.box_format == "norm1000"
    assert read_boxes(gold_text(asked.row.solution)).boxes == [(250, 250, 750, 500)]
    assert "between 0 and 1000" in asked.row.problem

    counted = query("pixels", [480, 270, 1440, 540], "counting")
    assert counted.rewritten("norm1000", STORED, STORED) == counted
    unknown = query(None, [1, 1, 5, 5])
    assert unknown.rewritten("pixels", STORED, SEEN) == unknown


def asked_in(frame: str, said: tuple[float, ...], tmp_path) -> Prediction:
    """What `vlrft eval` writes and reads of one answer; ``said`` in shares of the picture."""
    asked = query("norm1000", [250, 250, 750, 500]).rewritten(frame, STORED, SEEN)
    whole = asked.seen or (1000, 1000)
    box = [round(share * whole[n % 2]) for n, share in enumerate(said)]
    line = answer_line(
        asked, f"<answer>{[box]}</answer>", image_id="1", size=STORED, tokens=9, finish="stop",
    )  # fmt: skip
    (tmp_path / f"{frame}.jsonl").write_text(line)
    return read_predictions(tmp_path / f"{frame}.jsonl").rows[0]


def test_both_frames_give_the_same_boxes_in_the_picture(tmp_path):
    said = (0.26, 0.25, 0.74, 0.5)
    sides = [asked_in(frame, said, tmp_path) for frame in ("norm1000", "pixels")]
    first, second = (boxes_of_rows([row], Problems()) for row in sides)
    assert first.sizes_known and second.sizes_known
    for kind in ("gold", "predicted"):
        one, other = getattr(first, kind)[0], getattr(second, kind)[0]
        assert one["bbox"] == pytest.approx(other["bbox"], abs=4)  # a pixel seen is 2.3 stored
    assert first.gold[0]["bbox"] == pytest.approx([480, 270, 960, 270])
    gold = [read_boxes(gold_text(row.solution)) for row in sides]
    places = [place(drawn_boxes(*pair, "gold")[0]) for pair in zip(sides, gold, strict=True)]
    assert "left:25.00%;top:25.00%" in places[0] and "left:25." in places[1]


@pytest.mark.parametrize("frame", BOX_FORMATS)
def test_an_answer_is_worth_the_same_in_every_format(frame, tmp_path):
    """Through the files of `vlrft eval --predictions`: scores, AP and pixels in COCO's form."""
    Image.new("RGB", STORED).save(tmp_path / "a.png")
    row = {
        "image": "a.png", "problem": PROMPT.format(category="dog"), "task": "detection",
        "solution": "<answer>[[250, 250, 750, 500]]</answer>",
    }  # fmt: skip
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")
    asked = query("norm1000", [250, 250, 750, 500]).rewritten(frame, STORED, STORED)
    assert asked.box_format == frame
    said = {
        "norm1000": "[{'Position': [260, 250, 740, 500]}]",
        "unit": "[{'Position': [0.260, 0.250, 0.740, 0.500]}]",
        "yx1000": '[{"box_2d": [250, 260, 500, 740]}]',
        "pixels": "[[499.2, 270, 1420.8, 540]]",
    }[frame]
    line = json.loads(answer_line(asked, f"<answer>{said}</answer>", image_id="1", size=STORED))
    for held in (line, {k: v for k, v in line.items() if k != "solution"}):
        (tmp_path / "p.jsonl").write_text(json.dumps(held))
        words = ["eval", "--predictions", f"{tmp_path}/p.jsonl", "--task", "detection", "--json"]
        result = CliRunner().invoke(
            app, [*words, "--gold", f"{tmp_path}/set.jsonl", "--join", "order"]
        )
        assert result.exit_code == 0, result.output
        metrics = json.loads(result.stdout)["metrics"]
        # 0.48 of 0.5 of the width
        assert metrics["vlrft_detection_iou"]["value"] == pytest.approx(0.96, abs=0.005)
        assert metrics["AP50"]["value"] == 1.0
    (tmp_path / "p.jsonl").write_text(json.dumps(line))
    boxes = boxes_of_rows(read_predictions(tmp_path / "p.jsonl").rows, Problems())
    assert boxes.predicted[0]["bbox"] == pytest.approx([499.2, 270, 921.6, 270])
    assert boxes.gold[0]["bbox"] == pytest.approx([480, 270, 960, 270])


def test_another_gold_is_told_apart_in_shares_too():
    assert not same_gold("[0.1, 0.1, 0.2, 0.2]", "[0.4, 0.4, 0.9, 0.9]")
    assert same_gold("[0.1, 0.1, 0.2, 0.2]", "[0.101, 0.1, 0.2, 0.2]")


def test_predictions_in_pixels_are_held_against_the_set_in_pixels(tmp_path):
    Image.new("RGB", STORED).save(tmp_path / "a.png")
    row = {
        "image": "a.png", "problem": PROMPT.format(category="dog"), "task": "detection",
        "solution": "<answer>[[250, 250, 750, 500]]</answer>",
    }  # fmt: skip
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")
    queries = QuerySet(Settings("m", tmp_path / "set.jsonl", "detection"))
    (asked,) = queries.read(Problems())
    made = asked.rewritten("pixels", STORED, SEEN)
    line = answer_line(made, made.row.solution, image_id="1", size=STORED)
    (tmp_path / "predictions.jsonl").write_text(line)
    predictions = read_predictions(tmp_path / "predictions.jsonl")
    predictions = join_gold(predictions, queries, "order")
    summary = summarise(predictions, bootstrap=0)
    assert summary.problems == {} and summary.metrics["vlrft_detection_iou"].value == 1.0


def crowded(tmp_path, found: str) -> Predictions:
    box = {"category_id": 1, "bbox": [0, 0, 32, 24], "area": 768}
    content = {
        "images": [{"id": n, "file_name": f"{n}.png", "width": 64, "height": 48} for n in (1, 2)],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 1, "iscrowd": 1, **box},
            {"id": 2, "image_id": 2, "iscrowd": 0, **box},
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    solutions = ("<answer>No Objects</answer>", "<answer>[[0, 0, 500, 500]]</answer>")
    rows = [
        Prediction(f"{n}/cat", f"<answer>{found}</answer>", gold, str(n), "cat", "norm1000")
        for n, gold in enumerate(solutions, start=1)
    ]
    return Predictions("detection", rows)


def test_a_crowd_costs_nothing(tmp_path):
    predictions = crowded(tmp_path, "[[0, 0, 500, 500]]")
    gold = open_annotations(tmp_path / "instances.json")
    summary = summarise(predictions, gold=Gold(gold), bootstrap=0)
    assert summary.metrics["AP"].value == 1.0
    assert summary.metrics["vlrft_detection_iou"].value == 1.0  # of the other picture alone
    assert summary.reasons == {"ok": 1, "incomplete_gold": 1}
    assert any("crowd" in kind for kind in summary.problems)


def test_pixels_of_a_training_row_are_scaled_to_the_annotations(tmp_path):
    predictions = crowded(tmp_path, "[[0, 0, 56, 56]]")
    for row in predictions.rows:
        row.box_format, row.width, row.height = "pixels", 112, 112
    gold = open_annotations(tmp_path / "instances.json")
    _, made = boxes_of_annotations(gold, predictions)
    assert made.predicted[1]["bbox"] == [0, 0, 32, 24]


@pytest.mark.parametrize(
    ("frame", "found"),
    [("unit", "[[0, 0, 0.5, 0.5]]"), ("yx1000", '[{"box_2d": [0, 0, 500, 500]}]')],
)
def test_answers_without_solutions_find_that_of_the_annotations(frame, found, tmp_path):
    predictions = crowded(tmp_path, found)
    for row in predictions.rows:
        row.box_format, row.solution = frame, ""
    gold = open_annotations(tmp_path / "instances.json")
    _, made = boxes_of_annotations(gold, predictions)
    assert made.predicted[1]["bbox"] == [0, 0, 32, 24]
    summary = summarise(predictions, gold=Gold(gold), bootstrap=0)
    assert summary.metrics["AP"].value == 1.0
    assert summary.metrics["vlrft_detection_iou"].value == 1.0


def test_without_sizes_there_is_no_ap_by_size_in_a_comparison():
    def side() -> Predictions:
        gold = "<answer>[[10, 10, 500, 500]]</answer>"
        return Predictions("detection", [Prediction("0", gold, gold, "a")])

    found = compare(side(), side(), bootstrap=2, join="order")
    assert found.metrics["AP"].a == 1.0 and found.metrics["AP_large"].a is None


def test_a_name_that_the_set_does_not_ask_for_is_refused(tmp_path):
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    row = {
        "image": "a.png", "problem": PROMPT.format(category="rose"), "task": "detection",
        "solution": "<answer>No Objects</answer>", "category": "rose",
    }  # fmt: skip
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")

    def asked(*names: str) -> list[Query]:
        settings = Settings("m", tmp_path / "set.jsonl", "detection", categories=names)
        return list(QuerySet(settings).read(Problems()))

    assert len(asked("rose")) == 1
    with pytest.raises(ValueError, match="'rise' is no category.*Did you mean rose"):
        asked("rose", "rise")
    with pytest.raises(EvaluationError, match=r"asks for none of them, but for rose"):
        asked("coco-novel15")


def test_a_worker_that_is_killed_ends_the_run(tmp_path, monkeypatch):
    from swift_vlrft.swift_plugin import inference

    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -TERM $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    (tmp_path / "parts").mkdir()
    with pytest.raises(EvaluationError, match="worker 0 ended with exit code -15"):
        inference.run_workers(tmp_path, 1)


def test_another_resolution_is_said(tmp_path):
    row = {
        "id": "0", "task": "classification", "completion": "<answer>a</answer>", "solution": "a",
        "image_id": "1",
    }  # fmt: skip
    for name, resolution in (("before", {}), ("after", {"MAX_PIXELS": "401408"})):
        (tmp_path / name).mkdir()
        settings = Settings("m", tmp_path, "classification", resolution=resolution)
        write_record(tmp_path / name / "run.json", Manifest(settings))
        (tmp_path / name / "predictions.jsonl").write_text(json.dumps(row) + "\n")
    command = ["compare", str(tmp_path / "before"), str(tmp_path / "after")]
    said = CliRunner().invoke(app, command).output
    assert "the model's own limits in A, at MAX_PIXELS=401408 in B" in said
