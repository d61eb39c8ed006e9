"""What a model is asked, and what a run of `vlrft eval` leaves on disk; no model is loaded."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs
from PIL import Image
from safetensors.numpy import save_file
from scored import REFUSED_SETTINGS, answer, refusal, run_json, write_lines
from support.command_line import vlrft

import swift_vlrft
from swift_vlrft.datasets import DataError
from swift_vlrft.demo.rows import colour_rows
from swift_vlrft.evaluation.predictions import EvaluationError, Problems, read_predictions
from swift_vlrft.evaluation.queries import QuerySet
from swift_vlrft.evaluation.run import answer_line, answered, begin, finish, new_part, pending
from swift_vlrft.evaluation.settings import Settings
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.files.records import as_json, read_record
from swift_vlrft.swift_plugin import evaluate, inference
from tests.support.parquet import write_parquet

CAT = "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"


@pytest.fixture
def coco(tmp_path) -> Path:
    """Four images with a cat each."""
    (tmp_path / "val2017").mkdir()
    names = ("cat", "dog", "bus")
    content: dict = {"images": [], "annotations": []}
    content["categories"] = [{"id": n, "name": name} for n, name in enumerate(names, start=1)]
    for image in range(1, 5):
        file = f"{image}.png"
        Image.new("RGB", (64, 48)).save(tmp_path / "val2017" / file)
        content["images"].append({"id": image, "file_name": file, "width": 64, "height": 48})
        box = {"id": image, "image_id": image, "category_id": 1, "bbox": [0, 0, 32, 24]}
        content["annotations"].append(box | {"area": 768, "iscrowd": 0})
    (tmp_path / "instances_val2017.json").write_text(json.dumps(content))
    return tmp_path / "instances_val2017.json"


@pytest.fixture
def colours(tmp_path):
    """Writes a set of so many rows; the settings of a run on it."""

    def make(count: int, model: str = "m", seed: int = 0, **more) -> Settings:
        write_parquet(colour_rows(random.Random(seed), count), tmp_path / "set")
        return Settings(model, tmp_path / "set", "classification", **more)

    return make


def answer_queries(folder: Path, asked) -> int:
    """With the gold; how many."""
    lines = [answer_line(q, q.row.solution, image_id="i", size=(64, 48)) for q in asked]
    new_part(folder).write_text("".join(lines))
    return len(lines)


# ---- what is asked ---------------------------------------------------------------------------


def ids(settings: Settings, problems: Problems | None = None) -> list[str]:
    return [query.id for query in QuerySet(settings).read(problems or Problems())]


def test_annotations_ask_every_category_of_every_image(coco):
    queries = QuerySet(Settings("m", coco, "detection"))
    by_id = {query.id: query for query in queries.read(Problems())}
    assert len(by_id) == 4 * 3 == queries.count
    assert "'cat'" in by_id["1/cat"].row.problem and by_id["1/cat"].row.solution == CAT
    assert by_id["1/dog"].row.solution == "<answer>No Objects</answer>"
    assert Path(by_id["1/cat"].row.image["path"]).is_file()
    assert len(ids(Settings("m", coco, "detection", categories=("dog,bus",)))) == 8


def test_a_sample_of_the_questions_is_the_seeds(coco):
    def sample(seed: int, count: int = 5) -> list[str]:
        return ids(Settings("m", coco, "detection", max_queries=count, seed=seed))

    assert sample(0) == sample(0) != sample(1)
    assert len(sample(0)) == 5 and len(sample(0, 500)) == 12


def test_a_name_that_the_set_does_not_ask_for_is_refused(tmp_path):
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    row = {"image": "a.png", "problem": "Find it.", "task": "detection", "category": "rose"}
    file = write_lines(tmp_path / "set.jsonl", [row | {"solution": "<answer>No Objects</answer>"}])

    def asked(*names: str) -> list[str]:
        return ids(Settings("m", file, "detection", categories=names))

    assert asked("rose") == ["0"]
    with pytest.raises(ValueError, match="'rise'.*rose"):
        asked("rose", "rise")
    with pytest.raises(DataError, match="rose"):
        asked("coco-novel15")


@pytest.mark.parametrize("folder", ["set", "my_split"])
def test_the_test_split_is_asked_and_never_replaced_by_training_rows(tmp_path, folder):
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    row = {"image": str(tmp_path / "a.png"), "problem": "?", "solution": "<answer>red</answer>"}
    place = tmp_path / folder
    place.mkdir()
    write_lines(place / "train.jsonl", [row] * 3)
    settings = Settings("m", place, "classification")
    assert len(ids(settings)) == 3
    write_lines(place / "val.jsonl", [row] * 2)
    assert len(ids(settings)) == 2
    test = write_lines(place / "test.jsonl", [row])
    assert len(ids(settings)) == 1
    write_lines(test, [{"image": row["image"], "problem": "?", "solutoin": "red"}])
    for chosen in (settings, structs.replace(settings, split="test")):
        with pytest.raises(DataError, match="lacks the column solution"):
            ids(chosen)
    with pytest.raises(DataError, match="'other'; it has train, validation, test"):
        ids(structs.replace(settings, split="other"))


# ---- what a run leaves -----------------------------------------------------------------------


def test_workers_share_the_questions_and_a_kill_loses_only_half_a_line(colours, tmp_path):
    settings, out = colours(20), tmp_path / "out"
    assert begin(out, settings) == {}
    queries = QuerySet(settings)
    shares = [list(pending(queries, {}, Problems(), w, 3)) for w in range(3)]
    assert sorted(int(q.id) for share in shares for q in share) == list(range(20))
    assert all(shares)
    answer_queries(out, shares[2])
    answer_queries(out, shares[0])
    part = next((out / "parts").glob("*.jsonl"))
    part.write_text(part.read_text() + '{"id": "' + shares[1][0].id + '", "comp')
    assert set(begin(out, settings)) == {q.id for q in shares[0] + shares[2]}
    assert finish(out, queries).counts["queries without an answer"] == len(shares[1])
    answer_queries(out, pending(queries, answered(out), Problems()))
    assert not finish(out, queries).counts
    lines = (out / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(n) for n in range(20)]


def test_another_run_is_not_mixed_in_and_not_lost(colours, tmp_path):
    weights, out = tmp_path / "checkpoint" / "model.safetensors", tmp_path / "out"
    weights.parent.mkdir()
    weights.write_bytes(b"old")
    settings = colours(4, str(weights.parent))
    begin(out, settings)
    answer_queries(out, QuerySet(settings).read(Problems()))
    (weights.parent / "args.json").write_text("{}")  # nothing that an answer depends on
    faster = structs.replace(settings, batch_size=64, engine="vllm")
    assert len(begin(out, faster)) == 4  # the same predictions, computed another way
    with pytest.raises(EvaluationError, match="checkpoint', now 'model-b'.*another --out"):
        begin(out, structs.replace(settings, model="model-b"))
    weights.write_bytes(b"newer")  # trained anew at the same place
    with pytest.raises(EvaluationError, match="checkpoint have changed.*another --out"):
        begin(out, settings)
    colours(5, seed=1)
    with pytest.raises(EvaluationError, match="set have changed"):
        begin(out, settings)
    assert len(answered(out)) == 4


@pytest.mark.slow  # torch is imported
def test_a_run_that_is_stopped_stops_its_processes(colours, tmp_path, monkeypatch):
    begin(tmp_path / "out", colours(4))
    started = []
    popen = subprocess.Popen

    def sleeper(command, **options):
        started.append(popen([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return started[-1]

    def stop(seconds):
        raise KeyboardInterrupt

    inference.gpu_count()  # imports torch, which starts processes too
    monkeypatch.setattr(inference.subprocess, "Popen", sleeper)
    monkeypatch.setattr(inference.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        inference.run_workers(tmp_path / "out", 2)
    assert len(started) == 2 and all((process.poll() or 0) < 0 for process in started)  # killed


@pytest.mark.slow  # torch is imported
def test_a_worker_that_is_killed_ends_the_run(tmp_path, monkeypatch):
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -TERM $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    (tmp_path / "parts").mkdir()
    with pytest.raises(EvaluationError, match="worker 0 .* -15"):
        inference.run_workers(tmp_path, 1)


@pytest.mark.parametrize("case", REFUSED_SETTINGS, ids=lambda case: case["arguments"])
def test_bad_settings_are_refused_before_a_model_is_loaded(colours, tmp_path, case):
    dataset, bare = colours(2).dataset, tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (bare / name).write_text("{}")
    save_file({}, bare / "model.safetensors")
    places = {"SET": dataset, "BARE": bare}
    words = [places.get(word, word) for word in case["arguments"].split()]
    assert case["said"] in refusal("eval", *words, "--out", tmp_path / "out")
    assert not (tmp_path / "out" / "parts").exists()


# ---- the library -----------------------------------------------------------------------------


def test_of_several_answers_a_row_the_first_counts(colours, tmp_path):
    settings, out = colours(3, samples=4, temperature=1.0), tmp_path / "out"
    queries = QuerySet(settings)
    assert queries.count == 12 and begin(out, settings) == {}
    right_answers = (4, 1, 0)
    with new_part(out).open("a") as part:
        for n, query in enumerate(queries.read(Problems())):
            for sample in range(4):
                said = query.row.solution if sample < right_answers[n] else answer("no")
                size = {"image_id": str(n), "size": (56, 56), "image_hash": "h"}
                part.write(answer_line(query, said, sample=sample, **size))
    finish(out, queries)
    predictions = read_predictions(out)
    assert [row.id for row in predictions.rows] == ["0", "1", "2"]  # of each row the first answer
    metrics = summarise(predictions, bootstrap=0).metrics
    assert metrics["accuracy"].value == pytest.approx(2 / 3)
    (problem,) = QuerySet(colours(3, samples=4)).problems()
    assert "--samples 4 at --temperature 0" in problem


@pytest.mark.slow  # ms-swift is imported
@pytest.mark.parametrize("workers", [1, 2])
def test_the_summary_says_why_a_query_has_no_answer(tmp_path, monkeypatch, workers):
    rows = []
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(b"no image")
        if n > 1:
            Image.new("RGB", (28, 28)).save(tmp_path / f"{n}.png")
        gold = {"solution": "<answer>red</answer>", "task": "classification"}
        rows.append({"image": f"{n}.png", "problem": "What colour?"} | gold)
    file = write_lines(tmp_path / "test.jsonl", rows)

    def engine(settings):
        message = SimpleNamespace(content="<answer>red</answer>")
        choice = SimpleNamespace(message=message, finish_reason="stop")
        return (
            lambda requests, _: [SimpleNamespace(choices=[choice])] * len(requests),
            8,
            "Be brief.",
        )

    def process(command, **_):
        inference.main(command[3:])
        return SimpleNamespace(poll=lambda: 0, wait=lambda: 0)

    inference.gpu_count()  # imports torch, which starts processes too
    monkeypatch.setattr(inference, "load_engine", engine)
    monkeypatch.setattr(inference.subprocess, "Popen", process)
    monkeypatch.setattr(inference.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    settings = {"task": "classification", "workers": workers, "bootstrap": 0}
    summary = swift_vlrft.evaluate("m", file, out=tmp_path / "out", **settings)
    kind = "images that cannot be opened, skipped"
    assert summary.rows == 4 and summary.problems == {kind: 2, "queries without an answer": 2}
    assert "1.png" in "".join(summary.named[kind])
    assert (summary.run["system_prompts"], summary.run["split"]) == (["Be brief."], "test")
    write_lines(file, rows[:2])
    with pytest.raises(EvaluationError, match=r"test\.jsonl: .*0\.png"):
        swift_vlrft.evaluate("m", file, out=tmp_path / "none", **settings)


def test_an_option_that_evaluate_does_not_know_or_take_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_tokns'"):
        swift_vlrft.evaluate(predictions="p.jsonl", max_tokns=5)
    with pytest.raises(ValueError, match="not both"):
        swift_vlrft.evaluate("model", predictions="p.jsonl")
    with pytest.raises(ValueError, match="--task"):
        swift_vlrft.evaluate("model", "data/held_out")
    with pytest.raises(ValueError, match="max_tokens"):
        swift_vlrft.evaluate("model", "data/held_out", "counting", max_tokens="many")


@pytest.mark.slow  # torch is imported
def test_evaluate_does_what_the_command_does(coco, tmp_path, monkeypatch):
    def run_worker(folder, queries, progress=lambda n: None, **_) -> Problems:
        progress(answer_queries(folder, [*pending(queries, answered(folder), Problems())]))
        return Problems()

    monkeypatch.setattr(evaluate, "run_worker", run_worker)
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    shown = []
    settings = {"categories": ["cat,dog"], "max_queries": 5, "seed": 1, "bootstrap": 10}
    summary = swift_vlrft.evaluate(
        "m", str(coco), "detection", out=tmp_path / "a", workers=1, **settings,
        progress=lambda *counts: shown.append(counts),
    )  # fmt: skip
    assert shown == [(5, 0), (5, 5)] and summary.rows == 5
    flags = "--task detection --categories cat,dog --max-queries 5 --seed 1 --workers 1"
    command = ["eval", "m", coco, *flags.split(), "--bootstrap", "10"]
    expected = json.loads(json.dumps(as_json(summary)))
    assert run_json(*command, "--out", tmp_path / "b") == expected
    written = read_record(tmp_path / "a" / "summary.json", Summary)
    assert json.loads(json.dumps(as_json(written))) == expected
    assert json.loads((tmp_path / "b" / "summary.json").read_text()) == expected
    monkeypatch.chdir(tmp_path)
    outputs = [vlrft(*command).output for _ in range(2)]
    assert outputs[0].endswith("runs/eval/m-instances_val2017/summary.json\n")
    assert ["5 of 5 answers" in output for output in outputs] == [False, True]
    assert "LOG_LEVEL" not in os.environ


def test_lvis_calls_no_box_wrong_where_it_does_not_say(tmp_path):
    names = [{"id": n, "name": name} for n, name in enumerate(("cat", "dog", "bus"), start=1)]
    image = {"id": 1, "file_name": "1.jpg", "width": 100, "height": 100}
    image |= {"neg_category_ids": [3], "not_exhaustive_category_ids": []}
    box = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 50, 50]}
    content = {"categories": names, "annotations": [box | {"id": 1, "area": 2500}]}
    boxes = [box | {"category_id": category, "score": 0.9} for category in (1, 2)]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))

    def scored(**changed) -> Summary:
        gold = tmp_path / "lvis.json"
        gold.write_text(json.dumps(content | {"images": [image | changed]}))
        return swift_vlrft.evaluate(predictions=tmp_path / "boxes.json", gold=gold, bootstrap=0)

    kind = "boxes where LVIS does not say whether the image holds the category, left out"
    summary = scored()
    assert summary.metrics["AP"].value == 1.0 and summary.problems == {kind: 1}
    assert scored(neg_category_ids=[2, 3]).problems == {}  # surely no dog: the box is wrong
    summary = scored(not_exhaustive_category_ids=[1])
    assert summary.problems == {kind: 2} and summary.metrics["AP"].value is None


def test_compare_says_that_the_images_were_shown_in_another_size(colours, tmp_path):
    sides = []
    for name, resolution in (("before", {}), ("after", {"MAX_PIXELS": "401408"})):
        sides.append(tmp_path / name)
        settings = colours(1, resolution=resolution)
        begin(sides[-1], settings)
        answer_queries(sides[-1], QuerySet(settings).read(Problems()))
        finish(sides[-1], QuerySet(settings))
    (note,) = run_json("compare", *sides)["notes"]
    assert "at {'MAX_PIXELS': '401408'} in B" in note
