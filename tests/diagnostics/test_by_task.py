"""Figures by task in `vlrft score`."""

import json
import statistics

from hypothesis import given
from hypothesis import strategies as st
from support.command_line import vlrft
from support.hostile import answered as answer

from swift_vlrft.diagnostics.score import score_completions, score_file
from swift_vlrft.files.completions import Completion

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "task": st.sampled_from(["ocr", "grounding", ""]),
            "prompt": st.sampled_from([None, "a", "b", "c"]),
            "value": st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0])),
            "completion": st.integers(0, 9).map("x".__mul__),
        }
    ),
    min_size=1,
    max_size=30,
)


@given(ROWS)
def test_figures_are_those_of_numbers_put_side_by_side(rows):
    own = {"mine": lambda completions, value, **columns: value}
    lines = [Completion(str(n), row) for n, row in enumerate(rows)]
    figures = score_completions(lines, ["mine"], own=own).tasks
    assert set(figures) == {row["task"] for row in rows}
    assert abs(sum(of.share for of in figures.values()) - 1) < 1e-9
    for task, of in figures.items():
        mine = [row for row in rows if row["task"] == task]
        lengths = [len(row["completion"]) for row in mine]
        assert of.completions == len(mine) and of.length == statistics.mean(lengths)
        scored = [row["value"] for row in mine if row["value"] is not None]
        assert of.reward == (statistics.mean(scored) if scored else None)
        constant = []
        for prompt in {row["prompt"] for row in mine} - {None}:
            of_group = [r["value"] for r in mine if r["prompt"] == prompt]
            of_group = [value for value in of_group if value is not None]
            if len(of_group) > 1:
                constant.append(statistics.pstdev(of_group) == 0)
        assert of.groups == len(constant)
        assert of.zero_variance == (statistics.mean(constant) if constant else None)


def logged(step, tasks):
    """A step of ms-swift's log: two prompts of four answers each."""
    nan = float("nan")
    columns = {
        "step": [str(step)] * 8,
        "prompt": ["read"] * 4 + ["count"] * 4,
        "completion": [answer(t) for t in ("Gate 7", "Gate 1", "Gate 7", "Gate 7")]
        + [answer("3"), answer("3"), answer("3"), "no tags"],
        "vlrft_ocr": [1.0, 5 / 6, 1.0, 1.0] + [nan] * 4,
        "vlrft_counting": [nan] * 4 + [0.0] * 4,
        "solution": ["Gate 7"] * 4 + ["4"] * 4,
    }
    return columns | ({"task": ["ocr"] * 4 + ["counting"] * 4} if tasks else {})


def test_vlrft_score_tells_tasks_apart(tmp_path):
    for tasks in (True, False):  # ms-swift alone logs no task; the scores tell it
        path = tmp_path / f"{tasks}.jsonl"
        path.write_text("".join(json.dumps(logged(n, tasks)) + "\n" for n in (1, 2)))
        report = score_file(path)
        ocr, counting = report.tasks["ocr"], report.tasks["counting"]
        assert (ocr.completions, ocr.share, ocr.groups, ocr.zero_variance) == (8, 0.5, 2, 0.0)
        assert ocr.parse_rate == 1.0 and 0.95 < ocr.reward < 0.97
        assert (counting.reward, counting.zero_variance, counting.parse_rate) == (0.0, 1.0, 0.75)
        said = vlrft("score", path).output
        assert "by task" in said and "counting" in said.split("by task")[1].split("why")[0]
        result = vlrft("score", path, "--json")
        assert json.loads(result.stdout)["tasks"]["counting"]["zero_variance"] == 1.0
