"""`vlrft resume` gives the command that the run was started with, or says why there is none; and
what `vlrft check` says of a run that goes on.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from files.test_checkpoints import files
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.record import (
    FILE,
    Record,
    earlier_checkpoints,
    kept_variables,
    record,
    record_of_run,
    write_record,
)
from swift_vlrft.recipe.resume import environment

OLD, NEW = "v0-20261122-101500", "v9-20261122-191500"
SWIFT = "/venv/lib/python3.12/site-packages/swift/cli/rlhf.py"
ODD = ["--system", 'Say "red" for $5; a\\b, don\'t!\n<é>', "--model_kwargs", '{"a": [1, "b c"]}']


@pytest.fixture(autouse=True)
def no_variable_of_this_machine(monkeypatch):
    for name in kept_variables(os.environ):
        monkeypatch.delenv(name)


def make_run(
    folder: Path, *flags: str, steps=(2, 4), of=6, pid=None, args=None, script=SWIFT, **variables
) -> Path:
    """What a run leaves: a folder with checkpoints, ms-swift's args.json and our resume.sh."""
    folder.mkdir(parents=True)
    (folder / "args.json").write_text(json.dumps(args or {}))
    words = ["--rlhf_type", "grpo", "--output_dir", str(folder.parent), *flags]
    kept = record([script, *words], {"NPROC_PER_NODE": "2"} | variables, gpus=0)
    kept.pid = pid or 2**22 + 1  # above the largest number of a process
    write_record(folder, kept)
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


def variables(given):
    (recipe,) = read_text(record([SWIFT], given, gpus=0).script, environment={})
    return recipe.environment


def test_bash_runs_what_was_started(tmp_path):
    """The printed command against a `swift` that writes down how it was called."""
    flags = ["--reward_funcs", "a", "b", *ODD, "--strict", "--lr=-1e-3", "--top_k", "-1"]
    run = make_run(tmp_path / "out put" / OLD, *flags, MAX_PIXELS="1 2'3")
    shown = resume(tmp_path / "out put")
    assert shown.exit_code == 0 and "step 4 of 6" in shown.stderr
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "swift"
    stub.write_text('#!/bin/sh\nprintf "%s\\0" "$PWD" "$NPROC_PER_NODE" "$MAX_PIXELS" "$@"\n')
    stub.chmod(0o755)
    path = {"PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}"}
    go_on = ["--resume_from_checkpoint", str(run / "checkpoint-4")]
    for command, given in ((["bash"], shown.stdout), (["bash", run / "resume.sh", *go_on], None)):
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=path)
        assert done.stdout.split("\0")[:-1] == [
            *(os.getcwd(), "2", "1 2'3", "rlhf", "--rlhf_type", "grpo"),
            *("--output_dir", str(tmp_path / "out put"), *flags, *go_on),
        ]
    assert json.loads(resume(tmp_path / "out put", "--json").stdout)["text"] == shown.stdout[:-1]
    assert (run / "resume.sh").stat().st_mode & 0o111


def test_which_checkpoint(tmp_path):
    old = make_run(tmp_path / OLD, steps=(2, 10), of=20)
    assert f"{old}/checkpoint-10" in resume(tmp_path).stdout
    assert f"{old}/checkpoint-2" in resume(old / "checkpoint-2").stdout  # the user's choice
    (old / "checkpoint-10" / "trainer_state.json").unlink()
    shown = resume(old)
    assert f"{old}/checkpoint-2" in shown.stdout
    assert "checkpoint-10 is not complete: trainer_state.json" in shown.stderr
    # Begun from that one and killed before it had one of its own; flags of the newest count.
    begun = ["--resume_from_checkpoint", str(old / "checkpoint-2"), "--seed", "7"]
    new = make_run(tmp_path / NEW, *begun, steps=())
    shown = resume(tmp_path)
    assert shown.stdout.count("--resume_from_checkpoint") == 1 and "--seed 7" in shown.stdout
    assert f"{old}/checkpoint-2" in shown.stdout and "the one that it began with" in shown.stderr
    # And one that ended while its model was loaded.
    (tmp_path / "v10-20261122-201500").mkdir()
    shown = resume(tmp_path)
    assert "v10-20261122-201500" in shown.stderr
    make_checkpoint(new / "checkpoint-4", 4, 20)
    assert f"{new}/checkpoint-4" in resume(tmp_path).stdout
    (new / "last-checkpoint").symlink_to("checkpoint-4")  # ms-swift's
    assert f"{new}/checkpoint-4" in resume(new / "last-checkpoint").stdout


def test_checkpoints_of_an_earlier_run_in_the_folder_are_not_gone_on_from(tmp_path):
    """--add_version false: what it began beside is not its own, until it writes it over."""
    run = make_run(tmp_path / "out", "--add_version", "false", steps=(2, 4))
    change(run, earlier=earlier_checkpoints(run, 0))  # as one that begins anew
    shown = resume(run)
    assert shown.exit_code == 3 and "checkpoint-2, checkpoint-4: of an earlier" in shown.stderr
    shutil.rmtree(run / "checkpoint-2")
    make_checkpoint(run / "checkpoint-2", 2, 6)
    shown = resume(run)
    assert f"{run}/checkpoint-2" in shown.stdout
    assert "checkpoint-4: of an earlier run" in shown.stderr
    change(run, earlier=earlier_checkpoints(run, 2))  # as one that went on from checkpoint-2
    assert f"{run}/checkpoint-2" in resume(run).stdout


@pytest.mark.parametrize(
    ("options", "broken", "code", "said"),
    [
        ({"steps": ()}, (), 3, "--save_steps"),
        ({}, (2, 4), 3, "checkpoint-4 is not complete: trainer_state.json"),
        ({"script": "/usr/bin/ipython"}, (), 2, "Python"),
        ({"pid": os.getpid()}, (), 2, f"(process {os.getpid()}"),
    ],
    ids=["no checkpoint", "half a checkpoint", "not of swift", "running"],
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
    (run / FILE).write_text("{")
    assert FILE in resume(run).stderr
    (run / FILE).unlink()  # of a run without our plugin, or of an older one
    shown = resume(run)
    assert shown.exit_code == 2 and f"--resume_from_checkpoint {run}/checkpoint-4" in shown.stderr


def test_a_run_that_has_ended(tmp_path):
    make_run(tmp_path / OLD, steps=(4, 6))
    shown = resume(tmp_path, "--run")
    assert shown.exit_code == 0 and "step 6 of 6" in shown.stderr and not shown.stdout
    assert json.loads(resume(tmp_path, "--json").stdout)["ended"] is True
    assert resume(tmp_path / OLD / "checkpoint-4").stdout  # from an earlier one all the same


def test_a_run_of_several_nodes(tmp_path, monkeypatch):
    """Each node has its own number, and another start may have another first node."""
    nodes = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    run = make_run(tmp_path / OLD, **nodes)
    monkeypatch.setenv("NODE_RANK", "1")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.7")
    monkeypatch.setenv("MAX_PIXELS", "5")
    shown = resume(run)
    assert "MAX_PIXELS is set here" in shown.stderr and "NODE_RANK" in shown.stderr
    here = environment(os.environ)
    assert here["NODE_RANK"] == "1" and "MAX_PIXELS" not in here
    (recipe,) = read_text(shown.stdout, environment=here)
    assert [recipe.environment[name] for name in nodes] == ["2", "1", "10.0.0.7", "29500"]
    (alone,) = read_text(resume(make_run(tmp_path / "alone" / OLD)).stdout, environment={})
    assert "NODE_RANK" not in alone.environment


def test_torchrun_with_ms_swifts_script(tmp_path):
    """torchrun --nnodes 2 --nproc_per_node 4 .../swift/cli/rlhf.py: `swift` needs variables."""
    ranks = {"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    wanted = {"NPROC_PER_NODE": "4", "NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"}
    assert variables(ranks | {"MASTER_ADDR": "10.0.0.1"}) == wanted
    one = {"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "1", "MASTER_PORT": "29500"}
    assert variables(one) == {"NPROC_PER_NODE": "4"}
    assert variables(one | {"LOCAL_WORLD_SIZE": "1"}) == {}
    assert variables(one | {"NPROC_PER_NODE": "gpu"}) == {"NPROC_PER_NODE": "gpu"}


def test_what_changes_a_picture_is_kept():
    names = ("MAX_PIXELS", "MAX_SLICE_NUMS", "HD_NUM", "CROP_MODE", "NUM_FRAMES", "ENABLE_THINKING")
    assert variables(dict.fromkeys(names, "1")) == dict.fromkeys(names, "1")


@pytest.mark.parametrize(
    ("used", "visible", "here", "code", "said"),
    [
        (4, None, 4, 0, ""),
        (4, None, 2, 1, "4 GPUs (all)"),
        (2, "6,7", 8, 0, "CUDA_VISIBLE_DEVICES=6,7"),
        (2, "6,7", 7, 1, "2 GPUs (6,7)"),
        (2, "GPU-a,GPU-b", 8, 0, "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"),
        (2, None, 8, 0, "CUDA_VISIBLE_DEVICES=0,1"),  # as many as it saw
        (0, "", 8, 0, "CUDA_VISIBLE_DEVICES=''"),
    ],
)
def test_other_gpus(used, visible, here, code, said, tmp_path, monkeypatch):
    monkeypatch.setattr("swift_vlrft.recipe.resume.gpus_here", lambda: here)
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    change(make_run(tmp_path / OLD, **variables), gpus=used)
    shown = resume(tmp_path)
    assert shown.exit_code == code and said in shown.output


def test_a_run_begun_with_weights_alone_keeps_its_reference(tmp_path):
    """ms-swift puts that checkpoint in place of --model, the reference's default."""
    flags = ["--model", "base", "--resume_from_checkpoint", "/old/checkpoint-9"]
    alone = ["--resume_only_model", "true", "--ignore_data_skip", "true"]
    run = make_run(tmp_path / OLD, *flags, *alone, args={"ref_model": "/old/checkpoint-9"})
    (recipe,) = read_text(resume(tmp_path).stdout, environment={})
    assert recipe.get("ref_model") == "/old/checkpoint-9"
    assert [f.name for f in recipe.flags if f.name.startswith(("resume", "ignore"))] == [
        "resume_from_checkpoint"
    ]
    assert recipe.get("resume_from_checkpoint") == str(run / "checkpoint-4")


def test_a_run_begun_with_weights_alone_that_saved_nothing_begins_again(tmp_path):
    """Steps, optimizer and rows of the checkpoint's own run were not its."""
    make_checkpoint(tmp_path / "checkpoint-2", 2, 4)
    flags = ["--resume_from_checkpoint", str(tmp_path / "checkpoint-2")]
    make_run(tmp_path / "out" / OLD, *flags, "--resume_only_model", "true", steps=())
    shown = resume(tmp_path / "out")
    assert shown.exit_code == 3 and shown.stdout == ""


SECRETS = {
    **dict.fromkeys(("HF_TOKEN", "VLLM_API_KEY", "MODELSCOPE_API_TOKEN", "WANDB_API_KEY"), "Zq81"),
    "HTTPS_PROXY": "http://me:Zq81@host",
    "MODELSCOPE_DOMAIN": "https://me:Zq81@host",
}


@pytest.mark.parametrize("form", ["{} Zq81", "{}=Zq81"])
def test_no_secret_is_written(form, tmp_path):
    around = ["--max_new_tokens", "9", "--teacher_tag_key", "set", "--seed", "1"]
    secret = ["--hub_token", "--hub-token", "--swanlab_token", "--swanlab_secret"]
    secret += ["--swanlab_webhook_url", "--some_api_key", "--password"]
    words = [word for flag in secret for word in form.format(flag).split()]
    address = ["--vllm_server_base_url", "http://me:Zq81@host:80"]
    run = make_run(tmp_path / OLD, *around, *words, *address, **SECRETS)
    assert "Zq81" not in (run / FILE).read_text()
    told = json.loads(resume(run, "--json").stdout)
    assert {*around} <= {*told["text"].split()}
    for flag in (*secret, address[0]):
        name = flag.lstrip("-").replace("-", "_")
        assert any(f"--{name}" in text for text in (*told["notes"], *told["problems"]))


@pytest.mark.parametrize(
    "value",
    [
        '{"url": "http://a", "api_key": "Zq81"}',
        "http://me:Zq81@host:80",
        "http://a/?token=Zq81",
        "https://a/b?X-Amz-Signature=Zq81",
        '{"headers": {"Authorization": "Zq81"}}',
        '{"x-api-key": "Zq81"}',
        "hf_Zq81Zq81Zq81Zq81Zq81Zq81",
        "Bearer Zq81Zq81",
    ],
)
def test_a_flag_with_a_secret_in_it_is_missed(value, tmp_path):
    """Without its teacher or its set it would be another run, so --run does not start it."""
    run = make_run(tmp_path / OLD, "--teacher_model_server", value, "--model", "hf_model/sk-learn")
    assert "Zq81" not in (run / FILE).read_text()
    shown = resume(run, "--run")
    assert shown.exit_code == 1 and "--teacher_model_server" in shown.stderr
    assert "--model hf_model/sk-learn" in resume(run).stdout


def test_a_record_of_this_process():
    kept = record(["-c"], os.environ, gpus=0)
    assert isinstance(kept, Record) and not kept.script
