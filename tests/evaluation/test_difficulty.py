"""`vlrft data difficulty` without a model: a function answers in the engine's place."""

import json
import random
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.full_disk import no_room
from support.written_sets import png
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.datasets.convert import convert_folder
from swift_vlrft.datasets.routing import FULL
from swift_vlrft.datasets.row import Row, RowLocation
from swift_vlrft.diagnostics.score import score_file
from swift_vlrft.evaluation.difficulty import judge, pass_mark, ranked, rewards_of
from swift_vlrft.evaluation.queries import Settings
from swift_vlrft.rewards import REWARDS
from swift_vlrft.swift_plugin import difficulty, evaluate, inference

# ---- which gold is wrong ---------------------------------------------------------------------

WORDS = ["cat", "dog", "hen", "cow", "fox", "pig", "owl", "bee", "ant", "elk"]
ROWS, PLANTED, SAMPLES = 200, 9, 8


def box(rng: random.Random, scale: float = 1000) -> list[float]:
    x, y = rng.uniform(0, 0.6), rng.uniform(0, 0.6)
    corners = (x, y, x + rng.uniform(0.15, 0.4), y + rng.uniform(0.15, 0.4))
    return [round(v * scale, 3 if scale == 1 else 0) for v in corners]


def moved(rng: random.Random, corners: list[float], by: float) -> list[float]:
    """The box with each edge moved by up to a share of the side."""
    sides = [corners[2] - corners[0], corners[3] - corners[1]]
    return [round(v + rng.uniform(-by, by) * sides[n % 2], 3) for n, v in enumerate(corners)]


def class_name(rng):
    truth = rng.choice(WORDS)
    return truth, lambda sure: truth if rng.random() < sure else rng.choice(WORDS)


def confused_name(rng):
    """Owls are taken for hens, always: that is the model's own error, not the gold's."""
    truth = rng.choice(WORDS)
    seen = "hen" if truth == "owl" else truth
    return truth, lambda sure: seen if rng.random() < sure else rng.choice(WORDS)


def number(rng):
    truth = rng.randint(1, 40)
    return str(truth), lambda sure: str(truth if rng.random() < sure else rng.randint(1, 40))


def text(rng):
    truth = f"{rng.choice(WORDS)} {rng.randint(10, 99)} {rng.choice(WORDS)}"

    def answer(sure):
        return "".join(c if rng.random() < 0.6 + 0.4 * sure else rng.choice("xyz") for c in truth)

    return truth, answer


def items(rng):
    truth = rng.sample(WORDS, 3)
    return json.dumps(truth), lambda sure: json.dumps(
        [word if rng.random() < sure else rng.choice(WORDS) for word in truth]
    )


def one_box(rng, scale=1000):
    truth = box(rng, scale)
    return str(truth), lambda sure: str(
        moved(rng, truth, 0.1) if rng.random() < sure else box(rng, scale)
    )


def boxes(rng):
    truth = [box(rng) for _ in range(rng.randint(1, 3))]
    return str([{"Position": b, "Confidence": 1} for b in truth]), lambda sure: str(
        [
            {"Position": moved(rng, b, 0.1) if rng.random() < sure else box(rng), "Confidence": 0.9}
            for b in truth
        ]
    )


def point(rng):
    truth = box(rng)
    middle = [(truth[0] + truth[2]) / 2, (truth[1] + truth[3]) / 2]

    def answer(sure):
        x, y = middle if rng.random() < sure else (rng.uniform(0, 1000), rng.uniform(0, 1000))
        return str([round(x + rng.uniform(-20, 20)), round(y + rng.uniform(-20, 20))])

    return str([truth]), answer


KINDS = {
    "class": ("classification", class_name, {}),
    "class, one confused": ("classification", confused_name, {}),
    "count": ("counting", number, {}),
    "number": ("number", number, {"tolerance": 0.02}),
    "text": ("ocr", text, {}),
    "list": ("list", items, {}),
    "box": ("grounding", one_box, {}),
    "box in shares": ("grounding", lambda rng: one_box(rng, 1), {"frame": "unit"}),
    "boxes": ("detection", boxes, {}),
    "point": ("pointing", point, {}),
}


def score(task: str, answer: str, gold: str, columns: dict) -> float:
    further = {key: [value] for key, value in columns.items()}
    return REWARDS[FULL[task][0]]([f"<answer>{answer}</answer>"], [gold], **further)[0]


def answered_rows(kind: str, seed: int):
    """Scores of rows of which some have the gold of another row, which is wrong for their own; a
    tenth are hard: an answer to them is right in one of four cases, else in nine of ten.
    """
    task, make, columns = KINDS[kind]
    rng = random.Random(seed)
    made = [make(rng) for _ in range(ROWS)]
    wrong = set(rng.sample(range(ROWS), PLANTED))
    hard = set(rng.sample(sorted(set(range(ROWS)) - wrong), ROWS // 10))
    found = []
    for number, (truth, answer) in enumerate(made):
        gold = truth
        while number in wrong and (gold == truth or score(task, answer(1), gold, columns) > 0.3):
            gold = rng.choice(made)[0]
        row = Row(RowLocation(Path("set"), number), {}, "?", gold, {"task": task, **columns})
        lines = [
            {
                "completion": f"<answer>{answer(0.25 if number in hard else 0.9)}</answer>",
                **{"solution": f"<answer>{gold}</answer>", "width": 64, "height": 48, **columns},
            }
            for _ in range(SAMPLES)
        ]
        found.append(judge(row, number, lines, rewards_of(row)))
    return found, wrong


@pytest.mark.parametrize("kind", KINDS)
def test_planted_errors_are_ranked_first(kind):
    """At least 9 in 10 of them among the first 5 % of the set."""
    for seed in range(3):
        scores, wrong = answered_rows(kind, seed)
        first = {row.number for row in ranked(scores)[: ROWS // 20]}
        assert len(first & wrong) >= 0.9 * PLANTED, (seed, sorted(wrong - first))


def test_a_hard_row_is_less_suspicious_than_one_whose_answers_agree():
    def suspicion(*answers: str) -> float:
        row = Row(RowLocation(Path("set"), 0), {}, "?", "cat", {"task": "classification"})
        lines = [{"completion": f"<answer>{a}</answer>", "solution": "cat"} for a in answers]
        (found,) = ranked([judge(row, 0, lines, rewards_of(row))])
        return found.suspicion

    agreeing = suspicion(*["dog"] * 8)
    assert agreeing == 1.0
    assert agreeing > suspicion(*["dog"] * 4, *["cow"] * 4) > suspicion(*WORDS[1:9])
    assert suspicion(*["cat"] * 8) == 0.0
    assert suspicion(*["cat"] * 4, *["dog"] * 4) < 0.1


@pytest.mark.parametrize("answers", [["dog"], ["no tags"] * 4, ["<answer></answer>"] * 3])
def test_without_two_answers_that_can_be_read_nothing_is_suspected(answers):
    row = Row(RowLocation(Path("set"), 0), {}, "?", "3", {"task": "counting"})
    lines = [{"completion": answer, "solution": "3"} for answer in answers]
    scores = judge(row, 0, lines, rewards_of(row))
    assert scores.suspicion is None and scores.pass_rate == 0 and ranked([scores]) == []


@pytest.mark.parametrize("name", [n for n, one in REWARDS.items() if one.task is not None])
def test_what_counts_as_right(name):
    """A box of an IoU just above 0.5 passes, one below does not; elsewhere only a full score."""
    task = REWARDS[name].task
    if not task.has_boxes:
        assert pass_mark(name) == 1.0
        return
    gold = [0, 0, 100, 100]
    for height, right in ((51, True), (49, False)):
        answer = f"<think>t</think><answer>[{{'Position': [0, 0, 100, {height}], 'Confidence': 1}}]"
        solution = str([gold]) if task.name == "detection" else str(gold)
        (score,) = REWARDS[name]([f"{answer}</answer>"], [solution])
        if name in ("vlrft_detection_iou", "vlrft_grounding_iou", "vlrft_grounding_giou"):
            assert (score >= pass_mark(name)) is right


# ---- the command -----------------------------------------------------------------------------


def prompt_of(request) -> str:
    return request.messages[-1]["content"]


class Engine:
    """Answers with ``answer(prompt, n)``, and counts what it was asked."""

    def __init__(self, answer, most: int = 10**9):
        self.answer, self.most, self.asked, self.ns = answer, most, Counter(), []

    def load(self, settings: Settings):
        def ask(requests, config):
            responses, seen = [], Counter()
            for request in requests:
                prompt = prompt_of(request)
                self.ns.append(config.n)
                if not seen[prompt] and self.asked.total() >= self.most:
                    raise KeyboardInterrupt
                self.asked[prompt] += not seen[prompt]
                first = seen[prompt]
                seen[prompt] += config.n
                texts = [self.answer(prompt, n) for n in range(first, seen[prompt])]
                messages = [SimpleNamespace(content=text) for text in texts]
                choices = [SimpleNamespace(message=m, finish_reason="stop") for m in messages]
                responses.append(SimpleNamespace(choices=choices))
            return responses

        return ask, settings.batch_size


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(evaluate, "model_and_adapter", lambda model, base: (model, None))
    monkeypatch.setattr(difficulty, "model_and_adapter", lambda model, base: (model, None))

    def use(answer, most: int = 10**9) -> Engine:
        made = Engine(answer, most)
        monkeypatch.setattr(inference, "load_engine", made.load)
        return made

    return use


def write(folder: Path, rows: list[dict]) -> Path:
    folder.mkdir(exist_ok=True)
    for n, row in enumerate(rows):
        if "image" not in row:
            (folder / f"{n}.png").write_bytes(png((n % 256, 30, 30)))
            row["image"] = f"{n}.png"
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def named(count: int) -> list[dict]:
    return [
        {"problem": f"Which? [{n}]", "solution": f"<answer>{WORDS[n % 10]}</answer>", "weight": n}
        for n in range(count)
    ]


def row_number(prompt: str) -> int:
    return int(re.search(r"\[(\d+)\]", prompt)[1])


def right_at(number: int, n: int) -> str:
    """Row 0 is right in no answer, row 1 in one, ..., row 4 and later ones in all of four."""
    word = WORDS[number % 10] if n < number else "wrong"
    return f"<think>t</think><answer>{word}</answer>"


def run(*arguments: object):
    return CliRunner().invoke(app, ["data", "difficulty", *map(str, arguments)])


def said(result) -> str:
    return " ".join(result.output.split())


def test_the_set_gets_the_columns_and_loses_nothing(tmp_path, engine):
    source = write(tmp_path / "src", named(6))
    engine(lambda prompt, n: right_at(row_number(prompt), n))
    out = tmp_path / "out"
    result = run("m", source, "--samples", "4", "--out", out)
    assert result.exit_code == 0, result.output
    table = pq.read_table(out / "set" / "data")
    assert table["pass_rate"].to_pylist() == [0, 0.25, 0.5, 0.75, 1, 1]
    stds = [np.std([1] * n + [0] * (4 - n)) for n in (0, 1, 2, 3, 4, 4)]
    assert table["reward_std"].to_pylist() == pytest.approx(stds)
    # What is there without them is what `convert` writes.
    converted = convert_folder(source, tmp_path / "converted")
    plain = pq.read_table(converted.folder / "data")
    assert table.drop_columns(["pass_rate", "reward_mean", "reward_std"]).equals(plain)
    # The means are those of `vlrft score`, row by row.
    lines = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines[:5]] == ["0/0", "0/1", "0/2", "0/3", "1/0"]
    for number, mean in enumerate(table["reward_mean"].to_pylist()):
        part = tmp_path / "part.jsonl"
        part.write_text("".join(json.dumps(x) + "\n" for x in lines if x["row"] == number))
        (summary,) = score_file(part, ["vlrft_classification"]).rewards.values()
        assert mean == summary.mean
    page = (out / "difficulty.html").read_text()
    assert "data:image/png;base64," in page and "<td>2<td>" in page  # two rows at 1
    assert "1 rows that no answer gets right" in said(result)


def test_a_killed_run_resumes_and_other_scoring_asks_nothing(tmp_path, engine):
    source, out = write(tmp_path / "src", named(9)), tmp_path / "out"
    command = ("m", source, "--samples", "4", "--out", out, "--batch-size", "2")
    killed = engine(lambda prompt, n: right_at(row_number(prompt), n), most=4)
    run(*command)
    assert not (out / "predictions.jsonl").exists()
    part = next(p for p in out.glob("parts/*") if p.stat().st_size)
    part.write_text(part.read_text().rsplit("\n", 3)[0][:-20])  # in the middle of a line
    again = engine(lambda prompt, n: right_at(row_number(prompt), n))
    assert run(*command).exit_code == 0
    asked = killed.asked + again.asked
    assert sum(asked.values()) == 10 and set(asked.values()) == {1, 2}  # the row that was cut
    never = engine(lambda prompt, n: pytest.fail("asked again"))
    whole = pq.read_table(out / "set" / "data")
    result = run(*command, "--keep", "0.2:0.8", "--json")
    found = json.loads(result.stdout)
    assert found["written"] == 3 and found["folder"] == str(out / "keep_0.2_0.8")
    kept = pq.read_table(out / "keep_0.2_0.8" / "data")
    assert kept["pass_rate"].to_pylist() == [0.25, 0.5, 0.75] and (out / "set").is_dir()
    # Scored otherwise, both sets are moved aside: their rates are no longer those of the ranking.
    assert run(*command, "--reward", "vlrft_counting").exit_code == 2
    assert run(*command, "--pass-at", "0.1").exit_code == 0
    assert not never.asked and pq.read_table(out / "set" / "data").equals(whole)
    result = run(*command[:2], *command[2:4], "--out", out, "--temperature", "0.7")
    assert result.exit_code == 2 and "temperature 1.0, now 0.7" in said(result)


def test_sets_of_an_older_scoring_are_moved_aside(tmp_path, engine):
    rows = [
        {"problem": f"How many? [{n}]", "solution": str(n), "task": "counting"} for n in range(5, 9)
    ]
    source, out = write(tmp_path / "src", rows), tmp_path / "out"
    engine(lambda prompt, n: f"<answer>{row_number(prompt) + n % 2}</answer>")
    command = ("m", source, "--samples", "4", "--out", out)
    assert run(*command).exit_code == 0
    soft = ("--reward", "vlrft_counting_soft", "--pass-at", "0.8")
    assert run(*command, *soft).exit_code == 1  # every answer is right
    old, new = (pq.read_table(p / "set/data") for p in (out / "before-1", out))
    assert set(old["pass_rate"].to_pylist()) == {0.5} and set(new["pass_rate"].to_pylist()) == {1}
    assert run(*command, *soft).exit_code == 1
    assert not (out / "before-2").exists()


def test_every_row_of_a_mixed_set_is_scored_by_the_rewards_of_its_task(tmp_path, engine):
    golds = {
        "classification": ("red", "blue"),
        "counting": ("4", "5"),
        "choice": ("B", "C"),
        "yes_no": ("yes", "no"),
        "number": ("2.5", "3"),
        "ocr": ("Exit 4", "No way"),
        "list": ('["a", "b"]', '["c"]'),
        "ordering": ('["a", "b"]', '["b", "a"]'),
        "grounding": ("[0, 0, 500, 500]", "[600, 600, 900, 900]"),
        "detection": ("[[0, 0, 500, 500]]", "No Objects"),
        "pointing": ("[[0, 0, 500, 500]]", None),
    }
    rows = [
        {"problem": f"Do it [{n}], between 0 and 1000", "solution": gold, "task": task}
        for n, (task, (gold, _)) in enumerate(golds.items())
    ]
    answers = list(golds.values())

    def answer(prompt, n):
        right, wrong = answers[row_number(prompt)]
        if wrong is None:
            right, wrong = "[250, 250]", "[900, 900]"
        return f"<answer>{right if n else wrong}</answer>"

    engine(answer)
    source, out = write(tmp_path / "src", rows), tmp_path / "out"
    result = run("m", source, "--samples", "2", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert pq.read_table(out / "set" / "data")["pass_rate"].to_pylist() == [0.5] * len(rows)
    assert len(json.loads(result.stdout)["rewards"]) == len(golds)
    # Rows that no named reward scores keep their place, without rates.
    out = tmp_path / "named"
    result = run("m", source, "--samples", "2", "--out", out, "--reward", "vlrft_detection_f1")
    assert f"{len(rows) - 1} rows are scored by no reward that is named" in said(result)
    rates = pq.read_table(out / "set" / "data")["pass_rate"].to_pylist()
    assert rates.count(None) == len(rows) - 1 and len(rates) == len(rows)


def test_boxes_are_asked_in_the_format_that_is_named_and_stay_as_stored(tmp_path, engine):
    solution = "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"
    row = {"problem": "Find the dog [0], in coordinates from 0 to 1000.", "solution": solution}
    source, out = write(tmp_path / "src", [row | {"task": "detection"}]), tmp_path / "out"
    engine(lambda prompt, n: "<answer>[[0, 0, 0.5, 0.5]]</answer>")
    result = run("m", f"{source}:unit", "--samples", "2", "--out", out, "--json")
    found = json.loads(result.stdout)
    assert found["pass_rate"] == 1.0 and "0.5" in found["always_right"]["first"][0]["gold"]
    stored = pq.read_table(out / "set" / "data").to_pylist()[0]
    assert stored["solution"] == solution and stored["frame"] == "norm1000"


def test_more_answers_are_shown_by_tenths(tmp_path, engine):
    source = write(tmp_path / "src", [{"problem": f"[{n}]", "solution": "cat"} for n in range(5)])
    shares = [0, 0.05, 0.5, 0.95, 1]
    engine(lambda p, n: f"<answer>{'cat' if n < 20 * shares[row_number(p)] else 'x'}</answer>")
    found = json.loads(
        run("m", source, "--samples", "20", "--out", tmp_path / "o", "--json").stdout
    )
    bins = [(one["low"], one["high"]) for one in found["histogram"] if one["rows"]]
    assert bins == [(0, 0), (0, 0.1), (0.5, 0.6), (0.9, 1), (1, 1)]
    assert sum(one["rows"] for one in found["histogram"]) == 5


def test_what_a_model_writes_harms_neither_page_nor_terminal(tmp_path, engine):
    gold = "[red]x[/red] <b>"
    rows = [{"problem": f"Read [{n}] <i>", "solution": gold, "task": "ocr"} for n in range(3)]
    texts = [gold, "\ud800 \x1b[31m boo", "</script><img src=x>", "[/] " * 2000, "<img src=x>"]
    engine(
        lambda prompt, n: (
            f"<answer>{texts[max(0, n - 3)]}</answer>"
            if row_number(prompt)
            else f"<answer>{texts[-1]}</answer>"
        )
    )
    out = tmp_path / "out"
    result = run("m", write(tmp_path / "src", rows), "--out", out)
    assert result.exit_code == 0 and "\x1b" not in result.output, result.output
    assert "<img src=x>" in result.output  # beside its gold, as it was written
    page = (out / "difficulty.html").read_text()
    assert "<img src=x>" not in page and "&lt;img src=x&gt;" in page and "<i>" not in page
    assert pq.read_table(out / "set" / "data").num_rows == 3


@pytest.mark.parametrize("text", [None, "", "<answer></answer>", "<think>"])
def test_an_answer_without_text_is_a_wrong_one(tmp_path, engine, text):
    source, out = write(tmp_path / "src", named(4)), tmp_path / "out"
    engine(lambda prompt, n: text if n else right_at(row_number(prompt), 0))
    result = run("m", source, "--samples", "2", "--out", out)
    assert result.exit_code == 0, result.output
    assert pq.read_table(out / "set" / "data")["pass_rate"].to_pylist() == [0, 0.5, 0.5, 0.5]


def test_columns_that_are_there_already_get_the_new_rates(tmp_path, engine):
    rows = [row | {"pass_rate": "old", "reward_std": 7, "row": 3, "samples": 1} for row in named(3)]
    engine(lambda prompt, n: right_at(row_number(prompt), n))
    out = tmp_path / "out"
    assert run("m", write(tmp_path / "src", rows), "--samples", "2", "--out", out).exit_code == 0
    table = pq.read_table(out / "set" / "data")
    assert table["pass_rate"].to_pylist() == [0, 0.5, 1]
    assert table["row"].to_pylist() == [3, 3, 3]
    again = run(
        "m", out / "set", "--samples", "2", "--out", tmp_path / "again", "--keep", "0.5:0.5"
    )
    assert again.exit_code == 0
    inside = run("m", out / "set", "--out", out / "set" / "here")
    assert inside.exit_code == 2 and "would become a part" in said(inside)


def test_vllm_is_asked_once_for_all_answers_to_a_row(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(inference, "chosen_engine", lambda name: name)
    source = write(tmp_path / "src", named(4))
    rates = {}
    for name, n, requests in (("vllm", 4, 4), ("transformers", 1, 16)):
        used = engine(lambda prompt, n: right_at(row_number(prompt), n))
        out = tmp_path / name
        assert run("m", source, "--samples", "4", "--out", out, "--engine", name).exit_code == 0
        assert used.ns == [n] * requests
        rates[name] = pq.read_table(out / "set" / "data")["pass_rate"].to_pylist()
    assert rates["vllm"] == rates["transformers"] == [0, 0.25, 0.5, 0.75]


# ---- what cannot be used, and sets that teach nothing ----------------------------------------


def test_a_model_that_cannot_answer_in_the_form_is_stopped_early(tmp_path, engine):
    source, out = write(tmp_path / "src", named(100)), tmp_path / "out"
    used = engine(lambda prompt, n: "The animal is a cat.")
    result = run("m", source, "--samples", "8", "--out", out)
    assert result.exit_code == 2 and 8 * used.asked.total() == difficulty.EARLY
    assert "m cannot answer in the form" in said(result) and "supervised" in said(result)
    assert "'The animal is a cat.'" in said(result) and not (out / "set").exists()
    # Too few for that: at the end, also of answers in tags that hold no box.
    row = {"problem": "Find it [0], between 0 and 1000.", "solution": "[0, 0, 9, 9]"}
    source = write(tmp_path / "few", [row | {"task": "grounding"}])
    engine(lambda prompt, n: "<answer>at the left</answer>")
    result = run("m", source, "--out", tmp_path / "few_out")
    assert result.exit_code == 2 and "answer is not a list of boxes" in said(result)


@pytest.mark.parametrize(
    ("answer", "flag"),
    [
        ("<answer>cat</answer>", "learns nothing from this set"),
        ("<answer>dog</answer>", "no answer to any row is right"),
    ],
)
def test_a_set_that_teaches_nothing(tmp_path, engine, answer, flag):
    rows = [{"problem": f"Which? [{n}]", "solution": "cat"} for n in range(4)]
    engine(lambda prompt, n: answer)
    out = tmp_path / "out"
    result = run("m", write(tmp_path / "src", rows), "--out", out)
    assert result.exit_code == 1 and flag in said(result)
    assert "4 of 4 rows teach nothing" in said(result) and (out / "set").is_dir()
    kept = run("m", tmp_path / "src" / "rows.jsonl", "--out", out, "--keep", "0.1:0.9")
    assert kept.exit_code == 2 and "--keep 0.1:0.9 holds none of the 4 rows" in said(kept)


def test_one_answer_per_row_is_said_to_show_little(tmp_path, engine):
    engine(lambda prompt, n: right_at(row_number(prompt), n))
    result = run("m", write(tmp_path / "src", named(4)), "--samples", "1", "--out", tmp_path / "o")
    assert result.exit_code == 0 and "--samples 8 can" in said(result)
    rates = pq.read_table(tmp_path / "o" / "set" / "data")["pass_rate"].to_pylist()
    assert rates == [0, 1, 1, 1]


def test_bad_rows_stop_before_a_model_is_loaded_or_are_left_out(tmp_path, engine):
    rows = named(6)
    rows[2]["solution"] = None
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "broken.png").write_bytes(b"no image")
    rows[4]["image"] = "broken.png"
    source, out = write(tmp_path / "src", rows), tmp_path / "out"
    used = engine(lambda prompt, n: right_at(row_number(prompt), n))
    result = run("m", source, "--samples", "4", "--out", out)
    assert result.exit_code == 2 and "row 2" in said(result) and "--keep-going" in said(result)
    assert not used.asked and not out.exists()
    result = run("m", source, "--samples", "4", "--out", out, "--keep-going")
    assert result.exit_code == 0 and "2 rows cannot be trained on" in said(result)
    table = pq.read_table(out / "set" / "data")
    assert dict(zip(table["weight"].to_pylist(), table["pass_rate"].to_pylist(), strict=True)) == {
        **{0: 0, 1: 0.25, 3: 0.75, 5: 1}
    }
    assert len((out / "set" / "left_out.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["m", "missing"], "the data set missing does not exist"),
        (["m", "SET", "--keep", "0.9:0.1"], "0.9 is more than 0.1"),
        (["m", "SET", "--keep", "10:90"], "from 0 to 1"),
        (["m", "SET", "--keep", "0.5"], "two numbers"),
        (["m", "SET", "--keep", "0.1:0.5:0.9"], "two numbers"),
        (["m", "SET", "--keep", "nan:0.9"], "two numbers"),
        (["m", "SET", "--pass-at", "0"], "above 0, and at most 1"),
        (["m", "SET", "--pass-at", "nan"], "above 0, and at most 1"),
        (["m", "SET", "--temperature", "0"], "would be the same"),
        (["m", "SET", "--samples", "0"], "--samples"),
        (["m", "SET", "--reward", "vlrft_format"], "not whether it is right"),
        (["m", "SET", "--reward", "vlrft_detection_format"], "not whether it is right"),
        (["m", "SET", "--reward", "vlrft_class"], "known: vlrft_detection_iou"),
        (["m", "SET", "--reward", "vlrft_counting"], "no reward scores any row (its rows: 3 class"),
        (["m", "SET", "--task", "dancing"], "row 0: unknown task 'dancing'; known: detection"),
        (["m", "FOLDER", "--split", "test"], "no split 'test'"),
        (["m", "SET:inches"], "unknown subset 'inches'; known: norm1000"),
        (["m", "SET", "--columns", '{"problem": "other"}'], "lacks the column problem"),
        (["m", "NO_GOLD"], "lacks the column solution"),
        (["m", "EMPTY"], "has no rows"),
        (["m", "TYPES"], "the column 'extra' cannot be stored"),
        (["m", "NO_KEY"], "cannot be stored as Parquet"),
        (["m", "SET", "--engine-options", "[1]"], "a JSON object"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(tmp_path, engine, arguments, expected):
    used = engine(lambda prompt, n: "")
    source = str(write(tmp_path / "src", named(3)))
    without = [{"problem": "Which?"}, {"problem": "Which?"}]
    places = {"NO_GOLD": str(write(tmp_path / "no_gold", without))}
    (tmp_path / "empty.jsonl").write_text("")
    Path(source).rename(tmp_path / "src" / "train.jsonl")
    source = source.replace("rows.jsonl", "train.jsonl")
    types = [row | {"extra": extra} for row, extra in zip(named(2), (1, "a"), strict=True)]
    places["TYPES"] = str(write(tmp_path / "types", types))
    places["NO_KEY"] = str(write(tmp_path / "no_key", [named(1)[0] | {"extra": {}}]))
    places["FOLDER"] = str(tmp_path / "src")
    places["EMPTY"] = str(tmp_path / "empty.jsonl")
    given = [places.get(a, a.replace("SET", source)) for a in arguments]
    result = run(*given, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert expected in said(result)
    assert not used.asked and not (tmp_path / "out").exists()


def test_a_set_is_never_moved_and_never_read_twice(tmp_path, engine):
    """Of folders within each other: the set in --out, the copy in the set, the run as a set."""
    engine(lambda prompt, n: right_at(row_number(prompt), n))
    source, out = write(tmp_path / "src", named(6)), tmp_path / "out"
    convert_folder(source, out / "set")
    result = run("m", out / "set", "--samples", "4", "--out", out)
    assert result.exit_code == 2 and "give another --out" in said(result)
    assert [p.name for p in out.iterdir()] == ["set"]
    # What is not ours stays where it is.
    out = tmp_path / "other"
    out.mkdir()
    (out / "keep_notes.txt").write_text("mine")
    (out / "set").write_text("mine, in the way")
    for keep in ("0:0", "-0:0.5"):
        assert run("m", source, "--samples", "4", "--out", out, "--keep", keep).exit_code == 0
    assert (out / "keep_notes.txt").exists() and (out / "keep_0_0.5").is_dir()
    assert (out / "before-1" / "set").read_text() == "mine, in the way"
    for command in (("order", out, tmp_path / "ordered"), ("difficulty", "m", out), ("check", out)):
        result = CliRunner().invoke(app, ["data", *map(str, command)])
        assert result.exit_code == 2, result.output
        assert "one of the sets in it: keep_0_0, keep_0_0.5" in said(result)


@pytest.mark.parametrize("place", ["train.parquet", "data/train.parquet", "all/train.parquet"])
def test_a_changed_set_is_not_given_the_rates_of_its_older_rows(tmp_path, engine, place):
    engine(lambda prompt, n: right_at(row_number(prompt), n))
    file = tmp_path / "src" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    for order, code in ((1, 0), (-1, 2)):
        rows = [row | {"image": {"bytes": png(), "path": None}} for row in named(6)[::order]]
        pq.write_table(pa.Table.from_pylist(rows), file)
        result = run("m", tmp_path / "src", "--samples", "4", "--out", tmp_path / "out")
        assert result.exit_code == code, result.output
    assert "the files of" in said(result) and "changed since" in said(result)


def test_rates_of_which_none_is_kept_are_in_the_summary(tmp_path, engine):
    engine(lambda prompt, n: right_at(row_number(prompt), n))
    source, out = write(tmp_path / "src", named(6)), tmp_path / "out"
    for samples, keep in (("4", "0.6:0.7"), ("1", "0.1:0.9")):
        result = run("m", source, "--samples", samples, "--out", out / samples, "--keep", keep)
        assert result.exit_code == 2 and "holds none of the 6 rows" in said(result)
        assert json.loads((out / samples / "summary.json").read_text())["scored"] == 6


@pytest.mark.parametrize("model", [".", "..", "/", "./", "../.."])
@pytest.mark.parametrize("data", [".", "..", "set.jsonl", "/"])
def test_a_folder_by_default_has_a_name(model, data):
    name = evaluate.output_folder(model, data).name
    assert not name.startswith(("-", ".")) and (data == "/" or not name.endswith(("-", ".")))


def test_a_model_that_does_not_exist_is_said_first(tmp_path):
    result = run("./nothing", write(tmp_path / "src", named(2)), "--out", tmp_path / "out")
    assert result.exit_code == 2 and "./nothing does not exist" in said(result)


def test_runs_of_vlrft_eval_from_before_there_were_samples_resume():
    import hashlib

    import swift_vlrft.files.records as records

    settings = Settings("m", Path("set"), "classification", temperature=0.5)
    then = records.as_json(settings)
    for name in ("samples", "top_p", "rename", "engine", "batch_size"):
        then.pop(name)
    digest = hashlib.sha256(json.dumps(then, sort_keys=True).encode()).hexdigest()[:16]
    assert settings.identity() == digest
    sampled = Settings("m", Path("set"), "classification", temperature=0.5, samples=8)
    assert sampled.identity() != digest


def test_answers_are_drawn_as_grpo_draws_them_whatever_the_checkpoint_prefers():
    """Qwen2-VL's generation_config.json asks for the likeliest token alone."""
    from swift.infer_engine.utils import prepare_generation_config
    from transformers import GenerationConfig

    wish = GenerationConfig(do_sample=True, top_k=1, top_p=0.001, temperature=0.01)
    settings = Settings("m", Path("s"), "", samples=8, temperature=1.0, top_p=1.0)
    config = inference._request_config(settings)
    tokenizer = SimpleNamespace(eos_token_id=1, pad_token_id=0)
    made = prepare_generation_config(wish, config, tokenizer)
    assert (made.do_sample, made.temperature, made.top_p) == (True, 1.0, 1.0)
    assert made.top_k > 10**6


def test_answers_before_a_full_disk_are_kept(tmp_path, engine):
    source, out = write(tmp_path / "src", named(9)), tmp_path / "out"
    command = ("m", source, "--samples", "4", "--out", out, "--batch-size", "2")
    first = engine(lambda prompt, n: right_at(row_number(prompt), n))
    with no_room(4000):
        refused = run(*command)
    assert refused.exit_code == 2 and not (out / "predictions.jsonl").exists()
    assert f"{out / 'parts'}/part-" in said(refused) and "could not be written" in said(refused)
    again = engine(lambda prompt, n: right_at(row_number(prompt), n))
    assert run(*command).exit_code == 0
    assert 9 <= (first.asked + again.asked).total() <= 9 + 2  # the batch that was cut
    assert pq.read_table(out / "set" / "data").num_rows == 9
