"""`vlrft eval` on existing predictions: forms, metrics, protocols, bad input."""

import json
import random
from fractions import Fraction

import pytest
from support.drawn_rows import boxed_rows
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.evaluation import read_predictions, summarise
from swift_vlrft.evaluation.annotations import Gold, open_annotations
from swift_vlrft.evaluation.detections import boxes_of_rows
from swift_vlrft.evaluation.predictions import EvaluationError, Problems
from swift_vlrft.evaluation.row_metrics import substring_rule


def answer(text: str) -> str:
    return f"<think>t</think><answer>{text}</answer>"


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def classification_rows(said: list[tuple[str, str]]) -> list[dict]:
    return [
        {
            "id": str(n),
            "task": "classification",
            "completion": answer(text),
            "solution": gold,
            "image_id": f"{n}.png",
        }
        for n, (text, gold) in enumerate(said)
    ]


def eval_json(*arguments) -> dict:
    return run_json("eval", *arguments)


def run_json(*arguments) -> dict:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# ---- classification and counting -------------------------------------------------------------


def test_classification_is_exact_and_the_published_rule_is_apart(tmp_path):
    rows = classification_rows(
        [("African_Violet.", "african violet"), ("violet", "african violet"), ("a", "rose")]
        + [("rose", "rose"), ("", "rose")]
    )
    rows[4]["completion"] = "no tags at all"
    summary = eval_json("--predictions", write_lines(tmp_path / "p.jsonl", rows))
    metrics = {name: m["value"] for name, m in summary["metrics"].items()}
    assert metrics["accuracy"] == pytest.approx(2 / 5)
    assert metrics["published_substring_rule"] == pytest.approx(3 / 5)  # "violet" counts as right
    assert metrics["parse_rate"] == pytest.approx(4 / 5)
    assert metrics["vlrft_format"] == pytest.approx(4 / 5)
    assert summary["by_class"]["rose"]["accuracy"] == pytest.approx(1 / 3)
    assert any("only for comparison" in note for note in summary["notes"])


def test_the_published_rule_counts_a_part_of_the_name():
    assert substring_rule(answer("a"), "Tabby cat")
    assert substring_rule(answer("not Tabby_Cat"), "tabby cat")
    assert not substring_rule(answer("dog"), "cat")
    assert not substring_rule("<answer>tabby\ncat</answer>", "cat")  # it reads one line only


def test_the_interval_of_an_accuracy_is_that_of_the_binomial(tmp_path):
    said = [("rose", "rose")] * 60 + [("tulip", "rose")] * 40
    file = write_lines(tmp_path / "p.jsonl", classification_rows(said))
    measure = summarise(read_predictions(file), bootstrap=4000).metrics["accuracy"]
    spread = 1.96 * (0.6 * 0.4 / 100) ** 0.5
    assert measure.low == pytest.approx(0.6 - spread, abs=0.02)
    assert measure.high == pytest.approx(0.6 + spread, abs=0.02)


def test_rows_of_one_picture_are_drawn_together(tmp_path):
    rows = classification_rows([("rose", "rose")] * 50 + [("tulip", "rose")] * 50)
    apart = summarise(read_predictions(write_lines(tmp_path / "a.jsonl", rows)))
    for n, row in enumerate(rows):
        row["image_id"] = f"{n // 10}.png"  # ten pictures of ten rows, all right or all wrong
    together = summarise(read_predictions(write_lines(tmp_path / "b.jsonl", rows)))
    a, b = apart.metrics["accuracy"], together.metrics["accuracy"]
    assert b.high - b.low > 2 * (a.high - a.low)


def test_counting(tmp_path):
    rows = [
        {"task": "counting", "completion": answer(text), "solution": gold}
        for text, gold in (("4 dogs", "4"), ("3", "4"), ("4 or 5", "4"), ("2", "2"))
    ]
    summary = eval_json("--predictions", write_lines(tmp_path / "p.jsonl", rows))
    metrics = {name: m["value"] for name, m in summary["metrics"].items()}
    assert metrics["accuracy"] == pytest.approx(0.5)
    assert metrics["mean_absolute_error"] == pytest.approx(1 / 3)  # of the three that state one
    assert metrics["parse_rate"] == pytest.approx(0.75)


# ---- grounding -------------------------------------------------------------------------------


def test_grounding_metrics_by_hand(tmp_path):
    gold = "[100, 100, 300, 300]"
    said = ["[100,100,300,300]", "[100,100,300,220]", "[0,0,50,50]", "[100,100,300,300] [0,0,5,5]"]
    rows = [
        {
            "task": "grounding",
            "completion": answer(text),
            "solution": gold,
            "frame": "norm1000",
            "width": 500,
            "height": 1000,
        }
        for text in said
    ]
    rows.append(rows[0] | {"completion": "nothing"})
    summary = summarise(read_predictions(write_lines(tmp_path / "p.jsonl", rows)))
    value = {name: m.value for name, m in summary.metrics.items()}
    assert value["acc50"] == pytest.approx(2 / 5)  # two boxes are not an answer
    assert value["acc75"] == pytest.approx(1 / 5)
    assert value["mean_iou"] == pytest.approx((1 + 0.6 + 0 + 0.5 + 0) / 5)
    # LISA's cumulative IoU: intersections over unions, here in units of 0.5 pixels.
    shared = 40_000 + 24_000 + 0 + 40_000 + 0
    joined = 40_000 + 40_000 + 42_500 + 40_025 + 40_000
    assert value["cumulative_iou"] == pytest.approx(shared / joined)
    union, hull = 42_500, 300 * 300
    far = (union - hull) / hull
    assert value["mean_giou"] == pytest.approx((1 + 0.6 + far + 0.0 - 1) / 5)
    assert value["invalid_box_rate"] == 0.0


# ---- detection -------------------------------------------------------------------------------


def detection_rows(seed: int = 0, images: int = 20) -> tuple[list[dict], dict]:
    """Rows of one category each, and the same as COCO annotations in pixels."""
    rng = random.Random(seed)
    rows: list[dict] = []
    coco: dict = {"images": [], "categories": [], "annotations": []}
    names = ["cat", "dog", "bus"]
    coco["categories"] = [{"id": n, "name": name} for n, name in enumerate(names, start=1)]
    for image in range(1, images + 1):
        size = rng.choice([(640, 480), (300, 900)])
        coco["images"].append(
            {"id": image, "file_name": f"{image}.jpg", "width": size[0], "height": size[1]}
        )
        for category, name in enumerate(names, start=1):
            gold, said = [], []
            for _ in range(rng.choice((0, 1, 2))):
                x, y = rng.randint(0, 500), rng.randint(0, 500)
                box = [x, y, x + rng.randint(20, 400), y + rng.randint(20, 400)]
                gold.append({"Position": box, "Confidence": 1})
                x1, y1, x2, y2 = (v * side / 1000 for v, side in zip(box, size * 2, strict=True))
                coco["annotations"].append(
                    {
                        "id": len(coco["annotations"]) + 1,
                        "image_id": image,
                        "category_id": category,
                        "bbox": [x1, y1, x2 - x1, y2 - y1],
                        "area": (x2 - x1) * (y2 - y1),
                        "iscrowd": 0,
                    }
                )
                if rng.random() < 0.8:
                    slip = [v + rng.randint(-15, 15) for v in box]
                    said.append({"Position": slip, "Confidence": rng.random()})
            if rng.random() < 0.2:
                said.append({"Position": [900, 900, 990, 990], "Confidence": rng.random()})
            rows.append(
                {
                    "id": f"{image}/{name}",
                    "task": "detection",
                    "completion": answer(str(said) if said else "No Objects"),
                    "solution": str(gold) if gold else "No Objects",
                    "image_id": str(image),
                    "category": name,
                    "frame": "norm1000",
                    "width": size[0],
                    "height": size[1],
                }
            )
    return rows, coco


def test_rows_and_annotations_give_the_numbers_of_pycocotools(tmp_path):
    from test_average_precision import pycocotools_stats

    rows, coco = detection_rows()
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    found = []
    for row in rows:
        said = row["completion"].split("<answer>")[1].split("</answer>")[0]
        for box in [] if said == "No Objects" else json.loads(said.replace("'", '"')):
            x1, y1, x2, y2 = (
                v * side / 1000
                for v, side in zip(box["Position"], (row["width"], row["height"]) * 2, strict=True)
            )
            found.append(
                {
                    "image_id": int(row["image_id"]),
                    "category_id": {"cat": 1, "dog": 2, "bus": 3}[row["category"]],
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "score": box["Confidence"],
                }
            )
    gold = [{k: v for k, v in one.items() if k != "id"} for one in coco["annotations"]]
    expected = pycocotools_stats(gold, found, list(range(1, 21)), [1, 2, 3]).stats
    file = write_lines(tmp_path / "p.jsonl", rows)
    (tmp_path / "visual_rft.json").write_text(json.dumps(found))
    annotations = open_annotations(tmp_path / "gold.json")
    for summary in (
        summarise(read_predictions(file)),
        summarise(read_predictions(file), gold=Gold(annotations, protocol="all")),
        summarise(read_predictions(tmp_path / "visual_rft.json"), gold=Gold(annotations)),
    ):
        names = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")
        for name, value in zip(names, expected, strict=False):
            got = summary.metrics[name].value
            assert (got if got is not None else -1) == pytest.approx(value, abs=1e-6), name
        assert summary.metrics["AP"].low < expected[0] < summary.metrics["AP"].high


def test_boxes_become_pixels_with_one_rounding(tmp_path):
    """An IoU that is exactly at a threshold must not be moved by how a box is scaled."""
    rows, _ = detection_rows()
    boxes = boxes_of_rows(
        read_predictions(write_lines(tmp_path / "p.jsonl", rows)).rows, Problems()
    )
    corners = [one["bbox"][:2] for one in boxes.gold]
    assert corners == [
        [float(Fraction(v * side, 1000)) for v, side in zip(box["Position"], size, strict=False)]
        for row in rows
        for size in [(row["width"], row["height"])]
        for box in (json.loads(row["solution"].replace("'", '"')) if "[" in row["solution"] else [])
    ]


def test_the_protocols_differ_in_what_is_missed(tmp_path):
    rows, coco = detection_rows()
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    asked = [row for row in rows if row["solution"] != "No Objects"][:15]
    for row in asked:
        row["completion"] = answer(row["solution"])
    file = write_lines(tmp_path / "p.jsonl", asked)
    gold = open_annotations(tmp_path / "gold.json")
    every = summarise(read_predictions(file), gold=Gold(gold, protocol="all"))
    mapped = summarise(read_predictions(file), gold=Gold(gold, protocol="visual-rft"))
    assert every.metrics["AP50"].value == pytest.approx(1.0)
    assert mapped.metrics["AP50"].value < 0.7  # boxes of questions that were not asked are missed
    assert (every.protocol, mapped.protocol) == ("all", "visual-rft")
    assert any("not comparable" in note for note in mapped.notes)
    assert any("NMS-AP" in note for note in every.notes)


def test_an_image_whose_gold_cannot_be_read_leaves_the_others_their_intervals(tmp_path):
    rows, _ = detection_rows()
    whole = summarise(read_predictions(write_lines(tmp_path / "a.jsonl", rows)))
    bad = rows[0] | {"id": "z", "image_id": "z", "solution": "no box at all"}
    found = summarise(read_predictions(write_lines(tmp_path / "b.jsonl", [*rows, bad])))
    assert found.metrics["AP"].value == whole.metrics["AP"].value
    assert found.metrics["AP"].low is not None
    assert found.problems == {"gold solutions that cannot be read, not scored": 1}


def test_named_lists_are_averaged(tmp_path):
    from swift_vlrft.datasets.build import CATEGORY_LISTS

    gold = "[{'Position': [10, 10, 200, 200], 'Confidence': 1}]"
    rows = [
        {
            "id": name,
            "task": "detection",
            "completion": answer(gold if name != "dog" else "No Objects"),
            "solution": gold,
            "category": name,
            "image_id": "1",
        }
        for name in CATEGORY_LISTS["virft-coco8"]
    ]
    summary = summarise(read_predictions(write_lines(tmp_path / "p.jsonl", rows)))
    assert summary.selected == {"virft-coco8": pytest.approx(7 / 8)}
    assert summary.metrics["AP_small"].value is None  # no picture's size is known
    assert summary.metrics["false_empty_prediction_rate"].value == pytest.approx(1 / 8)


# ---- forms -----------------------------------------------------------------------------------


def test_swift_infer_results_are_read(tmp_path):
    rows = [
        {
            "response": answer("red"),
            "labels": None,
            "logprobs": None,
            "messages": [
                {"role": "user", "content": "<image>What colour?"},
                {"role": "assistant", "content": answer("red")},
            ],
            "images": [{"bytes": None, "path": "/data/1.png"}],
            "solution": f"<answer>{gold}</answer>",
            "task": "classification",
        }
        for gold in ("red", "blue")
    ]
    found = read_predictions(write_lines(tmp_path / "r.jsonl", rows))
    assert found.rows[0].prompt == "<image>What colour?"
    assert found.rows[0].image_id == "/data/1.png"
    assert summarise(found).metrics["accuracy"].value == 0.5


def test_missing_rows_are_unanswered_and_unknown_ones_left_out(tmp_path):
    from swift_vlrft.demo.data import write_parquet
    from swift_vlrft.demo.tasks import known_task

    rows = known_task("colours").make(random.Random(0), 4)
    write_parquet(rows, tmp_path / "set")
    said = [
        {"id": str(n), "task": "classification", "completion": rows[n].solution} for n in (0, 1)
    ]
    said.append(said[0] | {"id": "9"})
    file = write_lines(tmp_path / "p.jsonl", said)
    summary = eval_json("--predictions", file, "--gold", tmp_path / "set", "--join", "id")
    assert summary["metrics"]["accuracy"]["value"] == pytest.approx(2 / 4)
    assert summary["named"] == {
        "rows missing from the predictions, scored as unanswered": ["2", "3"],
        "rows that the data set does not have, left out": ["line 3: id 9"],
    }


def test_the_completions_that_ms_swift_logs_are_read(tmp_path):
    log = {
        "step": 1,
        "completion": [answer("red"), answer("blue")],
        "solution": ["<answer>red</answer>"] * 2,
        "prompt": ["p", "p"],
    }
    file = write_lines(tmp_path / "completions.jsonl", [log])
    summary = eval_json("--predictions", file, "--task", "classification")
    assert summary["metrics"]["accuracy"]["value"] == 0.5


# ---- bad input -------------------------------------------------------------------------------


def test_duplicates_and_unknown_names_are_counted_and_named(tmp_path):
    rows, coco = detection_rows()
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    bad = [rows[0], rows[1] | {"id": "x", "image_id": "777"}]
    bad.append(rows[2] | {"id": "y", "category": "unicorn"})
    file = write_lines(tmp_path / "p.jsonl", [*rows, *bad])
    summary = eval_json("--predictions", file, "--gold", tmp_path / "gold.json")
    assert summary["problems"] == {
        "duplicates, of which the first counts": 1,
        "rows of unknown images, left out": 1,
        "rows of unknown categories, left out": 1,
    }
    assert summary["named"]["rows of unknown images, left out"] == ["777"]
    assert summary["named"]["rows of unknown categories, left out"] == ["unicorn"]
    boxes = [
        {"image_id": 777, "category_id": 1, "bbox": [1, 1, 5, 5], "score": 0.5},
        {"image_id": 1, "category_id": 99, "bbox": [1, 1, 5, 5], "score": 0.5},
        {"image_id": 1, "category_id": 1, "bbox": [1, 1, -5, 5], "score": 0.5},
        {"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "score": "NaN"},
        *[{"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "score": 0.5}] * 3,
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    summary = eval_json("--predictions", tmp_path / "boxes.json", "--gold", tmp_path / "gold.json")
    assert summary["problems"] == {
        "invalid boxes, left out": 1,
        "repeats of a box, which count as in COCO": 2,
        "scores that are no number, left out": 1,
        "boxes of unknown images, left out": 1,
        "boxes of unknown categories, left out": 1,
    }


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("", [], "holds no predictions"),
        ('{"completion": "x"', [], "line 1: not JSON"),
        ('{"text": "x"}\n', [], "neither 'completion' nor 'response' (found: text)"),
        ('{"completion": "x", "solution": "y"}\n', [], "say it with --task"),
        ('{"completion": "x", "solution": ""}\n', ["--task", "counting"], "no gold solution"),
        ('[{"a": 1}]', [], "a list of detections has image_id"),
        ('[{"image_id":1,"category_id":1,"bbox":[1,1,2,2],"score":1}]', [], "--gold"),
        ('{"completion": "x", "solution": "4"}\n', ["--task", "guessing"], "known: detection"),
        (
            '{"completion": "x", "solution": "4"}\n',
            ["--task", "counting", "--protocol", "all"],
            "are of detection",
        ),
    ],
)
def test_bad_predictions_are_refused_with_a_reason(tmp_path, content, arguments, said):
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    result = CliRunner().invoke(app, ["eval", "--predictions", str(file), *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_list_of_boxes_is_not_scored_against_a_set_of_rows(tmp_path):
    from swift_vlrft.demo.data import write_parquet

    write_parquet(boxed_rows(random.Random(0), 2), tmp_path / "set")
    (tmp_path / "p.json").write_text(
        '[{"image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2], "score": 1}]'
    )
    arguments = ["--predictions", str(tmp_path / "p.json"), "--gold", str(tmp_path / "set")]
    result = CliRunner().invoke(app, ["eval", *arguments])
    assert result.exit_code == 2 and "is no annotation file" in " ".join(result.output.split())


@pytest.mark.parametrize("protocol", ["all", "visual-rft"])
def test_predictions_of_no_image_of_the_annotations_are_refused(protocol, tmp_path):
    rows, coco = detection_rows(images=2)
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    other = [row | {"category": "unicorn"} for row in rows]
    arguments = ["--predictions", str(write_lines(tmp_path / "p.jsonl", other))]
    arguments += ["--gold", str(tmp_path / "gold.json"), "--protocol", protocol]
    if protocol == "visual-rft":
        box = {"image_id": 1, "category_id": "cat", "bbox": [1, 1, 2, 2], "score": 1}
        (tmp_path / "p.jsonl").write_text(json.dumps([box]))
    result = CliRunner().invoke(app, ["eval", *arguments])
    output = " ".join(result.output.split())
    assert result.exit_code == 2 and "like 1, 2, its categories 1: cat, 2: dog, 3: bus" in output


def test_a_gold_that_is_not_there_is_said(tmp_path):
    file = write_lines(tmp_path / "p.jsonl", detection_rows(images=2)[0])
    for command in (["compare", str(file), str(file)], ["eval", "--predictions", str(file)]):
        result = CliRunner().invoke(app, [*command, "--gold", str(tmp_path / "nowhere.json")])
        said = " ".join(result.output.split())
        assert result.exit_code == 2 and "nowhere.json does not exist" in said


def test_answers_without_solutions_are_scored_with_the_annotations(tmp_path):
    rows, coco = detection_rows()
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    file = write_lines(tmp_path / "p.jsonl", rows)
    arguments = ["--predictions", str(file), "--gold", str(tmp_path / "gold.json")]
    expected = eval_json(*arguments)
    write_lines(file, [{**row, "solution": None} for row in rows])
    assert eval_json(*arguments) == expected
    write_lines(file, [{**row, "frame": "cm"} for row in rows])
    result = CliRunner().invoke(app, ["eval", *arguments])
    assert result.exit_code == 2 and "unknown box format 'cm'" in " ".join(result.output.split())


def test_a_size_that_one_side_has_no_boxes_of_keeps_the_other_sides_value(tmp_path):
    rows, _ = detection_rows()
    half = [row | {"width": row["width"] // 9, "height": row["height"] // 9} for row in rows]
    files = [write_lines(tmp_path / f"{n}.jsonl", side) for n, side in enumerate((rows, half))]
    large = run_json("compare", *files)["metrics"]["AP_large"]
    assert large["a"] > 0 and large["b"] is None and large["difference"] is None


def test_protocol_rows_is_not_of_annotations(tmp_path):
    rows, coco = detection_rows()
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    file = write_lines(tmp_path / "p.jsonl", rows)
    arguments = ["--predictions", str(file), "--gold", str(tmp_path / "gold.json")]
    result = CliRunner().invoke(app, ["eval", *arguments, "--protocol", "rows"])
    assert result.exit_code == 2 and "not of --gold" in result.output


def test_rows_of_several_tasks_need_a_choice(tmp_path):
    rows = classification_rows([("red", "red")])
    rows.append({"id": "c", "task": "counting", "completion": answer("4"), "solution": "4"})
    file = write_lines(tmp_path / "p.jsonl", rows)
    with pytest.raises(EvaluationError, match="several tasks .*--task"):
        read_predictions(file)
    found = read_predictions(file, "counting")
    assert len(found.rows) == 1
    assert found.problems.counts["rows of another task, left out"] == 1


def test_a_better_summary_is_not_written_over(tmp_path):
    good = write_lines(tmp_path / "a.jsonl", classification_rows([("red", "red")] * 3))
    bad = write_lines(
        tmp_path / "b.jsonl", classification_rows([("red", "red"), ("x", "red"), ("y", "red")])
    )
    few = write_lines(tmp_path / "c.jsonl", classification_rows([("red", "red")] * 2))
    out = tmp_path / "out"

    def run(file, *more):
        return CliRunner().invoke(
            app, ["eval", "--predictions", str(file), "--out", str(out), *more]
        )

    assert run(bad).exit_code == 0
    assert run(good).exit_code == 0  # better: written over
    kept = (out / "summary.json").read_bytes()
    refused = run(bad)
    assert refused.exit_code == 2 and "accuracy 1.0000, the new one has 0.3333" in " ".join(
        refused.output.split()
    )
    assert "3 rows" in " ".join(run(few).output.split())
    assert (out / "summary.json").read_bytes() == kept
    assert run(bad, "--force").exit_code == 0
    assert (out / "summary.json").read_bytes() != kept
    assert not [file for file in out.iterdir() if file.name.startswith(".")]


def test_what_a_model_writes_does_not_reach_the_terminal(tmp_path):
    rows = classification_rows([("red", "\x1b[31mred\x1b[0m")])
    result = CliRunner().invoke(
        app, ["eval", "--predictions", str(write_lines(tmp_path / "p.jsonl", rows))]
    )
    assert result.exit_code == 0 and "\x1b" not in result.output


# ---- comparison ------------------------------------------------------------------------------


def test_compare_is_paired_and_names_what_flipped(tmp_path):
    rng = random.Random(0)
    golds = [rng.choice(["red", "blue"]) for _ in range(200)]
    before = [(g if rng.random() < 0.5 else "green", g) for g in golds]
    # B is A, but for 20 more rows that are right.
    wrong = [n for n, (said, gold) in enumerate(before) if said != gold][:20]
    after = [(g if n in wrong else said, g) for n, (said, g) in enumerate(before)]
    a = write_lines(tmp_path / "a.jsonl", classification_rows(before))
    b = write_lines(tmp_path / "b.jsonl", classification_rows(after)[::-1])
    result = run_json("compare", a, b)
    accuracy = result["metrics"]["accuracy"]
    assert accuracy["difference"] == pytest.approx(0.1)
    # Unpaired, the interval would be more than twice as wide: sqrt(2 * 0.25 / 200) * 1.96 = 0.098.
    spread = 1.96 * (0.1 * 0.9 / 200) ** 0.5
    assert accuracy["low"] == pytest.approx(0.1 - spread, abs=0.012)
    assert accuracy["high"] == pytest.approx(0.1 + spread, abs=0.012)
    assert {flip["id"] for flip in result["gained"]} == {str(n) for n in wrong}
    assert result["lost"] == [] and "is not" in result["gained"][0]["why_a"]


def test_images_that_no_row_asks_about_are_named(tmp_path):
    rows, coco = detection_rows()
    (tmp_path / "gold.json").write_text(json.dumps(coco))
    left = rows[0]["image_id"]
    file = write_lines(tmp_path / "p.jsonl", [row for row in rows if row["image_id"] != left])
    summary = eval_json("--predictions", file, "--gold", tmp_path / "gold.json")
    kind = "images of the annotations that no row asks about, not scored"
    assert summary["problems"] == {kind: 1} and summary["named"][kind] == [str(left)]


def test_compare_says_where_the_question_was_another(tmp_path):
    rows = classification_rows([("rose", "rose")] * 3)
    a = write_lines(
        tmp_path / "a.jsonl", [{**row, "prompt": "<image>Which flower?"} for row in rows]
    )
    b = write_lines(tmp_path / "b.jsonl", [{**row, "prompt": "Which pet?"} for row in rows])
    shown = CliRunner().invoke(app, ["compare", str(a), str(b)]).output
    assert "3 of 3 rows have another prompt in B" in shown
    assert "other words" not in CliRunner().invoke(app, ["compare", str(a), str(a)]).output


def test_a_count_of_any_number_of_digits_leaves_the_summary_json(tmp_path):
    rows = [
        {"task": "counting", "completion": answer(said), "solution": "3", "id": said[:5]}
        for said in ("9" * 5000, "3")
    ]
    file = write_lines(tmp_path / "p.jsonl", rows)
    shown = CliRunner().invoke(app, ["eval", "--predictions", str(file), "--json"])

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    json.loads(shown.stdout, parse_constant=refuse)


def test_compare_of_average_precision(tmp_path):
    rows, _ = detection_rows()
    a = write_lines(tmp_path / "a.jsonl", rows)
    perfect = [row | {"completion": answer(row["solution"])} for row in rows]
    b = write_lines(tmp_path / "b.jsonl", perfect)
    same = run_json("compare", a, a)["metrics"]
    assert all(d["difference"] in (0.0, None) for d in same.values())
    better = run_json("compare", a, b)["metrics"]["AP50"]
    assert better["b"] == pytest.approx(1.0) and 0 < better["low"] <= better["difference"]


def test_compare_refuses_other_data(tmp_path):
    a = write_lines(tmp_path / "a.jsonl", classification_rows([("red", "red")]))
    b = write_lines(tmp_path / "b.jsonl", classification_rows([("red", "blue")]))
    result = CliRunner().invoke(app, ["compare", str(a), str(b)])
    assert result.exit_code == 2 and "not made on the same data set" in " ".join(
        result.output.split()
    )
