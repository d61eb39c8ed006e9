"""A recipe with other flags: the command that `vlrft plan` prints."""

import json
import subprocess
from pathlib import Path

from recipe.bash import write_programs
from support.command_line import vlrft

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
LARGE = (
    f"swift rlhf --rlhf_type grpo --model {MODEL} --reward_funcs x --tuner_type lora "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 2 --num_generations 2 "
    "--max_completion_length 64 --torch_dtype bfloat16 --use_liger_kernel true --padding_free true"
)


def test_a_variable_that_the_script_sets_itself_is_named(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f'export MAX_PIXELS=12845056\n{LARGE} "$@"\n')
    assert "run.sh:1: MAX_PIXELS" in vlrft("plan", path, "--gpus", "1x12").output


def test_a_script_that_does_not_hand_its_arguments_on_is_named(tmp_path):
    path = tmp_path / "run.sh"
    text = (RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh").read_text()
    path.write_text(text.replace(' \\\n    "$@"', ""))
    line = path.read_text().count("\n")
    shown = " ".join(vlrft("plan", path, "--gpus", "4x24").output.split())
    assert f'run.sh:{line}: the script does not pass "$@" on' in shown


def test_what_plan_prints_runs(tmp_path):
    """As it is printed, also for a name with a blank."""
    folder = tmp_path / "my recipes"
    folder.mkdir()
    path, seen = folder / "a run.sh", tmp_path / "seen"
    seen.mkdir()
    path.write_text(f'export MAX_PIXELS=${{MAX_PIXELS:-12845056}}\n{LARGE} "$@"\n')
    write_programs(tmp_path / "bin", ["swift"])
    planned = json.loads(vlrft("plan", path, "--gpus", "1x12", "--json").output)
    change = planned["changes"][0]
    assert not change["problems"]
    here = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "SEEN": str(seen)}
    subprocess.run(["bash", "-c", change["command"]], env=here, cwd="/", check=True, timeout=60)
    (file,) = seen.iterdir()
    for name, value in change["flags"].items():
        given = f"{name}={value}" if name.isupper() else f"--{name}\0{value}\0"
        assert given.encode() in file.read_bytes()
