"""`vlrft report`: one page, strict HTML, all text escaped, pictures and boxes in place."""

import json
import math
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.drawn_rows import boxed_rows, mixed_rows
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.demo.data import write_parquet
from swift_vlrft.evaluation.predictions import Problems
from swift_vlrft.evaluation.queries import QuerySet, Settings
from swift_vlrft.evaluation.run import answer_line, begin, finish, new_part
from swift_vlrft.report.curves import curve, ticks
from swift_vlrft.report.run_log import read_run

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


@pytest.fixture
def run(tmp_path) -> Path:
    """A run's folder as ms-swift leaves it, and two evaluations made on a real data set."""
    folder = tmp_path / "run"
    folder.mkdir()
    args = {"model": "org/model<b>", "reward_funcs": ["vlrft_detection_iou"], "hub_token": "hf_x"}
    (folder / "args.json").write_text(json.dumps(args | {"swanlab_token": "s3", "x": EVIL}))
    with (folder / "logging.jsonl").open("w") as log:
        for step in range(1, 6):
            record = {
                "reward": step / 10,
                "reward_std": 0.1,
                "rewards/vlrft_detection_iou/mean": step / 10,
                "rewards/vlrft_detection_iou/std": 0.2,
                "completions/mean_length": 20 + step,
                "completions/min_length": 10,
                "completions/max_length": 40,
                "frac_reward_zero_std": 0.5,
                "memory/rollout_allocated_gib": 3.0,
                "global_step/max_steps": f"{step}/5",
            }
            log.write(json.dumps(record) + "\n")
        log.write('{"half a line\n')
    gold = "<answer>[{'Position': [0, 0, 500, 500], 'Confidence': 1}]</answer>"
    log = {"completion": [EVIL, gold], "solution": [gold] * 2, "vlrft_detection_iou": [0.0, 1.0]}
    (folder / "completions.jsonl").write_text(json.dumps(log | {"step": ["1", "1"]}) + "\n")
    rows = boxed_rows(random.Random(0), 6)
    write_parquet(rows, tmp_path / "set")
    for name in ("before", "after"):
        out = tmp_path / name
        settings = Settings(f"model-{name}", tmp_path / "set", "detection")
        begin(out, settings)
        with new_part(out).open("a") as part:
            for n, query in enumerate(QuerySet(settings).read(Problems())):
                right = (n % 2 == 0) == (name == "after")
                said = query.row.solution if right else EVIL
                part.write(
                    answer_line(
                        query, said, image_id=str(n), size=(112, 112),
                        tokens=9, finish="stop",
                    )
                )  # fmt: skip
        finish(out, QuerySet(settings))
    return folder


def report(run: Path, *flags: str) -> str:
    target = run.parent / "report.html"
    result = CliRunner().invoke(app, ["report", str(run), "--out", str(target), *flags])
    assert result.exit_code == 0, result.output
    assert target.stat().st_size < 10_000_000
    return target.read_text(encoding="utf-8")


def both(run: Path) -> list[str]:
    return ["--eval", str(run.parent / "before"), "--eval", str(run.parent / "after")]


def test_the_page_is_whole_and_escaped(run):
    page = report(run, *both(run))
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    tags = [tag for tag, _ in parser.tags]
    assert "script" not in tags and "link" not in tags and "b" in tags
    assert not any(name.startswith("on") for _, attributes in parser.tags for name in attributes)
    sources = [attributes["src"] for tag, attributes in parser.tags if tag == "img"]
    assert len(sources) == 6 and all(s.startswith("data:image/png;base64,") for s in sources)
    assert "alert(1)" in page and "&lt;script&gt;" in page
    assert "default-src 'none'" in page and "http" not in page.split("</head>")[0].split("http-")[0]
    assert "width=device-width" in page and "AP by category (1)" in page
    assert "hf_x" not in page and "s3" not in re.sub(r"base64,[^\"]+", "", page)


def test_names_of_metrics_and_reasons_of_a_log_are_escaped(run):
    evil = "<script>alert(1)</script>\"'{{ 7 * 7 }}"
    record = {f"rewards/{evil}/mean": 0.5, f"memory {evil}": 1.0, "global_step/max_steps": "6/6"}
    with (run / "logging.jsonl").open("a") as log:
        log.write("\n" + json.dumps(record) + "\n")
    parser = Strict()
    parser.feed(report(run))
    assert parser.open == [] and "script" not in [tag for tag, _ in parser.tags]
    labels = [attributes.get("aria-label", "") for _, attributes in parser.tags]
    assert any(evil in label for label in labels)


def test_what_changed_is_shown_with_boxes_and_reasons(run):
    page = report(run, *both(run))
    gain, loss = page.split("<h2>Largest gain</h2>")[1].split("<h2>Largest loss</h2>")
    assert gain.count("<article>") == loss.count("<article>") == 3
    assert "0.00 → 1.00" in gain and "1.00 → 0.00" in loss
    assert "no complete answer block" in gain  # the reason that `vlrft score` gives
    assert gain.count('class="box gold"') == 3 and gain.count('class="box after"') == 3
    assert 'class="box before"' not in gain and loss.count('class="box before"') == 3
    # A box is where it is in the picture, in percent.
    rows = boxed_rows(random.Random(0), 6)
    numbers = [int(v) / 10 for v in re.findall(r"\d+", rows[0].solution)[:4]]
    x1, y1, x2, y2 = numbers
    place = f"left:{x1:.2f}%;top:{y1:.2f}%;width:{x2 - x1:.2f}%;height:{y2 - y1:.2f}%"
    assert place in gain
    assert "+3 −3" in page and "paired bootstrap" in page


def test_curves_are_those_of_the_log(run):
    page = report(run)
    assert "<b>0.10 → 0.50</b>vlrft_detection_iou in training" in page
    assert "reward <b>0.1 → 0.5</b>" in page
    assert "completion length <b>21 → 25</b>" in page
    assert "zero-variance groups" in page and "memory/rollout_allocated_gib" in page
    assert "parse rate of vlrft_detection_iou <b>0.5" in page
    assert "no answer<td>1<td>50%" in page
    (figure,) = re.findall(r"<figure><figcaption>vlrft_detection_iou.*?</figure>", page, re.S)
    line = re.search(r'class="line" points="([^"]+)"', figure)[1].split()
    heights = [float(point.split(",")[1]) for point in line]
    assert len(line) == 5 and heights == sorted(heights, reverse=True)  # it rises


def test_a_run_that_went_on_from_a_checkpoint_has_one_value_a_step(run):
    with (run / "logging.jsonl").open("a") as log:
        log.write("\n" + json.dumps({"reward": 0.9, "global_step/max_steps": "4/5"}) + "\n")
        log.write(json.dumps({"reward": 0.95, "global_step/max_steps": "5/5"}) + "\n")
        log.write('{"reward": 7, "step": NaN}\n')
    (run / "completions.jsonl").write_text('{"completion": 3}\n')
    page = report(run)
    assert "reward <b>0.1 → 0.95</b>" in page
    (figure,) = re.findall(r"<figure><figcaption>reward .*?</figure>", page, re.S)
    assert len(re.search(r'class="line" points="([^"]+)"', figure)[1].split()) == 5


def test_text_that_looks_like_our_own_placeholders_stays(run):
    (run / "args.json").write_text(json.dumps({"model": "{body}", "x": "{title}{body}"}))
    page = report(run)
    assert "<title>{body}: 5 steps</title>" in page and "<dd>{title}{body}</dd>" in page


@pytest.mark.parametrize(
    "record", ["[]", '{"settings": [1]}', '{"settings": {"task": "counting"}}']
)
def test_a_run_json_that_is_none_of_ours(run, record):
    (run.parent / "after" / "run.json").write_text(record)
    result = CliRunner().invoke(app, ["report", str(run), *both(run)])
    assert result.exit_code == 2 and "run.json cannot be read" in " ".join(result.output.split())


def test_a_curve_of_one_point_or_a_constant_is_drawn():
    assert "<circle" in curve("x", [(1, 0.5)])
    assert "NaN" not in curve("x", [(1, 0.0), (2, 0.0)]) + curve("x", [(1, -3.0), (2, -3.0)])
    assert len(curve("x", [(n, n % 7) for n in range(10_000)])) < 8_000
    assert ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1.0]


HUGE = 1.7976931348623157e308
NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([HUGE, -HUGE, 1e308, -1e308, 5e-324, -5e-324, 0.0, -0.0, 1e17, 1e17 + 16, 1.0]),
    st.integers(-5, 5).map(float),
)


@given(NUMBERS, NUMBERS)
@example(-1e308, 1e308)
@example(1e17, 1e17 + 16)
@example(0.0, 5e-324)
def test_ticks_are_a_few_round_numbers_within_the_limits(low, high):
    made = ticks(low, high)
    assert made == sorted(set(made)) and len(made) <= 8
    if not low < high or math.isinf(low) or math.isinf(high):
        return
    slack = 1e-6 * (high / 2 - low / 2)
    assert all(low - slack <= value <= high + slack for value in made)
    if high / 2 - low / 2 > max(1e-6 * abs(high), 1e-290):
        assert len(made) >= 3


def drawn_numbers(text: str) -> list[float]:
    """Every coordinate of the figures of a page."""
    of = re.findall(r' (?:points|x|y|x1|x2|y1|y2|cx|cy)="([^"]*)"', text)
    return [float(number) for values in of for number in re.split("[ ,]", values)]


POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12)


@given(POINTS, POINTS, POINTS, POINTS, st.booleans())
@example([(1, 1e308), (2, -1e308)], [], [], [], False)
@example([(1, HUGE), (2, HUGE)], [(1, HUGE), (2, HUGE)], [], [], False)
@example([(0, 1e17), (5e-324, 1e17)], [], [], [], False)
def test_a_curve_of_any_numbers_lies_in_its_frame(points, spread, low, high, unit):
    text = curve("x", points, std=spread, low=low, high=high, unit=unit)
    finite = [p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])]
    assert (text == "") == (not finite)
    Strict().feed(text)
    assert all(0 <= number <= 360 for number in drawn_numbers(text))


VALUES = st.one_of(
    NUMBERS,
    st.integers(-(10**400), 10**400),
    st.sampled_from(["0.5", "", None, True, [], {}, [1], "NaN", 10**400]),
)
RECORD = st.fixed_dictionaries(
    {},
    optional={
        name: VALUES
        for name in (
            *("reward", "reward_std", "rewards/vlrft_format/mean", "rewards/vlrft_format/std"),
            *("completions/mean_length", "completions/min_length", "completions/max_length"),
            *("kl", "grad_norm", "frac_reward_zero_std", "memory/x_gib", "eval_reward", "step"),
        )
    }
    | {
        "global_step/max_steps": st.one_of(
            st.integers(-3, 4).map(lambda n: f"{n}/4"),
            st.sampled_from(["9" * 400 + "/1", "4/0", "", 3, None, "1e5/2"]),
        )
    },
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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


def test_what_is_not_drawn_is_said(run):
    with (run / "logging.jsonl").open("a") as log:
        log.write('{"grad_norm": NaN, "kl": 1e999, "global_step/max_steps": "5/5"}\n')
    page = report(run)
    assert "<li>logging.jsonl, line 6 cannot be read, left out" in page
    assert "<li>grad_norm: 1 values are NaN or infinite, not drawn" in page
    (run / "logging.jsonl").write_text("")
    assert "<li>logging.jsonl holds no step" in report(run)
    assert "<li>kl: 1 values are NaN or infinite, not drawn" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "the run nowhere does not exist"),
        (["EMPTY"], "no logging.jsonl"),
        (["RUN", "--eval", "EMPTY"], "predictions.jsonl cannot be read"),
        (["RUN", *["--eval", "EMPTY"] * 3], "3 evaluations given"),
    ],
)
def test_bad_input(run, tmp_path, arguments, said):
    (tmp_path / "empty").mkdir()
    places = {"RUN": str(run), "EMPTY": str(tmp_path / "empty")}
    result = CliRunner().invoke(app, ["report", *(places.get(a, a) for a in arguments)])
    assert result.exit_code == 2 and said in " ".join(result.output.split())


BROWSER = next(
    (b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None
)


@pytest.mark.skipif(BROWSER is None, reason="no headless browser on this machine")
def test_a_browser_shows_it_on_a_phone_without_a_sideways_scroll(run):
    page = report(run, *both(run))
    # A copy with a line of script says what the browser laid out; the policy goes for it.
    policy = re.search(r'<meta http-equiv="Content-Security-Policy".*?>', page, re.S)[0]
    probe = (
        "<script>onload = () => { document.title = JSON.stringify({"
        "wide: document.documentElement.scrollWidth,"
        "screen: innerWidth,"
        "pictures: [...document.images].filter(i => i.naturalWidth > 0).length,"
        "scripts: document.scripts.length}) }</script>"
    )
    copy = run.parent / "probe.html"
    copy.write_text(page.replace(policy, "").replace("</body>", probe + "</body>"))
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={run.parent / 'profile'}", "--window-size=390,900"),
            *("--virtual-time-budget=3000", f"file://{copy}"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert title, done.stderr[-2000:]
    seen = json.loads(title[1].replace("&quot;", '"'))
    assert seen["pictures"] == 6 and seen["scripts"] == 1  # ours alone
    assert seen["wide"] <= max(seen["screen"], 500)


def test_every_task_of_a_run_has_its_curves(run):
    assert "parse rate of vlrft_detection_iou" in report(run)
    with (run / "logging.jsonl").open("a") as log:
        tasks = {"tasks/ocr/reward": 1.5, "tasks/<b>/c/zero_variance": 0.5}
        log.write("\n" + json.dumps(tasks | {"global_step/max_steps": "6/6"}) + "\n")
    page = report(run)
    assert "parse rate of" not in page  # by task, where there are several
    assert "ocr: reward" in page and "&lt;b&gt;/c: zero-variance groups" in page
    assert "ocr: parse rate" not in page  # not logged


def test_an_answer_that_an_alias_accepts_lost_nothing(tmp_path):
    """ms-swift's log has no column aliases, but the score that the run gave."""
    log = {"step": ["1", "1"], "solution": ["ITC Limited"] * 2, "vlrft_ocr": [1.0, 0.0]}
    log["completion"] = ["<answer>ITC</answer>", "<answer>x</answer>"]
    (tmp_path / "completions.jsonl").write_text(json.dumps(log) + "\n")
    (tmp_path / "logging.jsonl").write_text('{"reward": 0.5, "global_step/max_steps": "1/1"}\n')
    assert read_run(tmp_path).reasons == {"vlrft_ocr": {"ok": 1, "wrong_text": 1}}


@pytest.mark.parametrize("task", ["pointing", "ocr"])
def test_points_and_texts_are_shown(task, run):
    tmp_path = run.parent / task
    rows = [row for row in mixed_rows(random.Random(3), 30) if row.columns["task"] == task]
    write_parquet(rows, tmp_path / "set")
    settings = Settings("model", tmp_path / "set", task)
    begin(tmp_path / "out", settings)
    queries = QuerySet(settings)
    with new_part(tmp_path / "out").open("a") as part:
        for n, query in enumerate(queries.read(Problems())):
            said = f"<answer>{['[[250, 500], [10, 990], [1]]', '<b> 1'][task == 'ocr']}</answer>"
            part.write(answer_line(query, said, image_id=str(n), size=(112, 112)))
    finish(tmp_path / "out", queries)
    page = report(run, "--eval", str(tmp_path / "out"))
    shown = page.count("<article>")
    points = shown if task == "pointing" else 0
    assert shown and page.count('class="box answer point"') == 2 * points
    assert page.count("left:25.00%;top:50.00%;width:0.00%;height:0.00%") == points
    assert "&lt;b&gt; 1" in page if task == "ocr" else "1 of 3 points cannot be read" in page
