"""``vlrft score``: why points are lost, what ruins a run, and the command on people's files."""

import json
import math
from pathlib import Path

import pytest
from support.command_line import vlrft
from support.hostile import answered as answer
from support.written_sets import write_rows as write

from swift_vlrft.diagnostics.reasons import explain
from swift_vlrft.diagnostics.score import score_completions, score_file
from swift_vlrft.files.completions import Completion

GOLD = "<answer>[{'Position': [100, 100, 200, 200], 'Confidence': 1}]</answer>"
RIGHT = "<think>t</think><answer>[{'Position': [100, 100, 200, 200], 'Confidence': 1}]</answer>"


def cases(table):
    """Answers, why points are lost or a run is ruined, and what is said; of GOLD, if no other."""
    return list(map(json.loads, Path(__file__).with_name(f"{table}.jsonl").open()))


def score_rows(rows, names):
    completions = [Completion(str(n), row) for n, row in enumerate(rows, start=1)]
    return score_completions(completions, names)


def score(file, *options):
    result = vlrft("score", file, *options)
    return result.exit_code, result.output


@pytest.mark.parametrize("case", cases("reasons"), ids=lambda case: case["why"])
def test_every_lost_point_has_its_reason(case):
    completion = answer(case["answer"]) if "answer" in case else "no tags"
    reason = explain(f"vlrft_{case['reward']}", completion, case.get("gold", GOLD))
    assert reason.code == case["code"] and case["said"] in reason.text
    assert reason.score is None or reason.score < 1.0


def test_a_full_score_needs_no_reason():
    assert explain("vlrft_detection_iou", RIGHT, GOLD).code == "ok"
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
    summary = report.rewards["vlrft_detection_iou"]
    assert report.rows == 8 and (summary.mean, summary.parse_rate) == (0.75, 0.75)
    assert summary.reasons == {"ok": 6, "not_boxes": 2}
    (of_task,) = report.tasks.values()
    assert (of_task.groups, of_task.zero_variance) == (4, 0.5)
    assert [sample.line for sample in report.samples] == ["1[1]", "2[1]"]
    # A format that is kept is no problem, nor are a few groups.
    assert report.findings == report.flags == []


def test_rows_of_several_tasks_are_routed(tmp_path):
    """By their column task; how a log without it is, says test_by_task.py."""
    names = ["vlrft_detection_iou", "vlrft_classification"]
    classified = {"solution": "A320", "task": "classification", "aliases": ["airbus"]}
    rows = [
        {"completion": RIGHT, "solution": GOLD, "task": "detection"},
        {"completion": answer("Airbus")} | classified,
    ]
    report = score_rows(rows, names)
    assert [(s.mean, s.skipped) for s in report.rewards.values()] == [(1.0, 1), (1.0, 1)]
    assert report.flags == []
    log = {"step": 1, "prompt": ["p", "q"], "completion": [RIGHT, answer("a rose")]}
    log |= {"solution": [GOLD, "a rose"], "vlrft_classification": [0.0, math.nan]}
    report = score_file(write(tmp_path / "alone.jsonl", log), names[1:])
    assert report.rewards["vlrft_classification"].skipped == 0  # no other reward took it


@pytest.mark.parametrize("case", cases("flags"), ids=lambda case: case["why"])
def test_what_ruins_a_run_is_flagged_and_nothing_else(case):
    row = {"completion": answer(case["answer"]), "solution": case.get("gold", GOLD)}
    rows = [row | case.get("more", {})] * case["rows"]
    report = score_rows(rows, ["vlrft_detection_iou"])
    flags = [*map(str, report.findings), *report.flags]
    assert any(case["flag"] in flag for flag in flags) if case["flag"] else flags == []


def test_the_command_prints_means_reasons_and_samples(tmp_path):
    texts = (RIGHT, RIGHT, answer("[100, 100, 200, 141]"), answer("\x1b[31m[red]\ud800"))
    rows = [{"completion": text, "solution": GOLD} for text in texts]
    file = write(tmp_path / "rows.jsonl", *rows)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    code, said = score(file, "--reward", "vlrft_detection_iou", "--show", "5")
    assert code == 0
    for words in ("4 completions", "0.500", "75%", "low iou", "line 3", "best IoU 0.41 under 0.5"):
        assert words in said
    # What a model writes reaches no terminal as control characters.
    assert "[red]" in said and "\x1b[31m" not in said


def test_a_file_that_names_no_reward_is_scored_by_those_of_its_tasks(tmp_path):
    rows = [{"completion": RIGHT, "solution": GOLD, "task": task} for task in ("ocr", "detection")]
    report = score_file(write(tmp_path / "c.jsonl", *rows))
    assert list(report.rewards) == ["vlrft_detection_iou", "vlrft_ocr"]


@pytest.mark.slow
def test_rewards_of_a_plugin_are_asked(tmp_path):
    """With the columns of the rows, all at once, as ms-swift asks."""
    (tmp_path / "mine.py").write_text(
        "from swift.rewards import ORM, orms\n"
        "class Half(ORM):\n"
        "    def __call__(self, completions, solution, **columns):\n"
        "        return [{'x': None, 'y': True}.get(s, 0.5) for s in solution]\n"
        "orms['half_own'] = Half\n"
        "orms['failing_own'] = lambda args=None: lambda completions, **columns: 1 / 0\n"
    )
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "taken.py").write_text("from swift.rewards import orms\norms['vlrft_format'] = 1\n")
    rows = [{"completion": RIGHT, "solution": gold} for gold in (GOLD, "x", "y")]
    file, plugin = write(tmp_path / "c.jsonl", *rows), str(tmp_path / "mine.py")
    names = ("--reward", "half_own", "--reward", "vlrft_format")
    code, said = score(file, *names, "--json", *("--external_plugins", plugin) * 2)
    half, whole = json.loads(said)["rewards"].values()
    assert code == 0 and (half["mean"], half["scored"], half["skipped"]) == (0.75, 2, 1)
    assert whole["mean"] == 1.0
    for more, named in (
        (("--reward", "failing_own", "--external_plugins", plugin), "failing_own: this reward"),
        (("--reward", "none", "--external_plugins", plugin), "known: half_own, failing_own"),
        (("--external_plugins", str(tmp_path / "broken.py")), "broken.py: line 1: "),
        (("--external_plugins", str(tmp_path / "taken.py")), "registers vlrft_format"),
        (("--external_plugins", str(tmp_path / "no.py")), "no.py"),
        ((plugin,), "unexpected extra"),
    ):
        code, said = score(file, *more)
        assert code == 2 and named in said.replace("\n", "") and "Traceback" not in said


@pytest.mark.parametrize("case", cases("exits"))
def test_exit_codes_tell_a_ruined_run_from_a_file_that_cannot_be_used(tmp_path, case):
    file, reward = tmp_path / "c.jsonl", case["reward"]
    if case["text"] is not None:
        file.write_text(case["text"])
    ended, said = score(file, *(["--reward", reward] if reward else []))
    assert ended == case["code"] and case["named"] in said.replace("\n", "")
    assert "Traceback" not in said
