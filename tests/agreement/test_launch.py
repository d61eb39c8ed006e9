"""How the measuring processes are started, and what is said of their end."""

import json
import sys

import pytest
from support.agreement_rows import row
from typer.testing import CliRunner

from swift_vlrft.agreement.figures import noise
from swift_vlrft.agreement.measurement import Measurement
from swift_vlrft.cli import app
from swift_vlrft.files.records import write_record
from swift_vlrft.recipe.reader import read_text
from swift_vlrft.recipe.run import resolve
from swift_vlrft.swift_plugin import agree
from swift_vlrft.swift_plugin.agreement import launch

COMMAND = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct --use_vllm false"
CLUSTER = {
    **{"NNODES": "2", "NODE_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"},
    **{"MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500"},
}


def test_a_process_waits_for_no_other_node(tmp_path, monkeypatch):
    (tmp_path / "told.py").write_text("import json, os\nprint(json.dumps(dict(os.environ)))")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    monkeypatch.setattr(launch, "WORKER", "told")
    (recipe,) = read_text(COMMAND, environment={**CLUSTER, "PYTHONPATH": str(tmp_path)})
    assert launch.measure(recipe, resolve(recipe), [], tmp_path / "log") == 0
    told = json.loads((tmp_path / "log").read_text())
    assert not {"NNODES", "NODE_RANK", "RANK", "WORLD_SIZE"} & {*told}
    assert told["MASTER_ADDR"] == "127.0.0.1" and told["MASTER_PORT"] != "29500"


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Runs the command with a measuring process that found these rows; its output and words."""

    def run(flags="", options=(), rows=None, **variables):
        given = []

        def measure(recipe, run, words, log):
            given.extend(words)
            compared = rows or [row([-1.0], [-1.0])]
            found = Measurement("transformers", "m", compared, noise(compared, 2.0**-23))
            write_record(tmp_path / "out" / "measured.json", found)
            return 0

        monkeypatch.setattr(agree, "measure", measure)
        (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
        command = f"{COMMAND} --reward_funcs vlrft_format --dataset {tmp_path / 'rows.jsonl'}"
        asked = ["agree", f"{command} {flags}", "--out", str(tmp_path / "out"), *options]
        return CliRunner().invoke(app, asked, env=variables), given

    return run


@pytest.mark.parametrize("variables", [{"NNODES": "2"}, {**CLUSTER}, {"NNODES": "1"}, {}])
def test_a_note_says_that_other_nodes_are_left_out(variables, compared):
    result, _ = compared(**variables)
    assert result.exit_code == 0, result.output
    note = "note: NNODES is 2: only the processes of this node were measured"
    assert (note in result.output) == (variables.get("NNODES") == "2")
    assert "vLLM" not in result.output


def test_the_transformers_engine_for_a_recipe_with_vllm(compared):
    """ms-swift: vllm_mode is not supported when use_vllm is false."""
    vllm = "--use_vllm true --vllm_mode colocate --vllm_max_model_len 512 --max_length 99"
    result, words = compared(vllm, ["--engine", "transformers"])
    assert result.exit_code == 0, result.output
    recipes = words[: words.index("--add_version")]
    assert not [word for word in recipes if word.startswith("--vllm_")]
    assert recipes[-2:] == ["--use_vllm", "false"] and "--max_length" in recipes


def test_json_without_infinity(compared, tmp_path):
    endless = row([-1.0], [float("-inf")], again=[float("nan")])
    result, _ = compared("", ["--json"], [endless])
    assert result.exit_code == 2

    def refuse(constant):
        raise AssertionError(constant)

    found = json.loads(result.stdout, parse_constant=refuse)
    assert found["word"] == "broken" and found["figures"]["text rows"]["mean"] is None
    json.loads((tmp_path / "out" / "verdict.json").read_text(), parse_constant=refuse)


def test_nothing_else_in_the_folder_is_touched(compared, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    there = ["--output_dir", str(tmp_path / "runs")]
    for flags, options in ((" ".join(there), []), ("", ["--", *there])):
        result, words = compared(flags, options)
        assert result.exit_code == 0 and (tmp_path / "out" / "notes.txt").read_text() == "mine"
        last = len(words) - words[::-1].index("--output_dir")
        assert words[last] == str(tmp_path / "out" / "swift")


def test_an_old_verdict_does_not_stay(compared, tmp_path, monkeypatch):
    compared()
    assert (tmp_path / "out" / "verdict.json").exists()
    monkeypatch.setattr(agree, "why_not", lambda *_: "it ended")
    monkeypatch.setattr(agree, "measure", lambda *_: 1)
    command = f"{COMMAND} --reward_funcs vlrft_format --dataset {tmp_path / 'rows.jsonl'}"
    result = CliRunner().invoke(app, ["agree", command, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and "nothing was compared: it ended" in result.output
    assert not (tmp_path / "out" / "verdict.json").exists()


def test_a_flag_that_cannot_be_read_may_be_replaced(compared):
    unread = "--per_device_train_batch_size $((COUNT*1))"
    result, _ = compared(unread)
    assert result.exit_code == 2 and "cannot be read without running" in result.output
    result, words = compared(unread, ["--", "--per_device_train_batch_size", "2"])
    assert result.exit_code == 0, result.output
    assert words.count("--per_device_train_batch_size") == 1


SAID = {
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has": True,
    "Free memory on device (3.1/79.2 GiB) on startup is less than desired": True,
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`": True,
    "4.5 GiB KV cache is needed, which is larger than the available KV cache memory": True,
    "Available memory on node 0 (19.69/23.54 GiB) on kv cache allocation is less than": True,
    "DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes": True,
    "Cannot allocate memory (os error 12)": True,
    "MemoryError": True,
    "Unable to allocate 3.1 GiB for an array": True,
    "No module named 'deepspeed'": False,
    "the data set has no rows: give another with --dataset": False,
    "memory_usage is not a flag": False,
}


@pytest.mark.parametrize("text", SAID)
def test_a_model_that_does_not_fit_twice(text, tmp_path):
    result, log = tmp_path / "measured.json", tmp_path / "log"
    log.write_text("...")
    result.with_suffix(".error").write_text(text)
    why = launch.why_not(result, log, 1, True)
    assert ("what can still be compared: --engine transformers" in why) == SAID[text]
    assert text.rstrip(".") in why and str(log) in why and "\n" not in why
    assert "--engine transformers" not in launch.why_not(result, log, 1, False)


@pytest.mark.parametrize(
    ("code", "printed"), [(-9, "Train: 0%"), (1, "worker: exitcode: -9 (pid: 3)\nend of it")]
)
def test_a_process_that_was_killed(code, printed, tmp_path):
    (tmp_path / "log").write_text(printed)
    why = launch.why_not(tmp_path / "measured.json", tmp_path / "log", code, True)
    assert why.startswith("it was killed (SIGKILL)") and "what can still be compared" in why
