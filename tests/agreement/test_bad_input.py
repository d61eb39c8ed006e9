"""`vlrft agree` on what cannot be compared: one line that says where, or what to give."""

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app

GRPO = "swift rlhf --rlhf_type grpo --reward_funcs vlrft_format --use_vllm false"
MODEL = "--model Qwen/Qwen2.5-VL-3B-Instruct"
ROWS = f"{GRPO} {MODEL} --dataset rows.jsonl"
BAD = {
    "dpo": ([f"swift rlhf --rlhf_type dpo {MODEL}"], "command:1: --rlhf_type dpo"),
    "dpo after --": ([GRPO, "--", "--rlhf_type", "dpo"], "--rlhf_type dpo"),
    "sft": ([f"swift sft {MODEL}"], "it holds swift sft;"),
    "no recipe": (["notes.txt"], "notes.txt: no `swift rlhf"),
    "no such file": (["nothing.sh"], "nothing.sh: not a recipe"),
    "a model alone": (["folder"], "folder: not a recipe"),
    "no such model in a recipe": ([f"{GRPO} --model /no/model"], "command:1: --model /no/model"),
    "no such data": ([f"{GRPO} {MODEL} --dataset /no/rows.jsonl"], "/no/rows.jsonl does not exist"),
    "no rows": ([ROWS, "--rows", "0"], "'--rows'"),
    "no tokens": ([ROWS, "--tokens", "0"], "'--tokens'"),
    "unknown option": ([ROWS, "--colour", "3"], "No such option: --colour"),
    "unknown flag in a recipe": ([f"{GRPO} {MODEL} --learning_rat_e 3"], "command:1: "),
    "unknown flag after --": ([ROWS, "--", "--colour", "3"], "after --: "),
    "a value after --": ([ROWS, "--", "--max_length", "many"], "after --: --max_length many"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_said_in_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("no command\n")
    (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    result = CliRunner().invoke(app, ["agree", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert sum(said in line for line in result.output.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
