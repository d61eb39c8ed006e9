"""A recipe with other flags: what `vlrft plan` prints and `vlrft recipe apply` writes."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from recipe.bash import write_programs
from recipe.test_fix import bash as bash  # the fixture
from recipe.test_fix import invoke, parted

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
CALLER = {"NODE_RANK": "0", "MASTER_ADDR": "a", "DATASET": "/data/mine:pixels"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("qwen2_5_vl_3b/detection_server_6+2x80g.sh", "6x16"),
        ("qwen3_vl_4b/mixed_4x80g.sh", "4x24"),
        ("qwen2_5_7b/text_4x80g.sh", "4x16"),
    ],
)
def test_what_apply_writes_is_what_was_planned(name, gpus, tmp_path, bash, monkeypatch):
    """The script plans as promised, says where it came from, and bash runs it as meant."""
    path, out = RECIPES / name, tmp_path / "out.sh"
    for variable, value in CALLER.items():
        monkeypatch.setenv(variable, value)
    variables = CALLER | ({"CALLS": "2"} if "server" in name else {})
    cards = ["--gpus", gpus]
    promised = json.loads(invoke("recipe", "apply", path, out, *cards, "--json").output)
    again = json.loads(invoke("plan", out, *cards, "--json").output)
    assert again["verdict"] == promised["verdict"] != "out of memory"
    assert again["peak_gib"] == promised["peak_gib"]
    (before, *_), (after, *_) = bash(path, variables), bash(out, variables, ["--seed", "7"])
    assert len(before) == len(after)
    flags = {name: [value] for name, value in promised["flags"].items() if not name.isupper()}
    for old, new in zip(before, after, strict=True):
        _, given = parted(old.words)
        trains = old.words[0] != "rollout"
        assert parted(new.words)[1] == given | (flags | {"seed": ["7"]} if trains else {})
        variables = {n: v for n, v in promised["flags"].items() if n.isupper()}
        assert {**old.environment, **variables} == new.environment
    lines = out.read_text().splitlines()
    assert "changed for" in lines[1] and "DATASET=/data/mine:pixels" in lines[1]
    assert len({*path.read_text().splitlines()} - {*lines}) <= len(flags)
    assert out.stat().st_mode & 0o100


def test_apply_writes_nothing_where_nothing_is_to_change(tmp_path):
    out = tmp_path / "out.sh"
    path = RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    for gpus in ("4x80", "4x2"):  # it fits as it is; no change is enough
        done = invoke("recipe", "apply", path, out, "--gpus", gpus)
        assert done.exit_code and not out.exists(), done.output


def test_apply_onto_a_file_keeps_what_was_there(tmp_path):
    path = RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    out = tmp_path / "mine.sh"
    out.write_text("# by hand\n")
    done = invoke("recipe", "apply", path, out, "--gpus", "4x24")
    assert (tmp_path / "mine.sh.orig").read_text() == "# by hand\n"
    assert "mine.sh.orig" in done.output and "--move_model_batches 16" in out.read_text()


MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
LARGE = (
    f"swift rlhf --rlhf_type grpo --model {MODEL} --reward_funcs x --tuner_type lora "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 2 --num_generations 2 "
    "--max_completion_length 64 --torch_dtype bfloat16 --use_liger_kernel true --padding_free true"
)


@pytest.mark.parametrize(
    ("first", "out", "said"),
    [
        ("export MAX_PIXELS=12845056", "out.sh", "run.sh:1: MAX_PIXELS"),
        ("export MAX_PIXELS=${MAX_PIXELS:-12845056}", "out.yaml", "*.sh"),
        ("export MAX_PIXELS=${MAX_PIXELS:-12845056}", "run.sh", "another name"),
    ],
)
def test_what_stands_against_it_is_named(first, out, said, tmp_path):
    path = tmp_path / "run.sh"
    text = f'{first}\n{LARGE} "$@"\n'
    path.write_text(text)
    done = invoke("recipe", "apply", path, tmp_path / out, "--gpus", "1x12")
    assert done.exit_code == 2 and said in done.output and "Traceback" not in done.output
    assert [file.name for file in tmp_path.iterdir()] == ["run.sh"] and path.read_text() == text
    planned = invoke("plan", path, "--gpus", "1x12").output
    assert out != "out.sh" or said in planned


def test_a_script_that_does_not_hand_its_arguments_on_is_named(tmp_path):
    """By `plan`, whose command needs that; `apply` writes the flags into the text."""
    path, out = tmp_path / "run.sh", tmp_path / "out.sh"
    text = (RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh").read_text()
    path.write_text(text.replace(' \\\n    "$@"', ""))
    line = path.read_text().count("\n")
    shown = " ".join(invoke("plan", path, "--gpus", "4x24").output.split())
    assert f'run.sh:{line}: the script does not pass "$@" on' in shown
    assert invoke("recipe", "apply", path, out, "--gpus", "4x24").exit_code == 0
    assert out.read_text().endswith(" \\\n    --move_model_batches 16\n")


def test_what_apply_writes_keeps_comments_and_replaces_values(tmp_path):
    path, out = tmp_path / "run.sh", tmp_path / "out.sh"
    path.write_text(f'#!/bin/bash\n#SBATCH -N 1\n{LARGE} --max_pixels 12845056 "$@" > log\n')
    more = ("--gpus", "1x12", "--max_completion_length", "32")
    assert invoke("recipe", "apply", path, out, *more).exit_code == 0
    lines = out.read_text().splitlines()
    assert (lines[0], lines[2]) == ("#!/usr/bin/env bash", "#SBATCH -N 1")
    assert "--max_completion_length 32 --" in lines[-1] + lines[-2]
    assert "length 64" not in out.read_text() and out.read_text().endswith('"$@" > log\n')


def test_what_plan_prints_runs(tmp_path):
    """As it is printed, also for a name with a blank; and the written script from anywhere."""
    folder = tmp_path / "my recipes"
    folder.mkdir()
    path, seen = folder / "a run.sh", tmp_path / "seen"
    seen.mkdir()
    path.write_text(f'export MAX_PIXELS=${{MAX_PIXELS:-12845056}}\n{LARGE} "$@"\n')
    write_programs(tmp_path / "bin", ["swift"])
    cards = ["--gpus", "1x12"]
    changes = json.loads(invoke("plan", path, *cards, "--json").output)["changes"]
    assert not changes[0]["problems"]
    out = tmp_path / "out.sh"
    assert invoke("recipe", "apply", path, out, *cards).exit_code == 0
    here = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SEEN": str(seen)}
    for command in (changes[0]["command"], f"bash {shlex.quote(str(out))}"):
        subprocess.run(["bash", "-c", command], env=here, cwd="/", check=True, timeout=60)
    first, second = (file.read_bytes() for file in seen.iterdir())
    words = [text.split(b"\1\0")[0] for text in (first, second)]
    assert words[0] == words[1]
    assert (b"MAX_PIXELS=12845056" in first) == (b"MAX_PIXELS=12845056" in second)
    for name, value in changes[0]["flags"].items():
        given = f"{name}={value}" if name.isupper() else f"--{name}\0{value}\0"
        assert given.encode() in first


def test_a_configuration_is_run_with_flags_behind_it(tmp_path):
    path, out = tmp_path / "a.yaml", tmp_path / "out.sh"
    words = LARGE.split()[2:]
    flags = zip(words[::2], words[1::2], strict=True)
    text = "".join(f"{name.removeprefix('--')}: {value}\n" for name, value in flags)
    path.write_text(text + "max_pixels: 12845056\n")
    done = invoke("recipe", "apply", path, out, "--gpus", "1x12")
    assert done.exit_code == 0, done.output
    lines = out.read_text().splitlines()
    assert lines[2:] == ["export MAX_PIXELS=602112", f'exec swift rlhf {path} "$@"']
    assert (
        json.loads(invoke("plan", out, "--gpus", "1x12", "--json").output)["verdict"]
        != "out of memory"
    )
