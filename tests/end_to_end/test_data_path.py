"""From a Parquet folder of any name to the reward, and what is said before a model is loaded."""

import hashlib
import json
import random
import re

import pytest
from support.drawn_rows import boxed_rows
from support.swift_run import SUPPORT, grpo_command, run_command, run_swift
from support.written_sets import write_rows

from swift_vlrft.demo.rows import colour_rows, stored
from tests.support.parquet import write_parquet

pytestmark = pytest.mark.end_to_end


def mixed_sets(folder):
    """Detection saved by save_to_disk, classification in Parquet, grounding as ms-swift's own rows:
    three rows each, by the digest of their picture, and one of the first whose picture is broken.
    """
    from datasets import Dataset

    detection = boxed_rows(random.Random(1), 3)
    bad = {"image": {"bytes": b"no", "path": None}, "problem": "?", "solution": "[]"}
    made = [*map(stored, detection), bad]  # one box: a grounding reward would read it, too
    Dataset.from_list([row | {"task": "detection"} for row in made]).save_to_disk(folder / "boxes")
    colours = colour_rows(random.Random(2), 3)
    write_parquet(colours, folder / "colours")
    phrases = boxed_rows(random.Random(3), 3)
    lines = []
    for i, row in enumerate(phrases):
        row.image.save(folder / f"{i}.png")
        objects = {"ref": [f"shape, number {i}"], "bbox": [[v * 112 // 1000 for v in box_of(row)]]}
        turns = [
            ("user", "<image>Where is the <ref-object>, as [x1, y1, x2, y2]? In <answer>."),
            ("assistant", "<bbox>"),
        ]
        messages = [{"role": role, "content": text} for role, text in turns]
        line = {"messages": messages, "images": [f"{i}.png"], "objects": objects}
        lines.append(line | {"task": "grounding"})
    write_rows(folder / "phrases.jsonl", *lines)
    rows = {"detection": detection, "classification": colours, "grounding": phrases}
    return {digest(row): (task, row) for task, found in rows.items() for row in found}


def box_of(row):
    return [int(v) for v in re.findall(r"\d+", row.solution)[:4]]


def digest(row):
    return hashlib.sha256(row.image.convert("RGB").tobytes()).hexdigest()


def test_three_tasks_in_three_forms_train_in_one_run(tiny_qwen2_5_vl, tmp_path):
    by_image = mixed_sets(tmp_path)
    seen = tmp_path / "seen.jsonl"
    sets = [f"{tmp_path}/boxes:pixels", f"{tmp_path}/colours", f"{tmp_path}/phrases.jsonl"]
    rewards = ("vlrft_detection_iou", "vlrft_grounding_iou", "vlrft_classification", "vlrft_format")
    command = grpo_command(
        *(tiny_qwen2_5_vl, sets[0], tmp_path / "out", "--dataset", *sets),
        *("--reward_funcs", "record", *rewards, "--max_steps", "1", "--num_generations", "2"),
        *("--per_device_train_batch_size", "6", "--gradient_accumulation_steps", "3"),
        plugins=[SUPPORT / "record.py"],
    )
    # The same command as a YAML file, which is how many people keep it.
    config = tmp_path / "grpo.yaml"
    config.write_text(json.dumps(as_config(command[2:])))
    variables = {"VLRFT_TEST_RECORD": str(seen), "MAX_PIXELS": "9408"}
    run = run_swift(["swift", "rlhf", str(config)], tmp_path / "out", **variables)
    assert "1 bad rows are left out" in run.output and "row 3: the image" in run.output
    got = [json.loads(line) for line in seen.read_text().splitlines()]
    assert {sample["image"] for sample in got} == set(by_image)  # every row but the broken one
    for sample in got:
        task, row = by_image[sample["image"]]
        assert sample["task"] == task
        box = box_of(row) if task != "classification" else []
        if task == "detection":
            # 112 x 112 under MAX_PIXELS 9408 is seen as 84 x 84, quarters of it 21 apart.
            scaled = [v // 250 * 21 for v in box]
            assert sample["solution"] == row.solution.replace(str(box), str(scaled))
            assert "in pixels, x from 0 to 84 and y from 0 to 84" in sample["prompt"]
            assert sample["frame"] == "pixels"
        elif task == "grounding":
            assert sample["solution"] == str(box) and "Where is the shape, nu" in sample["prompt"]
            assert sample["frame"] == "norm1000" and "between 0 and 1000" in sample["prompt"]
        else:
            assert (sample["solution"], sample["frame"]) == (row.solution, None)
            assert sample["prompt"] == "<image>" + row.problem
    # Every task's reward scored its own rows; ms-swift's own log is what `vlrft score` reads.
    for name in rewards:
        assert any(f"rewards/{name}/mean" in step for step in run.steps), name
    assert "vlrft_format" in (tmp_path / "out" / "completions.jsonl").read_text()


def as_config(flags: list[str]) -> dict[str, object]:
    values: dict[str, list[str]] = {}
    for flag in flags:
        if flag.startswith("--"):
            name = flag[2:]
            values[name] = []
        else:
            values[name].append(flag)
    several = ("external_plugins", "reward_funcs", "dataset")
    return {k: v if k in several else v[0] for k, v in values.items()}


def test_bad_input_is_refused_before_a_model_is_looked_for(tmp_path):
    """The tutorial's set, whose prompts ask for no answer block, and a name that no reward has."""
    boxed_rows(random.Random(0), 1)[0].image.save(tmp_path / "0.png")
    row = {"image": "0.png", "question": "Which flower is this?", "answer": "rose"}
    data = write_rows(tmp_path / "set.jsonl", *[row] * 4)
    named = ["--columns", '{"question": "problem", "answer": "solution"}', "--reward_funcs"]
    named += ["vlrft_classification", "vlrft_format", "vlrft_detection"]
    model = "org/model-that-nobody-has"
    done = run_command(grpo_command(model, data, tmp_path / "out", *named))
    assert done.returncode != 0
    assert "swift-vlrft: --reward_funcs vlrft_detection: no reward has this name" in done.stdout
    asked = r"4 of 4 prompts never ask for <answer>.*add --system 'First think in <think> </think>,"
    assert re.search(asked, done.stdout)
    assert "Traceback" not in done.stdout
