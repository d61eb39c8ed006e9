"""From a Parquet folder of any name to the reward, and what is said before a model is loaded."""

import hashlib
import json
import random

import pytest
from support.swift_run import SUPPORT, grpo_command, run_swift, run_swift_unchecked

from swift_vlrft.demo.data import write_parquet
from swift_vlrft.demo.tasks import known_task

pytestmark = pytest.mark.end_to_end


def test_gold_image_and_prompt_reach_the_reward_unharmed(tiny_qwen2_5_vl, shapes, rows, tmp_path):
    seen = tmp_path / "seen.jsonl"
    config = tmp_path / "grpo.yaml"
    command = grpo_command(
        *(tiny_qwen2_5_vl, shapes, tmp_path / "out", [SUPPORT / "record.py"]),
        *("--reward_funcs", "record", "vlrft_format", "--max_steps", "2"),
    )
    # The same command as a YAML file, which is how many people keep it.
    config.write_text(json.dumps(as_config(command[2:])))
    yaml_command = ["swift", "rlhf", str(config)]
    run_swift(yaml_command, tmp_path / "out", VLRFT_TEST_RECORD=str(seen))
    got = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(got) == 8  # 2 steps of 4 completions
    by_image = {hashlib.sha256(r.image.convert("RGB").tobytes()).hexdigest(): r for r in rows}
    for sample in got:
        row = by_image[sample["image"]]
        assert sample["solution"] == row.solution
        assert sample["prompt"] == "<image>" + row.problem
        assert (sample["task"], sample["frame"]) == ("classification", None)
    # ms-swift's own log of the run is what `vlrft score` reads.
    log = (tmp_path / "out" / "completions.jsonl").read_text()
    assert "vlrft_format" in log


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


@pytest.mark.parametrize("family", ["qwen2_vl", "glm4v"])
def test_the_other_tiny_families_train(family, shapes, tmp_path):
    from swift_vlrft.tiny import write_tiny

    write_tiny(family, tmp_path / family)
    command = grpo_command(
        *(tmp_path / family, shapes, tmp_path / "out", [SUPPORT / "coin.py"]),
        *("--reward_funcs", "vlrft_format", "coin", "--max_steps", "2", "--save_strategy", "steps"),
    )
    run = run_swift(command, tmp_path / "out")
    assert f"'model_type': '{family}'" in run.output or f"model_type='{family}'" in run.output
    assert all(value > 0 for value in run.metric("grad_norm"))
    assert (tmp_path / "out" / "checkpoint-2" / "model.safetensors").is_file()


def test_bad_input_is_refused_before_a_model_is_looked_for(tmp_path):
    rows = known_task("detection").make(random.Random(0), 4)
    write_parquet(rows, tmp_path / "set")
    command = grpo_command("org/model-that-nobody-has", tmp_path / "set", tmp_path / "out", [])
    done = run_swift_unchecked([*command, "--reward_funcs", "vlrft_detection"], timeout=300)
    assert done.returncode != 0
    assert "swift-vlrft: --reward_funcs vlrft_detection: no reward has this name" in done.stdout
    assert "Traceback" not in done.stdout and "Downloading" not in done.stdout
