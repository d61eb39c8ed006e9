"""`vlrft resume` gives the commands with which a run goes on, or says why there are none."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from files.test_checkpoints import files
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.families.resize import RESOLUTION
from swift_vlrft.files.environment import VARIABLES
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.record import (
    FILE,
    earlier_checkpoints,
    kept_variables,
    record,
    record_of_run,
    write_record,
)

OLD, NEW = "v9-20261122-101500", "v10-20261122-191500"
SWIFT = "/venv/lib/python3.12/site-packages/swift/cli/rlhf.py"
NODES = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "$(false)}'", "MASTER_PORT": "29500"}
ODD = ["--system", 'Say "red" for $5; a\\b, don\'t!\n<é>', "--model_kwargs", '{"a": [1, "b c"]}']
ODD += ["--control", "\x1b[1m'\"\\\u200b", "--bytes", os.fsdecode(b"\xff.jpg"), "--lr=-1e-3"]


@pytest.fixture(autouse=True)
def no_variable_of_this_machine(monkeypatch):
    for name in kept_variables(os.environ):
        monkeypatch.delenv(name)


def make_run(folder: Path, *flags, steps=(2, 4), of=6, script=SWIFT, gpus=0, ref=None, **changes):
    """What a run leaves: a folder with checkpoints, ms-swift's args.json and our resume.sh."""
    folder.mkdir(parents=True)
    (folder / "args.json").write_text("{}")
    variables = {name: changes.pop(name) for name in [*changes] if name.isupper()}
    words = ["--rlhf_type", "grpo", "--output_dir", str(folder.parent), *flags]
    kept = record([script, *words], variables, gpus=gpus, ref_model=ref)
    kept.pid = 2**22 + 1  # above the largest number of a process
    write_record(folder, kept)
    change(folder, **changes)
    for step in steps:
        make_checkpoint(folder / f"checkpoint-{step}", step, of)
    return folder


def make_checkpoint(folder: Path, step: int, of: int) -> None:
    folder.mkdir()
    for name, content in files().items():
        (folder / name).write_bytes(content)
    state = {"global_step": step, "max_steps": of}
    (folder / "trainer_state.json").write_text(json.dumps(state))


def change(run: Path, **values) -> None:
    kept = record_of_run(run)
    for name, value in values.items():
        setattr(kept, name, value)
    write_record(run, kept)


def resume(folder, *options):
    return CliRunner().invoke(app, ["resume", str(folder), *options])


def test_bash_runs_what_was_started(tmp_path):
    """A `swift` that writes down how it was called; in a locale without é, too."""
    run = make_run(tmp_path / "out put" / OLD, "--seed", "1", *ODD, MAX_PIXELS="1 2'3", **NODES)
    shown = resume(tmp_path / "out put")
    assert shown.exit_code == 0 and "step 4 of 6" in shown.stderr
    assert json.loads(resume(run, "--json").stdout)["text"].strip() == shown.stdout.strip()
    values = " ".join(f'"${name}"' for name in ("PWD", "MAX_PIXELS", *NODES))
    stub = tmp_path / "swift"
    stub.write_text(f'#!/bin/sh\nprintf "%s\\0" {values} "$@"\n')
    stub.chmod(0o755)
    given = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "NODE_RANK": "1"}
    go_on = ["--resume_from_checkpoint", str(run / "checkpoint-4")]
    words = ["rlhf", "--rlhf_type", "grpo", "--output_dir", str(run.parent), "--seed", "1", *ODD]
    called = [os.getcwd(), "1 2'3", *(NODES | {"NODE_RANK": "1"}).values(), *words, *go_on]
    for command, text in (([], shown.stdout), ([run / FILE, *go_on], "")):
        for locale in ("C", "C.UTF-8"):
            done = subprocess.run(
                ["bash", *command], input=text.encode(), env=given | {"LC_ALL": locale}, stdout=-1
            )
            assert done.stdout.split(b"\0")[:-1] == list(map(os.fsencode, called))
    alone = subprocess.run([run / FILE], env=given, capture_output=True)  # it is executable
    assert alone.returncode and b"--resume_from_checkpoint" in alone.stderr


def test_run_has_no_variable_that_the_run_did_not_have(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "execvpe", lambda *given: calls.append(given))
    monkeypatch.setenv("MAX_PIXELS", "5")
    monkeypatch.setenv("NODE_RANK", "1")
    monkeypatch.setenv("NNODES", "2")
    shown = resume(make_run(tmp_path / OLD, **NODES), "--run")
    assert "unset MAX_PIXELS" in shown.stderr and "NODE_RANK" in shown.stderr
    ((program, words, here),) = calls
    assert program == "bash" and f"{tmp_path / OLD}/checkpoint-4" in words[-1]
    assert here["NODE_RANK"] == "1" and "MAX_PIXELS" not in here and here["HOME"]


def test_which_checkpoint(tmp_path):
    old = make_run(tmp_path / OLD, steps=(2, 10), of=20)
    assert f"{old}/checkpoint-10" in resume(tmp_path).stdout
    assert f"{old}/checkpoint-2" in resume(old / "checkpoint-2").stdout  # the user's choice
    (old / "checkpoint-10" / "trainer_state.json").unlink()
    shown = resume(old / "checkpoint-10")
    assert shown.exit_code == 2 and "checkpoint-10 is not complete" in shown.stderr
    shown = resume(old)
    assert f"{old}/checkpoint-2" in shown.stdout
    assert "checkpoint-10 is not complete: trainer_state.json" in shown.stderr
    # Begun from that one and killed before it had one of its own; flags of the newest count.
    begun = ["--resume_from_checkpoint", str(old / "checkpoint-2"), "--seed", "7"]
    new = make_run(tmp_path / NEW, *begun, steps=())
    (tmp_path / "v11-20261122-201500").mkdir()  # ended while its model was loaded
    shown = resume(tmp_path)
    assert shown.stdout.count("--resume_from_checkpoint") == 1 and "--seed 7" in shown.stdout
    assert f"{old}/checkpoint-2" in shown.stdout and "v11-20261122-201500" in shown.stderr
    make_checkpoint(new / "checkpoint-4", 4, 20)
    (new / "last-checkpoint").symlink_to("checkpoint-4")  # ms-swift's
    for folder in (tmp_path, new / "last-checkpoint"):
        assert f"{new}/checkpoint-4" in resume(folder).stdout


def test_checkpoints_of_an_earlier_run_in_the_folder_are_not_gone_on_from(tmp_path):
    """--add_version false: what it began beside is not its own, until it writes it over."""
    run = make_run(tmp_path / "out", "--add_version", "false")
    change(run, earlier=earlier_checkpoints(run, 0))  # as one that begins anew
    shown = resume(run)
    assert shown.exit_code == 3 and "made checkpoint-2, checkpoint-4" in shown.stderr
    shutil.rmtree(run / "checkpoint-2")
    make_checkpoint(run / "checkpoint-2", 2, 6)
    shown = resume(run)
    assert f"{run}/checkpoint-2" in shown.stdout and "made checkpoint-4" in shown.stderr
    change(run, earlier=earlier_checkpoints(run, 2))  # as one that went on from checkpoint-2
    assert f"{run}/checkpoint-2" in resume(run).stdout


@pytest.mark.parametrize(
    ("options", "broken", "code", "said"),
    [
        ({"steps": ()}, (), 3, "--save_steps"),
        ({"steps": (), "ended": 6}, (), 2, "ended after step 6"),
        ({}, (2, 4), 3, "checkpoint-4 is not complete: trainer_state.json"),
        ({"script": "/usr/bin/ipython"}, (), 2, "not started by `swift`"),
        ({"WORLD_SIZE": "2"}, (), 2, "not started by `swift`"),
        ({"pid": os.getpid(), "started": record([""], {}, gpus=0).started}, (), 2, "running"),
    ],
    ids=["no checkpoint", "ended", "half a checkpoint", "not of swift", "torchrun", "running"],
)
def test_nothing_to_go_on_from(options, broken, code, said, tmp_path):
    run = make_run(tmp_path / OLD, **options)
    for step in broken:
        (run / f"checkpoint-{step}" / "trainer_state.json").unlink()
    shown = resume(tmp_path)
    assert shown.exit_code == code and said in shown.stderr and shown.stdout == ""


def test_folders_that_are_no_runs(tmp_path):
    run = make_run(tmp_path / "out" / OLD)
    for folder, said in ((tmp_path / "none", "none"), (tmp_path, "args.json")):
        shown = resume(folder)
        assert shown.exit_code == 3 and said in shown.stderr
    for text in ("{", "1\n2\n# {}\n"):
        (run / FILE).write_text(text)
        shown = resume(run)
        assert shown.exit_code == 2 and FILE in shown.stderr
    (run / FILE).unlink()  # of a run without our plugin, or of an older one
    (run / "vlrft_run.json").write_text("{}")
    shown = resume(run)
    assert shown.exit_code == 2 and f"--resume_from_checkpoint {run}/checkpoint-4" in shown.stderr
    assert "has no resume.sh" in shown.stderr


def test_a_run_that_has_ended(tmp_path):
    make_run(tmp_path / OLD, steps=(4, 6))
    shown = resume(tmp_path, "--run")
    assert shown.exit_code == 0 and "step 6 of 6" in shown.stderr and not shown.stdout
    assert json.loads(resume(tmp_path, "--json").stdout)["ended"] is True
    assert resume(tmp_path / OLD / "checkpoint-4").stdout  # from an earlier one all the same


def test_what_changes_a_picture_is_kept():
    names = ["HD_NUM", "NUM_FRAMES", "ENABLE_THINKING", "IMAGE_AREA", *RESOLUTION, *VARIABLES]
    assert kept_variables(dict.fromkeys(names, "1")).keys() == {*names}
    others = ("MASTER_PORT", "RANK", "HF_TOKEN", "SWIFT_CONFIG_FILE", "IMAGE_COUNT")
    assert not kept_variables(dict.fromkeys(others, "1"))


def test_what_is_gone_or_was_other(tmp_path, monkeypatch):
    data, folder = tmp_path / "a set", tmp_path / "work"
    data.mkdir()
    folder.mkdir()
    monkeypatch.chdir(folder)
    run = make_run(tmp_path / OLD, "--dataset", "../a set:native#100", "hub/set")
    assert resume(run).exit_code == 0
    monkeypatch.chdir(tmp_path)
    data.rmdir()
    folder.rmdir()
    change(run, versions=record_of_run(run).versions | {"ms-swift": "4.5.3"})
    for option in ((), ("--json",), ("--run",)):  # which starts nothing
        shown = resume(run, *option)
        assert shown.exit_code == 1 and "ms-swift was 4.5.3" in shown.output
        assert f"--dataset {data}" in shown.output and f"cd {folder}" in shown.output


@pytest.mark.parametrize(
    ("used", "visible", "here", "code", "said"),
    [
        (4, None, 4, 0, "CUDA_VISIBLE_DEVICES=0,1,2,3"),  # as many as it saw
        (4, None, 2, 1, "4 GPUs"),
        (2, "6,7", 8, 0, "CUDA_VISIBLE_DEVICES=6,7"),
        (2, "6,7", 7, 1, "2 GPUs (6,7)"),
        (2, "GPU-a,GPU-b", 8, 0, "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"),
        (2, "GPU-a,GPU-b", 1, 1, "2 GPUs (GPU-a,GPU-b)"),
        (0, "", 8, 0, "CUDA_VISIBLE_DEVICES=''"),
    ],
)
def test_other_gpus(used, visible, here, code, said, tmp_path, monkeypatch):
    monkeypatch.setattr("swift_vlrft.recipe.resume.gpus_here", lambda: here)
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    make_run(tmp_path / OLD, gpus=used, **variables)
    shown = resume(tmp_path)
    assert shown.exit_code == code and said in shown.output


def test_a_run_begun_with_weights_alone(tmp_path):
    """Steps, optimizer and rows of that checkpoint's run were not its: with nothing saved it begins
    again. ms-swift puts the checkpoint in place of --model, the reference's default.
    """
    begun = tmp_path / "checkpoint-9"
    make_checkpoint(begun, 2, 4)
    flags = ["--model", "base", "--resume-from-checkpoint", str(begun), "--resume_only_model"]
    flags += ["true", "--ignore_data_skip", "true"]
    run = make_run(tmp_path / OLD, *flags, ref="/old/checkpoint-9", steps=())
    assert resume(run).exit_code == 3
    make_checkpoint(run / "checkpoint-4", 4, 6)
    (recipe,) = read_text(resume(run).stdout, environment={})
    names = ["rlhf_type", "output_dir", "model", "ref_model", "resume_from_checkpoint"]
    assert [flag.name for flag in recipe.flags] == names
    assert recipe.get("ref_model") == "/old/checkpoint-9"
    assert recipe.get("resume_from_checkpoint") == str(run / "checkpoint-4")


SECRET_VALUES = [
    *('{"url": "http://a", "api_key": "Zq81"}', '{"headers": {"Authorization": "Zq81"}}'),
    *('{"x-api-key": "Zq81"}', "hf_Zq81Zq81Zq81Zq81Zq81Zq81", "Bearer Zq81Zq81"),
    *("http://me:Zq81@host:80", "http://a/?token=Zq81", "https://a/b?X-Amz-Signature=Zq81"),
]
SECRET_FLAGS = ["hub_token", "swanlab_secret", "swanlab_webhook_url", "some_api_key", "password"]


def test_no_secret_is_written(tmp_path):
    """A flag that is a secret is noted. Without what is in the value of another it would be another
    run, which --run does not start.
    """
    values = {f"--server{number}": value for number, value in enumerate(SECRET_VALUES)}
    given = [word for pair in values.items() for word in pair]
    given += [f"--{name.replace('_', '-')}=Zq81" for name in SECRET_FLAGS] + [
        "--swan_token",
        "Zq81",
    ]
    given += ["--resume_from_checkpoint", "http://me:Zq81@host/checkpoint-2"]
    around = ["--max_new_tokens", "9", "--teacher_tag_key", "set", "--model", "hf_model/sk-learn"]
    variables = {"HF_TOKEN": "Zq81", "VLLM_API_KEY": "Zq81", "VLLM_PROXY": "http://me:Zq81@host"}
    run = make_run(tmp_path / OLD, *given, *around, **variables)
    assert "Zq81" not in (run / FILE).read_text()
    shown = resume(run, "--run")
    assert shown.exit_code == 1 and all(f"problem: {flag} held" in shown.stderr for flag in values)
    assert all(f"--{name}" in shown.stderr for name in (*SECRET_FLAGS, "swan_token"))
    assert {*around} <= {*resume(run).stdout.split()}
