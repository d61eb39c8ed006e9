"""What a model is asked, and what a run of `vlrft eval` leaves on disk; no model is loaded."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from safetensors.numpy import save_file
from typer.testing import CliRunner

import swift_vlrft
from swift_vlrft.cli import app
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import known_task
from swift_vlrft.evaluation.annotations import Gold, open_annotations
from swift_vlrft.evaluation.compare import compare
from swift_vlrft.evaluation.predictions import EvaluationError, Problems, read_predictions
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.evaluation.run import answer_line, answered, begin, finish, new_part, pending
from swift_vlrft.evaluation.summary import Summary, summarise
from swift_vlrft.files import jsonl
from swift_vlrft.files.records import as_json, read_record, record_of
from swift_vlrft.swift_plugin import evaluate, inference


@pytest.fixture
def coco(tmp_path) -> Path:
    (tmp_path / "val2017").mkdir()
    content: dict = {"images": [], "annotations": [], "categories": []}
    for n, name in enumerate(("cat", "dog", "bus"), start=1):
        content["categories"].append({"id": n, "name": name})
    for image in range(1, 5):
        Image.new("RGB", (64, 48)).save(tmp_path / "val2017" / f"{image}.png")
        content["images"].append(
            {"id": image, "file_name": f"{image}.png", "width": 64, "height": 48}
        )
        box = {"id": image, "image_id": image, "category_id": 1, "bbox": [0, 0, 32, 24]}
        content["annotations"].append(box | {"area": 768, "iscrowd": 0})
    (tmp_path / "instances_val2017.json").write_text(json.dumps(content))
    return tmp_path / "instances_val2017.json"


def ids(settings: Settings, problems: Problems | None = None) -> list[str]:
    return [query.id for query in QuerySet(settings).read(problems or Problems())]


def test_protocol_all_asks_every_category_of_every_image(coco):
    settings = Settings("m", coco, "detection", protocol="all")
    queries = QuerySet(settings)
    found = list(queries.read(Problems()))
    assert len(found) == 4 * 3 == queries.count
    by_id = {query.id: query for query in found}
    assert "'cat'" in by_id["1/cat"].row.problem
    assert (
        by_id["1/cat"].row.solution
        == "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"
    )
    assert by_id["1/dog"].row.solution == "<answer>No Objects</answer>"
    assert Path(by_id["1/cat"].row.image["path"]).is_file()
    chosen = Settings("m", coco, "detection", protocol="all", categories=("dog,bus",))
    assert len(ids(chosen)) == 8


def test_a_sample_of_the_questions_is_the_seeds(coco):
    def sample(seed: int, count: int = 5) -> list[str]:
        return ids(Settings("m", coco, "detection", max_queries=count, seed=seed))

    assert sample(0) == sample(0) and len(sample(0)) == 5
    assert sample(0) != sample(1)
    assert len(sample(0, 500)) == 12


def test_visual_rft_asks_what_the_map_names(coco, tmp_path):
    exist = tmp_path / "map.json"
    exist.write_text(json.dumps({"1": ["cat", "dog", "cat"], "3": ["bus", "unicorn"], "99": []}))
    settings = Settings("m", coco, "detection", protocol="visual-rft", existence_map=exist)
    problems = Problems()
    assert ids(settings, problems) == ["1/cat", "1/dog", "3/bus"]
    assert problems.examples["categories of the existence map that the annotations lack"] == [
        "unicorn"
    ]
    assert problems.counts["images of the existence map that the annotations lack"] == 1


def test_settings_survive_the_way_to_a_worker(coco):
    settings = Settings("m", coco, "detection", categories=("cat",), engine_options={"a": [1]})
    again = record_of(json.loads(json.dumps(as_json(settings))), Settings, "run.json")
    assert again == settings and again.identity() == settings.identity()


def answers(folder: Path, asked, completion: str = "<answer>red</answer>") -> None:
    with new_part(folder).open("a") as part:
        for query in asked:
            part.write(
                answer_line(
                    query, completion, image_id="i", size=(5, 5),
                    tokens=3, finish="stop",
                )
            )  # fmt: skip


def test_workers_share_the_questions_and_a_kill_loses_only_half_a_line(tmp_path):
    write_parquet(known_task("colours").make(random.Random(0), 20), tmp_path / "set")
    settings = Settings("m", tmp_path / "set", "classification")
    out = tmp_path / "out"
    assert begin(out, settings) == {}
    queries = QuerySet(settings)
    shares = [list(pending(queries, {}, Problems(), w, 3)) for w in range(3)]
    assert sorted(int(q.id) for share in shares for q in share) == list(range(20))
    assert all(shares)
    answers(out, shares[2])
    answers(out, shares[0])
    part = next((out / "parts").glob("*.jsonl"))
    part.write_text(part.read_text() + '{"id": "' + shares[1][0].id + '", "comp')
    done = begin(out, settings)
    assert set(done) == {q.id for q in shares[0] + shares[2]}
    assert finish(out, queries).counts["queries without an answer"] == len(shares[1])
    answers(out, pending(queries, answered(out), Problems()))
    assert not finish(out, queries).counts
    file = out / "predictions.jsonl"
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [
        str(n) for n in range(20)
    ]


def test_another_run_is_not_mixed_in_and_not_lost(tmp_path):
    write_parquet(known_task("colours").make(random.Random(0), 4), tmp_path / "set")
    out = tmp_path / "out"
    first = Settings("model-a", tmp_path / "set", "classification")
    begin(out, first)
    answers(out, pending(QuerySet(first), {}, Problems()))
    second = Settings("model-b", tmp_path / "set", "classification")
    with pytest.raises(EvaluationError, match="model 'model-a', now 'model-b'.*--force"):
        begin(out, second)
    assert begin(out, second, force=True) == {}
    assert len(answered(out / "before-1")) == 4
    faster = Settings("model-b", tmp_path / "set", "classification", batch_size=64, engine="vllm")
    begin(out, faster)  # the same predictions, computed another way


def test_a_checkpoint_trained_anew_at_the_same_place_is_another_run(tmp_path):
    write_parquet(known_task("colours").make(random.Random(0), 4), tmp_path / "set")
    weights = tmp_path / "checkpoint" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"old")
    out = tmp_path / "out"
    settings = Settings(str(weights.parent), tmp_path / "set", "classification")
    begin(out, settings)
    answers(out, pending(QuerySet(settings), {}, Problems()))
    (weights.parent / "args.json").write_text("{}")  # nothing that an answer depends on
    assert len(begin(out, settings)) == 4
    weights.write_bytes(b"newer")
    with pytest.raises(EvaluationError, match="files of .*checkpoint have changed.*--force"):
        begin(out, settings)
    assert begin(out, settings, force=True) == {}
    write_parquet(known_task("colours").make(random.Random(1), 5), tmp_path / "set")
    with pytest.raises(EvaluationError, match="files of .*set have changed"):
        begin(out, settings)


def test_a_run_that_is_stopped_stops_its_processes(tmp_path, monkeypatch):
    write_parquet(known_task("colours").make(random.Random(0), 4), tmp_path / "set")
    settings = Settings("m", tmp_path / "set", "classification")
    begin(tmp_path / "out", settings)
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m", "SET"], "give MODEL, DATASET and --task"),
        (["m", "missing", "--task", "detection"], "the data set missing does not exist"),
        (["m", "SET", "--task", "segmentation"], "known: detection, grounding"),
        (["m", "SET", "--task", "detection", "--protocol", "all"], "annotation file"),
        (["m", "SET", "--task", "detection", "--protocol", "visual-rft"], "--exist-map FILE"),
        (["m", "SET", "--task", "detection", "--protocol", "coco"], "asked by all or visual-rft"),
        (["./nothing", "SET", "--task", "classification"], "./nothing does not exist"),
        (["BARE", "SET", "--task", "classification"], "has no processor (preprocessor_config.json"),
        (["m", "SET", "--task", "classification", "--engine-options", "[1]"], "a JSON object"),
    ],
)
def test_bad_settings_are_refused_before_a_model_is_loaded(tmp_path, arguments, said):
    write_parquet(known_task("colours").make(random.Random(0), 2), tmp_path / "set")
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (bare / name).write_text("{}")
    save_file({}, bare / "model.safetensors")
    places = {"SET": str(tmp_path / "set"), "BARE": str(bare)}
    given = [places.get(argument, argument) for argument in arguments]
    result = CliRunner().invoke(app, ["eval", *given, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "out" / "parts").exists()


# ---- the library -----------------------------------------------------------------------------


def test_an_annotation_file_is_decoded_once(coco, tmp_path, monkeypatch):
    decoded = []
    read = jsonl.json.loads

    def counted(text, **options):
        decoded.append('"annotations"' in str(text)[:10_000])
        return read(text, **options)

    monkeypatch.setattr(jsonl.json, "loads", counted)
    monkeypatch.setattr(evaluate, "run_worker", answer_with_gold)
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    out = tmp_path / "out"
    summary = swift_vlrft.evaluate("m", coco, "detection", out=out, workers=1, bootstrap=10)
    assert summary.metrics["AP"].value == 1.0 and sum(decoded) == 1
    decoded.clear()
    again = swift_vlrft.evaluate(predictions=out, gold=coco, task="detection", bootstrap=0)
    assert again.metrics["AP"].value == 1.0 and sum(decoded) <= 1
    decoded.clear()
    for gold in ([], ["--gold", str(coco)]):
        assert CliRunner().invoke(app, ["compare", str(out), str(out), *gold]).exit_code == 0
        assert sum(decoded) <= 1
        decoded.clear()


def answer_with_gold(folder, queries, worker=0, workers=1, progress=lambda n: None) -> Problems:
    left = list(pending(queries, answered(folder), Problems()))
    with new_part(folder).open("a") as part:
        for query in left:
            part.write(
                answer_line(
                    query, query.row.solution, image_id="i", size=(64, 48),
                    tokens=3, finish="stop",
                )
            )  # fmt: skip
    progress(len(left))
    return Problems()


def test_several_answers_a_row_give_pass_rates(tmp_path):
    data = tmp_path / "set"
    write_parquet(known_task("colours").make(random.Random(0), 3), data)
    settings = Settings("m", data, "classification", samples=4, temperature=1.0)
    queries, out = QuerySet(settings), tmp_path / "out"
    assert queries.count == 12 and begin(out, settings) == {}
    right_answers = (4, 1, 0)
    with new_part(out).open("a") as part:
        for n, query in enumerate(queries.read(Problems())):
            for sample in range(4):
                said = query.row.solution if sample < right_answers[n] else "<answer>no</answer>"
                size = {"image_id": str(n), "size": (56, 56), "image_hash": "h"}
                part.write(answer_line(query, said, sample=sample, **size))
    finish(out, queries)
    lines = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert [line["pass_rate"] for line in lines] == [1] * 4 + [0.25] * 4 + [0] * 4
    assert [line["row"] for line in lines] == [0] * 4 + [1] * 4 + [2] * 4
    predictions = read_predictions(out)
    assert [row.id for row in predictions.rows] == ["0", "1", "2"]  # of each row the first answer
    metrics = summarise(predictions, bootstrap=0).metrics
    assert metrics["accuracy"].value == pytest.approx(2 / 3)
    assert metrics["pass_rate"].value == pytest.approx(1.25 / 3)
    greedy = QuerySet(Settings("m", data, "classification", samples=4))
    assert any("--samples 4 at --temperature 0" in problem for problem in greedy.problems())


@pytest.mark.parametrize("workers", [1, 2])
def test_the_summary_says_why_a_query_has_no_answer(tmp_path, monkeypatch, workers):
    rows = []
    for n in range(6):
        (tmp_path / f"{n}.png").write_bytes(b"no image")
        if n > 1:
            Image.new("RGB", (28, 28)).save(tmp_path / f"{n}.png")
        answer = {"solution": "<answer>red</answer>", "task": "classification"}
        rows.append({"image": f"{n}.png", "problem": "What colour?", **answer})
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def engine(settings):
        message = SimpleNamespace(content="<answer>red</answer>")
        choice = SimpleNamespace(message=message, finish_reason="stop")
        return lambda requests, _: [SimpleNamespace(choices=[choice])] * len(requests), 8

    def process(command, **_):
        inference.main(command[3:])
        return SimpleNamespace(poll=lambda: 0, wait=lambda: 0)

    monkeypatch.setattr(inference, "load_engine", engine)
    monkeypatch.setattr(inference.subprocess, "Popen", process)
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    settings = {"task": "classification", "workers": workers, "bootstrap": 0}
    summary = swift_vlrft.evaluate("m", file, out=tmp_path / "out", **settings)
    kind = "images that cannot be opened, skipped"
    assert summary.rows == 4 and summary.problems == {kind: 2, "queries without an answer": 2}
    assert "1.png" in "".join(summary.named[kind])
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    with pytest.raises(EvaluationError, match=r"no query of .*cannot be opened, skipped: .*0\.png"):
        swift_vlrft.evaluate("m", file, out=tmp_path / "none", **settings)


def test_evaluate_does_what_the_command_does(coco, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluate, "run_worker", answer_with_gold)
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    shown = []
    settings = {"categories": ["cat,dog"], "max_queries": 5, "seed": 1, "bootstrap": 10}
    summary = swift_vlrft.evaluate(
        "m", str(coco), "detection", out=tmp_path / "a", workers=1, **settings,
        progress=lambda *counts: shown.append(counts),
    )  # fmt: skip
    assert shown == [(5, 0), (5, 5)] and summary.rows == 5
    command = ["eval", "m", str(coco), "--task", "detection", "--out", str(tmp_path / "b")]
    command += ["--categories", "cat,dog", "--max-queries", "5", "--seed", "1", "--workers", "1"]
    result = CliRunner().invoke(app, [*command, "--bootstrap", "10", "--json"])
    assert result.exit_code == 0, result.output
    expected = json.loads(json.dumps(as_json(summary)))
    assert json.loads(result.stdout) == expected
    monkeypatch.chdir(tmp_path)
    command[command.index("--out") : command.index("--categories")] = []
    result = CliRunner().invoke(app, [*command, "--bootstrap", "10"])
    assert result.output.endswith("runs/eval/m-instances_val2017/summary.json\n"), result.output
    assert "are there already" not in result.output
    result = CliRunner().invoke(app, [*command, "--bootstrap", "10"])
    assert "5 of 5 answers are there already" in result.output
    written = read_record(tmp_path / "a" / "summary.json", Summary)
    assert json.loads(json.dumps(as_json(written))) == expected
    assert json.loads((tmp_path / "b" / "summary.json").read_text()) == expected
    assert "LOG_LEVEL" not in os.environ


def test_what_is_left_out_is_left_out_of_every_metric(coco, tmp_path):
    right = {"task": "detection", "frame": "norm1000", "width": 64, "height": 48}
    gold = "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"
    rows = [right | {"id": "1/cat", "image_id": 1, "category": "cat", "completion": gold}]
    rows.append(rows[0] | {"id": "2/dog", "image_id": 2, "category": "dog", "completion": "?"})
    rows.append(rows[0] | {"id": "9/cat", "image_id": 9, "completion": "?"})
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps(row | {"solution": gold}) + "\n" for row in rows))
    summary = swift_vlrft.evaluate(predictions=file, gold=coco, categories=["cat"], bootstrap=0)
    assert summary.rows == 1 and summary.metrics["vlrft_detection_iou"].value == 1.0
    assert "rows of unknown images, left out" in summary.problems


def test_the_old_call_of_compare_names_the_new_one():
    result = CliRunner().invoke(app, ["eval", "compare", "a", "b", "--gold", "c.json"])
    assert result.exit_code == 2 and "`vlrft compare A B`" in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["eval", "m", "d", "e", "--task", "counting"])
    assert result.exit_code == 2 and "got also ['e']" in " ".join(result.output.split())
    assert "--exist-map" in CliRunner().invoke(app, ["eval", "--help"]).output


def test_scoring_leaves_the_predictions_as_they_are(coco, tmp_path):
    gold = "<answer>[[0, 0, 500, 500]]</answer>"
    line = {
        "id": "1/cat",
        "task": "detection",
        "image_id": 1,
        "category": "CAT",
        "frame": "norm1000",
    }
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps(line | {"completion": gold, "solution": gold}) + "\n")
    predictions, before = read_predictions(file), read_predictions(file)
    annotations = open_annotations(coco)
    first = summarise(predictions, gold=Gold(annotations), bootstrap=0)
    assert predictions == before and first.by_class["cat"]["AP"] == 1.0
    assert as_json(summarise(predictions, gold=Gold(annotations), bootstrap=0)) == as_json(first)
    assert compare(predictions, predictions, gold=Gold(annotations), bootstrap=2).rows == 1
    assert predictions == before


def test_lvis_calls_no_box_wrong_where_it_does_not_say(tmp_path):
    names = [{"id": n, "name": name} for n, name in enumerate(("cat", "dog", "bus"), start=1)]
    image = {"id": 1, "file_name": "1.jpg", "width": 100, "height": 100}
    image |= {"neg_category_ids": [3], "not_exhaustive_category_ids": []}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 50, 50], "area": 2500}
    content = {"images": [image], "categories": names, "annotations": [box]}
    boxes = [
        {"image_id": 1, "category_id": c, "bbox": [0, 0, 50, 50], "score": 0.9} for c in (1, 2)
    ]
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


def test_evaluate_is_had_without_torch():
    code = "import sys, swift_vlrft as v; from swift_vlrft import evaluate; "
    code += "heavy = ('torch', 'swift', 'transformers', 'vllm'); "
    code += "print('evaluate' in dir(v)); print([m for m in heavy if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True", "[]"]
    with pytest.raises(AttributeError, match="no attribute 'evaluated'"):
        swift_vlrft.evaluated  # noqa: B018


def test_a_run_on_annotations_that_have_moved_is_not_scored_without_them(
    coco, tmp_path, monkeypatch
):
    monkeypatch.setattr(evaluate, "run_worker", answer_with_gold)
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    out = tmp_path / "out"
    swift_vlrft.evaluate("m", coco, "detection", out=out, workers=1, bootstrap=0)
    moved = coco.rename(tmp_path / "moved.json")
    result = CliRunner().invoke(app, ["compare", str(out), str(out)])
    said = " ".join(result.output.split())
    assert result.exit_code == 2 and "was made on annotations that do not exist" in said
    command = ["compare", str(out), str(out), "--gold", str(moved)]
    assert CliRunner().invoke(app, command).exit_code == 0
