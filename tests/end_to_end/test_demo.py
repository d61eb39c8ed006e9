"""`make demo`, as a newcomer runs it."""

import json
import random
import re
from pathlib import Path
from statistics import mean

import pytest
from support.command_line import vlrft

from swift_vlrft.datasets.writer import write_folder
from swift_vlrft.demo.rows import stored
from swift_vlrft.demo.warm_start import write_warm_start
from swift_vlrft.hub.cards import model_files
from swift_vlrft.hub.checkpoint import open_checkpoint
from swift_vlrft.hub.push import staged
from swift_vlrft.report.run_log import read_run
from swift_vlrft.swift_plugin.evaluate import evaluate
from swift_vlrft.tiny.compact import COMPACT
from tests.support.drawn_rows import boxed_rows

pytestmark = [pytest.mark.end_to_end, pytest.mark.nightly, pytest.mark.usefixtures("forked_runs")]


@pytest.mark.parametrize("family", COMPACT)
def test_a_start_model_of_every_family_learns(family, tmp_path):
    write_folder(tmp_path / "set", {"train": map(stored, boxed_rows(random.Random(0), 24))})
    notes = []
    start = tmp_path / "start"
    write_warm_start(
        family, tmp_path / "set", start, steps=12, progress=lambda *of: notes.append(of)
    )
    losses = [float(note.removeprefix("loss ")) for _, note in notes]
    assert len(losses) == 12 and losses[-1] < 0.8 * losses[0]
    assert (start / "model.safetensors").is_file()


def test_spans_in_drawn_clips_learn(tiny_qwen2_5_vl, tmp_path):
    from swift.model import get_processor

    get_processor(str(tiny_qwen2_5_vl))  # whose limits are not those of the demo's model
    result = vlrft("demo", "--task", "clips", "--steps", "30", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "temporal: better" in result.output and "mean_iou" in result.output
    page = (tmp_path / "report.html").read_text()
    assert "became right" in page.lower() and " to 4 s</span>" in page


def test_the_demo_learns(tmp_path):
    result = vlrft("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    said = (
        r"vlrft_classification 0\.\d\d -> [01]\.\d\d, vlrft_format (0\.9\d|1\.00) -> (0\.9\d|1\.00)"
    )
    assert re.search(said + r": sampled answers, \d+ steps, \d+ s in all", result.output)
    assert re.search(r"held-out images \(128 rows\): accuracy 0\.\d\d -> [01]\.\d\d", result.output)
    assert "classification: better" in result.output
    summary = json.loads((tmp_path / "summary.json").read_text())
    of = summary["tasks"]["classification"]
    assert of["first"] <= 0.7 and of["last"] >= 0.8
    # Both rewards weigh: what the format was, it stays, in every tenth of the run.
    weights = json.loads((tmp_path / "grpo" / "args.json").read_text())["reward_weights"]
    assert weights is None or min(weights) > 0  # None: equal
    kept = [v for _, v in read_run(tmp_path / "grpo").series["rewards/vlrft_format/mean"]]
    tenth = len(kept) // 10
    assert min(mean(kept[i : i + tenth]) for i in range(0, 10 * tenth, tenth)) >= 0.9
    assert summary["format"]["last"] == pytest.approx(mean(kept[-tenth:]))
    (held_out,) = of["held_out"]  # the reward says what the accuracy says
    assert held_out["after"] >= max(0.8, held_out["before"] + 0.2)
    assert held_out["difference_95"][0] > 0
    page = (tmp_path / "report.html").read_text()
    assert f"report: {tmp_path}/report.html" in result.output
    assert "data:image/png;base64," in page and "Became right" in page
    assert "vlrft_classification in training" in page and "vlrft_format in training" in page
    # The pages: "vlrft compare runs/demo/eval/before runs/demo/eval/after" and the report
    before, after = (str(tmp_path / "eval" / name) for name in ("before", "after"))
    compared = vlrft("compare", before, after)
    assert compared.exit_code == 0 and "became right" in compared.output
    assert vlrft("report", tmp_path / "grpo", "--eval", before, "--eval", after).exit_code == 0
    # The page on publishing: "vlrft publish runs/demo/grpo"; what would go up answers as before.
    sides = {"before": Path(before), "after": Path(after)}
    files = model_files(open_checkpoint(tmp_path / "grpo"), "hf", "me/shapes", **sides)
    card = files["README.md"].decode()
    assert "| accuracy | 0." in card and str(tmp_path) not in card
    settings = {"engine": "transformers", "batch_size": 64, "dtype": "float32", "max_tokens": 12}
    with staged(files) as folder:
        data, out = tmp_path / "data", tmp_path / "staged"
        evaluate(folder, data, "classification", out=out, split="test", workers=1, **settings)
    answers = [path / "predictions.jsonl" for path in (out, tmp_path / "eval" / "after")]
    assert answers[0].read_text() == answers[1].read_text()
    # Whoever opens the checkpoint's arguments needs no plugin.
    pickled = next((tmp_path / "grpo").glob("checkpoint-*/training_args.bin")).read_bytes()
    assert b"swift.rlhf_trainers" in pickled and b"swift_vlrft.swift_plugin" not in pickled
    # The pages: "vlrft score runs/demo/grpo/completions.jsonl --show 3"
    scored = vlrft("score", tmp_path / "grpo" / "completions.jsonl", "--show", "3")
    assert scored.exit_code in (0, 1) and "vlrft_classification" in scored.output
