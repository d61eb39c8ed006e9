"""A recipe's name and flags behind it, as `vlrft plan` and `check` take them."""

import json

import pytest
from support.command_line import vlrft

NAME = "qwen2_5_vl_3b/detection_4x80g"


def test_a_name_and_flags_are_planned_as_bash_runs_them():
    words = ["plan", NAME, "--per_device_train_batch_size", "1", "--gpus", "4x24"]
    made = json.loads(vlrft(*words, "--json").stdout)
    plain = json.loads(vlrft("plan", NAME, "--gpus", "4x24", "--json").stdout)
    assert made["phases"]["forward"] != plain["phases"]["forward"]
    first = made["changes"][0]["command"]
    assert f"{NAME}.sh --per_device_train_batch_size 1 --move_model_batches 16" in first


def test_check_takes_a_name_and_flags():
    assert json.loads(vlrft("check", NAME, "--json").stdout)["findings"] == []
    found = json.loads(vlrft("check", NAME, "--num_generations", "5", "--json").stdout)
    assert any("num_generations" in one["text"] for one in found["findings"])


def test_flags_of_a_configuration_come_last(tmp_path):
    (tmp_path / "a.yaml").write_text("rlhf_type: grpo\nmodel: m\nreward_funcs: format\nbeta: 0.1\n")
    found = json.loads(vlrft("check", tmp_path / "a.yaml", "--beta", "no", "--json").stdout)
    assert any("--beta no" in one["text"] for one in found["findings"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", NAME, "--gpu", "4x24"], "--gpus"),
        (["plan", NAME, "--max_lenght", "1"], "--max_length"),
        (["check", NAME, "--fxi"], "--fix"),
        (["plan", "--max_length", "1", NAME], "come after"),
        (["plan", NAME, "stray"], "stray"),
        (["check", NAME, NAME, "--beta", "0"], "single recipe"),
        (["plan", "qwen2_5_vl_3b/detection_4x24g"], NAME),
        (["plan", NAME, "--dataset", "/no/such"], "--dataset /no/such"),
        (["plan", NAME, "--gpus", "lots"], "--gpus lots"),
    ],
)
def test_what_is_mistyped_is_refused_in_one_line(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = vlrft(*words)
    assert done.exit_code == 2 and said in done.output, done.output
    assert len(done.output.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_flags_that_a_script_does_not_pass_on_are_refused(tmp_path):
    (tmp_path / "run.sh").write_text("swift rlhf --rlhf_type grpo --model m --reward_funcs x\n")
    for command in ("check", "plan"):
        done = vlrft(command, tmp_path / "run.sh", "--beta", "0")
        assert done.exit_code == 2 and 'does not pass "$@" on' in done.output


def test_a_path_that_exists_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen2_5_vl_3b").mkdir()
    (tmp_path / NAME).write_text("echo nothing\n")
    assert "no `swift" in vlrft("plan", NAME).output
