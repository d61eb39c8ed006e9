"""``vlrft score``: the report, and the command on files as people have them."""

# ruff: noqa: E501 - rows of a table stay on one line

import json

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.diagnostics.score import score_completions, score_file
from swift_vlrft.files.completions import Completion

GOLD = "<answer>[{'Position': [100, 100, 200, 200], 'Confidence': 1}]</answer>"
RIGHT = "<think>t</think><answer>[{'Position': [100, 100, 200, 200], 'Confidence': 1}]</answer>"


def answer(text):
    return f"<think>t</think><answer>{text}</answer>"


def score_rows(rows, names):
    completions = [Completion(str(n), row) for n, row in enumerate(rows, start=1)]
    return score_completions(completions, names)


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    ("reward", "text", "gold", "code", "words"),
    [
        ("detection_iou", None, GOLD, "no_answer", "no complete answer block"),
        ("detection_iou", "a dog", GOLD, "not_boxes", "answer is not a list"),
        ("detection_iou", "No Objects", GOLD, "false_empty_prediction", "says there is no object; there are 1"),
        ("detection_iou", "[1, 2, 3, 4]", "No Objects", "missed_empty_prediction", "1 box where there is no"),
        ("detection_iou", "[[1, 2, 3], [9, 9, 1, 1], [100, 100, 200, 200]]", GOLD, "invalid_boxes", "2 of 3 boxes invalid"),
        ("detection_iou", "[100, 100, 200, 141]", GOLD, "low_iou", "best IoU 0.41 under 0.5"),
        ("detection_iou", "[[100, 100, 200, 200]] " + "[1, 2, 3, 4]" * 4, GOLD, "extra_boxes", "4 extra boxes"),
        ("detection_iou", "[1, 2, 3, 4]", "[[1, 2, 3, 4], [5, 5, 9, 9]]", "missed_boxes", "1 gold box missed"),
        ("detection_iou", "[{'bbox': [1, 2, 3, 4], 'label': 'cat'}]", "[{'bbox': [1, 2, 3, 4], 'label': 'dog'}]", "label_mismatch", "label mismatch: 'cat' where the gold says 'dog'"),
        ("detection_iou", "[100, 100, 200, 190]", GOLD, "loose_boxes", "mean IoU 0.90"),
        ("detection_confidence", "[100, 100, 200, 200]", GOLD, "no_confidence", "1 of 1 without a confidence"),
        ("detection_confidence", "[{'bbox': [100, 100, 200, 200], 'score': 0.4}]", GOLD, "underconfident", "confidence 0.4 for a matched box"),
        ("detection_format", "a dog", GOLD, "not_boxes", "not a list"),
        ("format", "", "", "bad_format", "one non-empty think block"),
        ("grounding_iou", "[100, 100, 200, 141]", "[100, 100, 200, 200]", "low_iou", "best IoU 0.41 under 0.5"),
        ("grounding_iou", "[1, 2, 3, 4] [100, 100, 200, 200]", "[100, 100, 200, 200]", "extra_boxes", "1 extra box"),
        ("classification", "A319", "A320", "wrong_label", "label mismatch: 'a319' is not 'a320'"),
        ("counting", "3 or 4", "4", "no_number", "several"),
        ("counting", "3", "4", "wrong_number", "3 is not 4"),
        ("choice", "A", "B", "wrong_choice", "A is not B"),
        ("yes_no", "maybe", "yes", "no_choice", "none of the options"),
        ("counting", "3", "four", "bad_gold", "gold solution cannot be read"),
    ],
)  # fmt: skip
def test_every_lost_point_has_its_reason(reward, text, gold, code, words):
    completion = "no tags" if text is None else answer(text)
    reason = explain(f"vlrft_{reward}", completion, gold)
    assert reason.code == code
    assert words in reason.text
    assert reason.score is None or reason.score < 1.0


def test_a_full_score_needs_no_reason():
    assert explain("vlrft_detection_iou", RIGHT, GOLD).text == "full score"
    assert explain("vlrft_counting", RIGHT, GOLD, task="detection").code == "other_task"


def test_ms_swifts_completions_file_is_read(tmp_path):
    """One object per step, a list per key, as GRPOTrainer.log writes it."""
    step = {
        "step": ["1"] * 4,
        "prompt": ["p", "p", "q", "q"],
        "completion": [RIGHT, answer("a dog"), RIGHT, RIGHT],
        "vlrft_detection_iou": [1.0, 0.0, 1.0, 1.0],
        "advantages": [0.7, -0.7, 0.0, 0.0],
        "solution": [GOLD] * 4,
    }
    second = step | {"step": ["2"] * 4}
    # When training ends, it writes the last table again.
    file = write(tmp_path / "completions.jsonl", step, second, second)
    report = score_file(file, ["vlrft_detection_iou", "vlrft_format"], show=3)
    assert report.rows == 8
    summary = report.rewards["vlrft_detection_iou"]
    assert summary.mean == pytest.approx(0.75)
    assert summary.parse_rate == pytest.approx(0.75)
    assert summary.reasons == {"ok": 6, "not_boxes": 2}
    assert (summary.groups, summary.zero_variance_groups) == (4, 2)
    assert [sample.line for sample in report.samples] == ["1[1]", "2[1]"]
    assert report.flags == [
        (
            "vlrft_format: zero variance within every one of 4 groups, so nothing is learned from it. "
            "Raise the temperature or num_generations, or use a softer reward."
        )
    ]


def test_rows_of_several_tasks_are_routed():
    rows = [
        {"completion": RIGHT, "solution": GOLD, "task": "detection"},
        {
            "completion": answer("Airbus"),
            "solution": "A320",
            "task": "classification",
            "aliases": ["airbus"],
        },
    ]
    report = score_rows(rows, ["vlrft_detection_iou", "vlrft_classification"])
    assert [s.mean for s in report.rewards.values()] == [1.0, 1.0]
    assert [s.skipped for s in report.rewards.values()] == [1, 1]


def test_the_log_of_a_run_of_several_tasks_is_routed_by_its_scores(tmp_path):
    step = {
        "step": 1,
        "prompt": ["p", "q"],
        "completion": [RIGHT, answer("a rose")],
        "solution": [GOLD, "a rose"],
        "vlrft_detection_iou": [1.0, float("nan")],  # None, as ms-swift writes it
        "vlrft_classification": [float("nan"), 1.0],
    }
    file = write(tmp_path / "completions.jsonl", step)
    report = score_file(file, ["vlrft_detection_iou", "vlrft_classification"])
    assert [s.mean for s in report.rewards.values()] == [1.0, 1.0]
    assert [s.skipped for s in report.rewards.values()] == [1, 1]
    assert not any("gold" in flag for flag in report.flags)
    alone = {**step, "vlrft_classification": [0.0, float("nan")]}
    del alone["vlrft_detection_iou"]
    report = score_file(write(tmp_path / "alone.jsonl", alone), ["vlrft_classification"])
    assert report.rewards["vlrft_classification"].skipped == 0  # no other reward took it


@pytest.mark.parametrize(
    ("reward", "texts", "gold", "logged", "column"),
    [
        ("vlrft_ocr", ["ITC", "x"], "ITC Limited", [1.0, 0.0], {"aliases": ["ITC"]}),
        ("vlrft_classification", ["a320", "b"], "Airbus", [1.0, 0.0], {"aliases": ["A320"]}),
        ("vlrft_number", ["99", "1"], "100", [1.0, 0.0], {"tolerance": 0.05}),
    ],
)
def test_a_log_without_a_column_of_its_set_is_noted(reward, texts, gold, logged, column, tmp_path):
    """ms-swift logs the solution, and no further column."""
    record = {"completion": [answer(t) for t in texts], "solution": [gold] * 2, reward: logged}
    report = score_file(write(tmp_path / "completions.jsonl", record))
    name = next(iter(column))
    assert report.notes == [
        f"{reward}: the run scored 1 of 2 rows otherwise; its log lacks {name}, which its data set "
        "may hold"
    ]
    whole = record | {key: [value] * 2 for key, value in column.items()}
    assert score_file(write(tmp_path / "whole.jsonl", whole)).notes == []
    alone = (
        record | {reward: [0.0, 0.0]}
        if reward != "vlrft_ocr"
        else record | {"completion": [answer("ITC Limited"), answer("?")]}
    )
    assert score_file(write(tmp_path / "alone.jsonl", alone)).notes == []


@pytest.mark.parametrize(
    ("texts", "solution", "more", "words"),
    [
        (["[0.1, 0.1, 0.2, 0.2]"] * 10, GOLD, {}, "all coordinates under 1"),
        (["[900, 500, 1400, 1100]"] * 10, GOLD, {}, "(subset `pixels`)"),
        (["[100, 100, 700, 200]"] * 10, GOLD, {"frame": "pixels", "width": 640, "height": 480}, "the subset `norm1000`"),
        (["[250, 250, 500, 500]"] * 10, "[0.25, 0.25, 0.5, 0.5]", {"frame": "unit"}, "reach beyond 1. A model that answers between 0 and 1000"),
        (["[900, 500, 1400, 1100]"] * 10, "{'box_2d': [1, 2, 3, 4]}", {"frame": "yx1000"}, "reach beyond 1000"),
        (["a dog"] * 10, GOLD, {}, "only 0% of 10 answers can be read"),
        (["[100, 100, 200, 200]"] * 2, "four", {}, "2 gold solutions cannot be read"),
    ],
)  # fmt: skip
def test_what_ruins_a_run_is_flagged(texts, solution, more, words):
    rows = [{"completion": answer(text), "solution": solution, **more} for text in texts]
    report = score_rows(rows, ["vlrft_detection_iou"])
    assert any(words in flag for flag in report.flags), report.flags


@pytest.mark.parametrize(
    ("text", "solution", "more"),
    [
        ("[100, 100, 200, 200]", GOLD, {}),
        ("[1100, 700, 1500, 900]", "[1110, 700, 1500, 900]", {}),  # gold in pixels of a large image
        ("[0.1, 0.1, 0.2, 0.2]", "[0.1, 0.1, 0.2, 0.3]", {}),
        ("[1100, 700, 1500, 900]", "[900, 700, 1000, 900]", {"frame": "pixels", "width": 1920, "height": 1080}),
    ],
)  # fmt: skip
def test_frames_that_agree_are_not_flagged(text, solution, more):
    rows = [{"completion": answer(text), "solution": solution, **more}] * 10
    assert score_rows(rows, ["vlrft_detection_iou"]).flags == []


def test_the_command_prints_means_reasons_and_samples(tmp_path):
    rows = [
        {"completion": c, "solution": GOLD} for c in (RIGHT, RIGHT, answer("[100, 100, 200, 141]"))
    ]
    file = write(tmp_path / "rows.jsonl", *rows)
    result = CliRunner().invoke(
        app, ["score", str(file), "--reward", "vlrft_detection_iou", "--show", "5"]
    )
    assert result.exit_code == 0, result.output
    for words in ("3 completions", "0.667", "100%", "low iou", "line 3", "best IoU 0.41 under 0.5"):
        assert words in result.output


def test_the_command_takes_the_rewards_that_the_file_names(tmp_path):
    file = write(
        tmp_path / "c.jsonl", {"completion": [RIGHT], "solution": [GOLD], "vlrft_format": [1.0]}
    )
    result = CliRunner().invoke(app, ["score", str(file), "--json"])
    assert result.exit_code == 0
    report = json.loads(result.output)
    assert list(report["rewards"]) == ["vlrft_format"]
    assert report["rewards"]["vlrft_format"]["mean"] == 1.0


def test_exit_code_one_when_something_ruins_the_run(tmp_path):
    file = write(tmp_path / "c.jsonl", {"completion": "?", "solution": GOLD})
    result = CliRunner().invoke(app, ["score", str(file), "--reward", "vlrft_detection_iou"])
    assert result.exit_code == 1
    assert "only 0% of 1 answers can be read" in result.output


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("{}\n", ["--reward", "vlrft_format"], "line 1: no key 'completion'"),
        ("\n{\n", ["--reward", "vlrft_format"], "line 2: not JSON"),
        ("", ["--reward", "vlrft_format"], "no completions in it"),
        ('{"completion": "a"}', [], "say which with --reward"),
        (
            '{"completion": "a"}',
            ["--reward", "vlrft_detection_iou"],
            "c.jsonl, line 1: vlrft_detection_iou needs the column 'solution'",
        ),
        (b'{"completion": "\xe9"}', ["--reward", "vlrft_format"], "c.jsonl, line 1: not UTF-8"),
        ('{"completion": "a"}', ["--reward", "iou"], "unknown reward 'iou'"),
        (
            '{"completion": ["a", "b"], "solution": ["x"]}',
            ["--reward", "vlrft_format"],
            "another number in",
        ),
    ],
)
def test_exit_code_two_for_input_that_cannot_be_used(tmp_path, text, options, words):
    file = tmp_path / "c.jsonl"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = CliRunner().invoke(app, ["score", str(file), *options])
    assert result.exit_code == 2
    assert words in result.output.replace("\n", "")
    assert "Traceback" not in result.output


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    file = write(tmp_path / "c.jsonl", {"completion": "a"})
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert CliRunner().invoke(app, ["score", str(file), "--reward", "vlrft_format"]).exit_code == 0


def test_a_missing_file_is_exit_code_two(tmp_path):
    assert CliRunner().invoke(app, ["score", str(tmp_path / "none.jsonl")]).exit_code == 2


def test_what_a_model_writes_does_not_reach_the_terminal_as_control_characters(tmp_path):
    file = write(tmp_path / "c.jsonl", {"completion": "\x1b[31m[red]\ud800", "solution": GOLD})
    result = CliRunner().invoke(
        app, ["score", str(file), "--reward", "vlrft_detection_iou", "--show", "1"]
    )
    assert "\x1b[31m" not in result.output
    assert "[red]" in result.output
