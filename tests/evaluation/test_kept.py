"""Predictions that were given are kept, and folders of `vlrft eval` compared."""

import json
from pathlib import Path

import pytest
from scored import (
    answer,
    assert_metrics,
    classification_rows,
    detection_set,
    eval_json,
    refusal,
    run_json,
    write_lines,
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A set of four rows (set.jsonl) and annotations (gold.json)."""
    monkeypatch.chdir(tmp_path)
    golds = ("red", "blue", "red", "green")
    write_lines(
        tmp_path / "set.jsonl",
        [
            {"images": [{"bytes": None, "path": None}], "image": f"{n}.png"}
            | {"problem": "<image>Which?", "solution": f"<answer>{gold}</answer>"}
            for n, gold in enumerate(golds)
        ],
    )
    (tmp_path / "gold.json").write_text(json.dumps(detection_set()[1]))
    return tmp_path


def of_ids(right: int) -> list[dict]:
    """Lines of an id and an answer, of which so many are right, as people write them by hand."""
    return [{"id": n, "completion": answer("red" if n < right else "?")} for n in range(4)]


OF_SET = ("--gold", "set.jsonl", "--join", "id", "--task", "classification")


def test_answers_of_ids_are_scored_and_their_folders_compared(folder):
    """Row 0 and 2 are red: of `right` first answers, those two can be right."""
    for name, right in (("a", 1), ("b", 3)):
        file = write_lines(Path(f"{name}.jsonl"), of_ids(right))
        summary = eval_json(file, *OF_SET, "--out", name)
        assert_metrics(summary, accuracy={1: 0.25, 3: 0.5}[right])
    result = run_json("compare", "a", "b")
    accuracy = result["metrics"]["accuracy"]
    assert (accuracy["a"], accuracy["b"], result["rows"]) == (0.25, 0.5, 4)
    assert [flip["id"] for flip in result["gained"]] == ["2"]
    again = eval_json("a")
    assert again["metrics"]["accuracy"]["value"] == 0.25


def kept_metrics(*arguments, out="kept") -> None:
    """The folder is worth what the file is, and compares with itself as equal."""
    summary = eval_json(*arguments, "--out", out)
    result = run_json("compare", out, out, "--bootstrap", "20")
    assert result["task"] == "detection" and result["protocol"] == summary["protocol"]
    for name, metric in summary["metrics"].items():
        assert result["metrics"][name]["b"] == metric["value"], name


@pytest.mark.slow
def test_a_list_of_boxes_is_kept_and_compared(folder):
    results = detection_set()[2]
    Path("boxes.json").write_text(json.dumps(results))
    kept_metrics("boxes.json", "--gold", "gold.json")
    assert json.loads(Path("kept/predictions.json").read_text()) == results
    fewer = [box for n, box in enumerate(results) if n % 3]
    Path("fewer.json").write_text(json.dumps(fewer))
    eval_json("fewer.json", "--gold", "gold.json", "--out", "fewer")
    ap = run_json("compare", "fewer", "kept")["metrics"]["AP"]
    assert 0 < ap["low"] < ap["difference"] < ap["high"]
    write_lines(Path("p.jsonl"), detection_set()[0])
    assert "compare two of a kind" in refusal("compare", "kept", "p.jsonl")
    Path("gold.json").rename("moved.json")
    assert "with --gold" in refusal("compare", "fewer", "kept")


@pytest.mark.slow
def test_rows_are_kept_with_what_they_are_scored_by(folder):
    rows = detection_set()[0]
    write_lines(Path("p.jsonl"), rows)
    kept_metrics("p.jsonl")
    kept_metrics("p.jsonl", "--gold", "gold.json", out="annotated")


def test_a_models_answers_and_a_file_in_the_folder_stay(folder):
    file = write_lines(Path("p.jsonl"), classification_rows([("red", "red")] * 3))
    Path("run/parts").mkdir(parents=True)
    Path("run/run.json").write_text("{}")
    assert "holds results of a model" in refusal("eval", "--predictions", file, "--out", "run")
    assert not Path("run/summary.json").exists()
    eval_json(file, "--out", "other")
    own = write_lines(Path("other/predictions.jsonl"), classification_rows([("red", "red")] * 4))
    before = own.read_bytes()
    eval_json(own, "--out", "other")
    assert own.read_bytes() == before
    assert json.loads(Path("other/summary.json").read_text())["rows"] == 4
