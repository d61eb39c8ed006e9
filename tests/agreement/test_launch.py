"""How the measuring processes are started, and what is said of their end."""

import json
import sys

import pytest
from agreement_rows import row
from support.command_line import vlrft

from swift_vlrft.agreement.measurement import Measurement
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


def test_no_process_waits_for_those_of_a_cluster(tmp_path, monkeypatch):
    (tmp_path / "told.py").write_text("import json, os\nprint(json.dumps(dict(os.environ)))")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    monkeypatch.setattr(launch, "WORKER", "told")
    (recipe,) = read_text(COMMAND, environment={**CLUSTER, "PYTHONPATH": str(tmp_path)})
    assert launch.measure(recipe, resolve(recipe), [], tmp_path / "log") == 0
    told = json.loads((tmp_path / "log").read_text())
    assert not {"NNODES", "NODE_RANK", "RANK", "WORLD_SIZE"} & {*told}
    assert told["MASTER_ADDR"] == "127.0.0.1" and told["MASTER_PORT"] != "29500"


ALIKE = [row([-1.0], [-1.0])]


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """Runs the command with a measuring process that found these rows, or ended with nothing; its
    output and words.
    """
    (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')

    def run(flags="", options=(), rows=ALIKE, **variables):
        given = []

        def measure(recipe, run, words, log):
            given.extend(words)
            if not rows:
                log.write_text("it ended")
                return 1
            measured = Measurement("transformers", "m", "float32", rows)
            write_record(tmp_path / "out" / "measured.json", measured)
            return 0

        monkeypatch.setattr(agree, "measure", measure)
        command = f"{COMMAND} --reward_funcs vlrft_format --dataset {tmp_path / 'rows.jsonl'}"
        asked = ["agree", f"{command} {flags}", "--out", str(tmp_path / "out"), *options]
        return vlrft(*asked, **variables), given

    return run


def test_several_nodes_are_refused_and_one_is_compared(compared):
    result, words = compared(**CLUSTER)
    assert result.exit_code == 2 and "NNODES is 2" in result.output and not words
    result, _ = compared(**CLUSTER | {"NNODES": "1"})
    assert result.exit_code == 0 and "vLLM" not in result.output


def test_the_transformers_engine_for_a_recipe_with_vllm(compared):
    """ms-swift: vllm_mode is not supported when use_vllm is false."""
    vllm = "--use_vllm true --vllm_mode colocate --vllm_max_model_len 512 --max_length 99"
    result, words = compared(vllm, ["--", "--use_vllm", "false"])
    assert result.exit_code == 0, result.output
    recipes = words[: words.index("--add_version")]
    assert not [word for word in recipes if word.startswith("--vllm_")]
    assert "--max_length" in recipes
    last = len(words) - words[::-1].index("--use_vllm")
    assert words[last : last + 3] == ["false", "--temperature", "1"]


def test_of_several_turns_the_first_is_compared(compared):
    result, words = compared("--multi_turn_scheduler vlrft_zoom --max_turns 3")
    assert result.exit_code == 0 and "first turn" in result.output
    assert not {"--multi_turn_scheduler", "--max_turns"} & {*words}


def test_json_without_infinity_and_an_old_verdict_does_not_stay(compared, tmp_path):
    endless = row([-1.0], [float("-inf")])
    result, _ = compared("", ["--json"], [endless])
    assert result.exit_code == 1
    constants = []
    verdict = json.loads(result.stdout, parse_constant=constants.append)
    assert verdict["word"] == "numbers"
    assert verdict["figures"]["as loaded, text rows"]["mean"] is None
    file = tmp_path / "out" / "verdict.json"
    json.loads(file.read_text(), parse_constant=constants.append)
    assert constants == []
    result, _ = compared(rows=())
    assert result.exit_code == 2 and "it ended" in result.output
    assert not file.exists()


def test_nothing_else_in_the_folder_is_touched(compared, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    there = ["--output_dir", str(tmp_path / "runs")]
    for flags, options in ((" ".join(there), []), ("", ["--", *there])):
        result, words = compared(flags, options)
        assert result.exit_code == 0 and (tmp_path / "out" / "notes.txt").read_text() == "mine"
        last = len(words) - words[::-1].index("--output_dir")
        assert words[last] == str(tmp_path / "out" / "swift")


def test_a_flag_that_cannot_be_read_may_be_replaced(compared):
    unread = "--per_device_train_batch_size $((COUNT*1))"
    result, _ = compared(unread)
    assert result.exit_code == 2 and "--per_device_train_batch_size" in result.output
    result, words = compared(unread, ["--", "--per_device_train_batch_size", "2"])
    assert result.exit_code == 0, result.output
    assert words.count("--per_device_train_batch_size") == 1


ENDS = [
    # What the process said, what it printed, its exit code, and what is told of that.
    ("No module named 'deepspeed'", "", 1, "No module named 'deepspeed'"),
    (None, "Train: 0%", -9, "SIGKILL"),
    (None, "Train: 0%\nSignal 9 (SIGKILL) received by PID 3\n=====", 1, "SIGKILL"),
    (None, "Train: 0%\nend of it", 1, "end of it"),
    (None, "", 3, "exit code 3"),
]


@pytest.mark.parametrize(("said", "printed", "code", "told"), ENDS)
def test_why_a_process_ended(said, printed, code, told, tmp_path):
    result, log = tmp_path / "measured.json", tmp_path / "log"
    log.write_text(printed)
    if said:
        result.with_suffix(".error").write_text(said)
    why = launch.why_not(result, log, code)
    assert told in why and str(log) in why and "\n" not in why
