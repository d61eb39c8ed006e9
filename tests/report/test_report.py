"""`vlrft report`: one page, strict HTML, all text escaped, pictures and boxes in place."""

import json
import math
import random
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.command_line import vlrft
from support.drawn_rows import boxed_rows, mixed_rows

from swift_vlrft.evaluation.predictions import Problems
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.evaluation.run import answer_line, begin, finish, new_part
from swift_vlrft.report.curves import LARGEST, curve
from swift_vlrft.report.html import short
from swift_vlrft.report.run_log import read_run
from tests.support.parquet import write_parquet

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)> & \ud800"
VOID = {"meta", "img", "br"}
OPTIONAL = {"tr", "th", "td"}  # HTML lets a table leave them open


class Strict(HTMLParser):
    """Every element that is opened is closed, in order: nothing is left to guess."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID | OPTIONAL:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in OPTIONAL:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes <{self.open[-1:]}>"
            self.open.pop()


def write_answers(out: Path, settings: Settings, said) -> None:
    """A run of `vlrft eval` in which query n is answered with ``said(n, query)``."""
    begin(out, settings)
    queries = QuerySet(settings)
    lines = [
        answer_line(query, said(n, query), image_id=str(n), size=(112, 112), tokens=9)
        for n, query in enumerate(queries.read(Problems()))
    ]
    new_part(out).write_text("".join(lines))
    finish(out, queries)


def append(run: Path, *records: dict | str) -> None:
    """To the log of its steps."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    with (run / "logging.jsonl").open("a") as log:
        log.write("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run's folder as ms-swift leaves it, and two evaluations made on a real data set."""
    place = tmp_path_factory.mktemp("finished")
    folder = place / "run"
    folder.mkdir()
    args = {"model": "org/{body}<b>", "hub_token": "hf_x", "swanlab_token": "s3"}
    args |= {"reward_funcs": ["vlrft_detection_iou"], "x": "{title}" + EVIL}
    (folder / "args.json").write_text(json.dumps(args))
    steps = [
        {"reward": step / 10, "reward_std": 0.1, "frac_reward_zero_std": 0.5}
        | {"rewards/vlrft_detection_iou/mean": step / 10, "rewards/vlrft_detection_iou/std": 0.2}
        | {"completions/mean_length": 20 + step, "completions/min_length": 10}
        | {"completions/max_length": 40, "memory(GiB)": 3.0}
        | {"rollout_correction/k3_kl": 1e-5 * step}
        | {"global_step/max_steps": f"{step}/5"}
        for step in range(1, 6)
    ]
    append(folder, *steps, '{"half a line')
    gold = "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"
    log = {"completion": [EVIL, gold], "solution": [gold] * 2, "vlrft_detection_iou": [0.0, 1.0]}
    (folder / "completions.jsonl").write_text(json.dumps(log | {"step": ["1", "1"]}) + "\n")
    write_parquet(boxed_rows(random.Random(0), 6), place / "set")
    before, after = (Settings(f"model-{n}", place / "set", "detection") for n in (1, 2))
    write_answers(place / "before", before, lambda n, query: [EVIL, query.row.solution][n % 2])
    write_answers(place / "after", after, lambda n, query: [query.row.solution, EVIL][n % 2])
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy of it for one test."""
    shutil.copytree(finished.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def report(run: Path, *flags: str) -> str:
    target = run.parent / "report.html"
    result = vlrft("report", run, "--out", target, *flags)
    assert result.exit_code == 0, result.output
    assert target.stat().st_size < 10_000_000
    return target.read_text(encoding="utf-8")


def both(run: Path) -> list[str]:
    return ["--eval", str(run.parent / "before"), "--eval", str(run.parent / "after")]


def points_of(page: str, title: str) -> list[list[float]]:
    """The line of the one figure with this title."""
    (figure,) = re.findall(rf"<figure><figcaption>{title}.*?</figure>", page, re.S)
    line = re.search(r'class="line" points="([^"]+)"', figure)[1]
    return [[float(number) for number in point.split(",")] for point in line.split()]


def test_the_page_is_whole_and_escaped(run):
    evil = "<script>alert(1)</script>\"'{{ 7 * 7 }}"
    names = {f"rewards/{evil}/mean": 0.5, f"memory({evil}": 1.0}
    append(run, names | {"global_step/max_steps": "6/6"})
    page = report(run, *both(run))
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    tags = [tag for tag, _ in parser.tags]
    assert "script" not in tags and "link" not in tags and "b" in tags
    assert not any(name.startswith("on") for _, attributes in parser.tags for name in attributes)
    assert any(evil in attributes.get("aria-label", "") for _, attributes in parser.tags)
    sources = [attributes["src"] for tag, attributes in parser.tags if tag == "img"]
    assert len(sources) == 4 and all(s.startswith("data:image/png;base64,") for s in sources)
    assert "alert(1)" in page and "&lt;script&gt;" in page
    assert f"<title>{run.parent.name}/run</title>" in page and "<dd>{title}&lt;/pre" in page
    assert "default-src 'none'" in page and "http" not in page.split("</head>")[0].split("http-")[0]
    assert "width=device-width" in page and "AP by category (1)" in page
    assert "hf_x" not in page and "s3" not in re.sub(r"base64,[^\"]+", "", page)


def test_what_changed_is_shown_with_boxes_and_reasons(run):
    page = report(run, *both(run))
    gain, loss = page.split("<h3>Became right</h3>")[1].split("<h3>Became wrong</h3>")
    assert gain.count("<article>") == loss.count("<article>") == 2
    assert re.findall("(before|after) <b>(.*?)</b>", gain)[:2] == [
        ("before", "0.000"),
        ("after", "1.000"),
    ]
    assert "no complete answer block" in gain  # the reason that `vlrft score` gives
    assert gain.count('class="box gold"') == 2 and gain.count('class="box after"') == 2
    assert 'class="box before"' not in gain and loss.count('class="box before"') == 2
    # A box is where it is in the picture, in percent.
    numbers = re.findall(r"\d+", boxed_rows(random.Random(0), 6)[0].solution)
    x1, y1, x2, y2 = (int(v) / 10 for v in numbers[:4])
    place = f"left:{x1:.2f}%;top:{y1:.2f}%;width:{x2 - x1:.2f}%;height:{y2 - y1:.2f}%"
    assert place in gain
    assert "3 fixed, 3 broken" in page and "paired bootstrap" in page


def test_a_step_is_shown_by_part_where_its_seconds_were_logged(run):
    assert "A step takes" not in report(run)
    # Weights are reused in every second step; without vLLM nothing is synchronised.
    for step, seconds in ((6, 3.0), (7, 0.0)):
        timed = {"memory/generation_seconds": seconds, "memory/rest_seconds": 0.5}
        timed |= {"memory/weight_sync_seconds": 0.0, "memory/generation_card_gib": 20.0 + step}
        append(run, timed | {"global_step/max_steps": f"{step}/7"})
    page = report(run)
    assert "A step takes 2.00 s" in page and "weight sync" not in page
    assert "generation<td>1.50<td>75%<td>27.0<" in page and "rest<td>0.50<td>25%<td>-<" in page


def test_curves_are_those_of_the_log_and_what_is_not_drawn_is_said(run):
    append(run, '{"grad_norm": NaN, "kl": 1e999, "global_step/max_steps": "5/5"}')
    page = report(run)
    assert "<b>0.100 → 0.500</b>vlrft_detection_iou in training" in page
    assert "reward <b>0.100 → 0.500</b>" in page
    assert "completion length <b>21.0 → 25.0</b>" in page
    assert "zero-variance groups" in page and "memory(GiB)" in page
    assert "engine against trainer" in page
    assert "parse rate of vlrft_detection_iou <b>0.5" in page
    assert "no answer<td>1<td>50%" in page
    heights = [y for _, y in points_of(page, "vlrft_detection_iou")]
    assert len(heights) == 5 and heights == sorted(heights, reverse=True)  # it rises
    assert "<li>logging.jsonl, line 6 " in page
    assert "<li>grad_norm: 1 values" in page and "<li>kl: 1 values" in page
    (run / "logging.jsonl").write_text("")
    assert "<li>logging.jsonl holds no step" in report(run)


def test_a_run_that_went_on_from_a_checkpoint_has_one_value_a_step(run):
    settings = json.loads((run / "args.json").read_text())
    settings |= {"resume_from_checkpoint": "v0/checkpoint-2", "global_world_size": 4}
    (run / "args.json").write_text(json.dumps(settings))
    last = {"reward": 0.95, "elapsed_time": "6m 37s", "global_step/max_steps": "5/9"}
    append(run, {"reward": 0.9, "global_step/max_steps": "4/5"}, last, '{"reward": 7, "step": NaN}')
    (run / "completions.jsonl").write_text('{"completion": 3}\n')
    page = report(run)
    assert "reward <b>0.100 → 0.950</b>" in page and len(points_of(page, "reward ")) == 5
    assert dict(re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", page)).items() >= {
        ("steps", "5 of 9 in 6m 37s"),
        ("resumed from", "v0/checkpoint-2"),
        ("rewards", "vlrft_detection_iou"),
        ("processes", "4"),
    }


@pytest.mark.slow
def test_examples_are_of_different_kinds(run):
    """Each row once, and of the wrong ones the commonest reasons."""

    def said(*answers):
        return lambda n, query: query.row.solution if answers[n] == "gold" else answers[n]

    empty, small = "<answer>No Objects</answer>", "<answer>[[0, 0, 1, 1]]</answer>"
    for name, answers in {
        "before": ("gold", EVIL, small, small, small, EVIL),
        "after": (EVIL, "gold", empty, empty, small, EVIL),
    }.items():
        shutil.rmtree(run.parent / name)
        settings = Settings(name, run.parent / "set", "detection")
        write_answers(run.parent / name, settings, said(*answers))
    page = report(run, *both(run))
    assert re.findall("<h3>(.*?)</h3>", page) == [
        "Became right",
        "Became wrong",
        "Still wrong: false empty prediction (2 of 6 rows)",
        "Still wrong: low iou (1 of 6 rows)",
        "Still wrong: no answer (1 of 6 rows)",
    ]
    assert sorted(re.findall("row (\\d)", page)) == ["0", "1", "2", "3", "4", "5"]
    # What the first evaluation did not ask is not among them.
    lines = (run.parent / "before" / "predictions.jsonl").read_text().splitlines(keepends=True)
    (run.parent / "before" / "predictions.jsonl").write_text("".join(lines[:3]))
    assert "Still wrong: false empty prediction (1 of 3 rows)" in report(run, *both(run))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("nowhere", "the run nowhere does not exist"),
        ("EMPTY", "no logging.jsonl"),
        ("RUN --eval EMPTY", "predictions.jsonl"),
        ("RUN --eval EMPTY --eval EMPTY --eval EMPTY", "3 evaluations"),
        ("RUN --eval []", "run.json"),
        ('RUN --eval {"settings":[1]}', "run.json"),
        ('RUN --eval {"settings":{"task":"counting"}}', "run.json"),
    ],
)
def test_bad_input(run, tmp_path, arguments, said):
    """What begins with a bracket is written as an evaluation's run.json."""
    (tmp_path / "empty").mkdir()
    *words, last = arguments.split()
    if last[0] in "[{":
        (tmp_path / "after" / "run.json").write_text(last)
        last = str(tmp_path / "after")
    places = {"RUN": str(run), "EMPTY": str(tmp_path / "empty")}
    result = vlrft("report", *(places.get(word, word) for word in (*words, last)))
    assert result.exit_code == 2 and said in " ".join(result.output.split())


def test_an_answer_that_an_alias_accepts_lost_nothing(tmp_path):
    """ms-swift's log has no column aliases, but the score that the run gave."""
    log = {"step": ["1", "1"], "solution": ["ITC Limited"] * 2, "vlrft_ocr": [1.0, 0.0]}
    log["completion"] = ["<answer>ITC</answer>", "<answer>x</answer>"]
    (tmp_path / "completions.jsonl").write_text(json.dumps(log) + "\n")
    append(tmp_path, {"reward": 0.5, "global_step/max_steps": "1/1"})
    assert read_run(tmp_path).reasons == {"vlrft_ocr": {"ok": 1, "wrong_text": 1}}


@pytest.mark.parametrize(
    ("task", "said", "shown", "points"),
    [
        ("pointing", "[[250, 500], [10, 990], [1]]", "1 of 3 points cannot be read", 1),
        ("ocr", "<b> 1", "&lt;b&gt; 1", 0),
    ],
)
def test_points_and_texts_are_shown(task, said, shown, points, run):
    folder = run.parent / task
    rows = [row for row in mixed_rows(random.Random(3), 30) if row.columns["task"] == task]
    write_parquet(rows, folder / "set")
    settings = Settings("model", folder / "set", task)
    write_answers(folder / "out", settings, lambda n, query: f"<answer>{said}</answer>")
    page = report(run, "--eval", str(folder / "out"))
    articles = page.count("<article>")
    assert articles and page.count('class="box answer point"') == 2 * points * articles
    place = "left:25.00%;top:50.00%;width:0.00%;height:0.00%"
    assert page.count(place) == points * articles and shown in page


# ---- curves of any numbers -------------------------------------------------------------------


def test_a_curve_is_smoothed_over_its_raw_line_and_says_its_values():
    values = [n / 40 + 0.1 * (-1) ** n for n in range(40)]
    figure = curve("x", list(enumerate(values, 1)), unit=True)
    begin, end = sum(values[:4]) / 4, sum(values[-4:]) / 4
    assert f"x <b>{begin:.3f} → {end:.3f}</b>" in figure  # as the cards
    assert f">step 40: {values[-1]:.3f}, mean {end:.3f}</text>" in figure
    raw, line = (
        [float(pair.split(",")[1]) for pair in points.split()]
        for points in re.findall(r'class="(?:raw|line)" points="([^"]+)"', figure)
    )
    assert len(raw) == len(line) == 40

    def jumps(heights):
        return sum(abs(a - b) for a, b in pairwise(heights))

    assert jumps(line) < 0.3 * jumps(raw)
    assert re.findall(r'text-anchor="\w+">([\d.]+)</text>', figure) == [
        *("0", "0.25", "0.5", "0.75", "1"),
        *("10", "20", "30", "40"),
    ]


HUGE = 1.7976931348623157e308
NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([HUGE, -HUGE, 1e308, -1e308, 5e-324, -5e-324, 0.0, -0.0, 1e17, 1e17 + 16, 1.0]),
    st.integers(-5, 5).map(float),
)


def drawn_numbers(text: str) -> list[float]:
    """Every coordinate of the figures of a page."""
    of = re.findall(r' (?:points|x|y|x1|x2|y1|y2|cx|cy)="([^"]*)"', text)
    return [float(number) for values in of for number in re.split("[ ,]", values)]


POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12)


@settings(max_examples=50)
@given(POINTS, POINTS, POINTS, POINTS, st.booleans())
@example([(1, 1e308), (2, -1e308)], [], [], [], False)
@example([(1, HUGE), (2, HUGE)], [(1, HUGE), (2, HUGE)], [], [], False)
@example([(0, 1e17), (5e-324, 1e17)], [], [], [], False)
def test_a_curve_of_any_numbers_lies_in_its_frame(points, spread, low, high, unit):
    text = curve("x", points, std=spread, low=low, high=high, unit=unit)
    assert (text == "") == (not [p for p in points if all(abs(v) <= LARGEST for v in p)])
    Strict().feed(text)
    assert all(0 <= number <= 360 for number in drawn_numbers(text))


VALUES = st.one_of(
    NUMBERS,
    st.integers(-(10**400), 10**400),
    st.sampled_from(["0.5", "", None, True, [], {}, [1], "NaN", 10**400]),
)
LOGGED = (
    *("reward", "reward_std", "rewards/vlrft_format/mean", "rewards/vlrft_format/std", "kl"),
    *(f"completions/{which}_length" for which in ("mean", "min", "max")),
    *("grad_norm", "frac_reward_zero_std", "memory/x_gib", "eval_reward", "step"),
)
STEPS = st.one_of(
    st.integers(-3, 4).map(lambda n: f"{n}/4"),
    st.sampled_from(["9" * 400 + "/1", "4/0", "", 3, None, "1e5/2"]),
)
RECORD = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(LOGGED, VALUES) | {"global_step/max_steps": STEPS}
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORD, max_size=6), st.lists(VALUES, max_size=3))
@example([{"reward": v, "kl": -v, "global_step/max_steps": f"{n}/2"}
          for n, v in enumerate([1e308, -1e308, HUGE], 1)], [])  # fmt: skip
@example([{"reward": math.nan, "step": 1}, {"reward": 1e308, "step": 1e308}], [10**400])
def test_a_page_of_any_log_is_written(tmp_path, records, steps):
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    (folder / "logging.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    log = {
        "completion": ["<answer>red</answer>"] * len(steps),
        "solution": ["red"] * len(steps),
        "vlrft_classification": steps,
        "step": steps,
    }
    (folder / "completions.jsonl").write_text(json.dumps(log) + "\n")
    page = report(folder)
    Strict().feed(page)
    assert all(0 <= number <= 360 for number in drawn_numbers(page))


def test_figures_are_written_short():
    written = [short(value) for value in (None, 0, -0.5, 31.24, 5e-5, 1e5)]
    assert written == ["-", "0.000", "-0.500", "31.2", "5.0e-05", "1.0e+05"]
