"""`vlrft agree` on what cannot be compared: one line that says what to do."""

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app

GRPO = "swift rlhf --rlhf_type grpo --reward_funcs vlrft_format --use_vllm false"
MODEL = "--model Qwen/Qwen2.5-VL-3B-Instruct"
BAD = {
    "dpo": (["swift rlhf --rlhf_type dpo " + MODEL], ["dpo", "compares GRPO runs"]),
    "sft": ([f"swift sft {MODEL}"], ["it holds swift sft", "--rlhf_type grpo"]),
    "dpo behind --": ([GRPO, "--", "--rlhf_type", "dpo"], ["dpo", "compares GRPO runs"]),
    "no recipe": (["notes.txt"], ["notes.txt: no `swift rlhf"]),
    "no such file": (["nothing.sh"], ["not a recipe", "vlrft agree MODEL --dataset SET"]),
    "a model alone": (["folder"], ["not a recipe", "vlrft agree MODEL --dataset SET"]),
    "no such model": (["/no/model", "--dataset", "rows.jsonl"], ["/no/model does not exist"]),
    "no model in it": (
        ["folder", "--dataset", "rows.jsonl"],
        ["folder: there are no weights; is this"],
    ),
    "no such model in a recipe": (
        [f"{GRPO} --model /no/model --dataset rows.jsonl"],
        ["--model /no/model: no such folder", "after --"],
    ),
    "no such data": (
        ["Qwen/Qwen2.5-VL-3B-Instruct", "--dataset", "/no/rows.jsonl"],
        ["/no/rows.jsonl does not exist", "after --"],
    ),
    "no such data in a recipe": (
        [f"{GRPO} {MODEL} --dataset /no/rows.jsonl"],
        ["/no/rows.jsonl does not exist", "after --"],
    ),
    "engine": ([f"{GRPO} {MODEL}", "--engine", "sglang"], ["'sglang'", "auto, vllm, transf"]),
    "no rows": ([f"{GRPO} {MODEL}", "--rows", "0"], ["'--rows'", "greater than or equal to 1"]),
    "no tokens": ([f"{GRPO} {MODEL}", "--tokens", "0"], ["'--tokens'"]),
    "unknown option": ([f"{GRPO} {MODEL}", "--colour", "3"], ["No such option: --colour"]),
    "unknown flag behind --": (
        [f"{GRPO} {MODEL} --dataset rows.jsonl", "--", "--colour", "3"],
        ["behind --: ", "has no --colour"],
    ),
    "unknown flag in a recipe": ([f"{GRPO} {MODEL} --learning_rat_e 3"], ["command:1: ", "_rat_e"]),
    "a value behind --": (
        [f"{GRPO} {MODEL} --dataset rows.jsonl", "--", "--max_length", "many"],
        ["behind --: --max_length many"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_said_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("no command\n")
    (tmp_path / "rows.jsonl").write_text('{"messages": [{"role": "user", "content": "a"}]}\n')
    arguments, texts = BAD[name]
    result = CliRunner().invoke(app, ["agree", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2 and "Traceback" not in result.output
    line = next(line for line in result.output.splitlines() if texts[0] in line)
    assert all(text in line for text in texts)
    assert not (tmp_path / "runs").exists()
