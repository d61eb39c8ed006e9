"""A rewritten script does what it did, but for the flags that were meant: bash is asked, with a
`swift` (and `python`, ...) that writes down what it was given.
"""

import itertools
import json
import re
import stat
from pathlib import Path

import pytest
from recipe.bash import Call, run_bash, write_programs
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory.rewrite import changed_text
from swift_vlrft.recipe.edit import CannotEdit, with_edit
from swift_vlrft.recipe.reader import read_recipe, read_recipes
from swift_vlrft.recipe.rules.finding import Edit

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TABLE = Path(__file__).with_name("edits.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
"""``change``: flags and variables (in capitals) of a command (rlhf unless it is named), null where
one goes; ``fix``: as `vlrft check --fix` changes it.
"""
GRPO = "swift rlhf --rlhf_type grpo --model m --reward_funcs format"


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def bash(tmp_path):
    """What a script does: its calls, the files it writes, its code and its output."""
    programs, count = tmp_path / "programs", itertools.count()
    write_programs(programs, ["swift", "python", "notify"])
    write_programs(programs, ["vlrft"], "#!/bin/sh\necho /plugins/vlrft.py\n")

    def run(script, variables, arguments=()):
        folder = tmp_path / f"run{next(count)}"
        folder.mkdir()
        calls, ended = run_bash(script, programs, folder, variables, arguments)
        files = {file.name: file.read_text() for file in folder.rglob("*") if file.is_file()}
        return calls, files, ended.returncode, ended.stdout

    return run


def parted(words):
    """As argparse takes them: the last of a name counts; and the words before the first."""
    flags, before, values = {}, [], None
    for word in words:
        if match := re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word, re.DOTALL):
            values = flags[match[1].replace("-", "_")] = [] if match[2] is None else [match[2]]
        elif values is None:
            before.append(word)
        else:
            values.append(word)
    return before, flags


def assert_changed(before, after, change, command="rlhf"):
    """Two runs differ in ``change`` alone. Other commands may see a variable of the script."""
    (calls, *rest), (calls_after, *rest_after) = before, after
    assert rest == rest_after
    variables = {name: value for name, value in change.items() if name.isupper()}

    def seen(call: Call, expected: bool):
        words, flags = parted(call.words)
        environment = dict(call.environment)
        if call.program != "swift" or words[:1] != [command]:
            environment = {k: v for k, v in environment.items() if k not in variables}
        elif expected:
            environment |= variables
            for name in change.keys() - variables:
                flags.pop(name, None)
                if (value := change[name]) is not None:
                    flags[name] = [value] if value[:1] == "{" else value.split(" ")
        return call.program, words, sorted(flags.items()), sorted(environment.items())

    assert sorted(seen(call, False) for call in calls_after) == sorted(
        seen(call, True) for call in calls
    )


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_a_changed_script_runs_as_before(row, tmp_path, bash, monkeypatch):
    variables = row.get("environment", {})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path, out = tmp_path / "run.sh", tmp_path / "out.sh"
    script = row["script"].replace("@GRPO@", GRPO)
    path.write_text(script)
    path.chmod(0o751)
    before = bash(path, variables, row.get("arguments", ()))
    if row.get("fix"):
        invoke("check", "--fast", "--fix", path)
        assert (tmp_path / "run.sh.orig").read_text() == script
        assert stat.S_IMODE(path.stat().st_mode) == 0o751
        left = json.loads(invoke("check", "--fast", "--json", path).output)["findings"]
        assert not [finding for finding in left if finding["rule"].startswith("removed")]
        out = path
    else:
        out.write_text(changed_text(read_recipe(path), row["change"]))
    after = bash(out, variables, row.get("arguments", ()))
    assert_changed(before, after, row["change"], row.get("command", "rlhf"))


CHANGES = [
    {"MAX_PIXELS": "200704"},
    {"VLRFT_SHARED_PREFIX": "1", "move_model_batches": "16"},
    {"per_device_train_batch_size": "1", "gradient_accumulation_steps": "8"},
    {"tuner_type": "lora", "learning_rate": "1e-5", "deepspeed": "zero3_offload", "beta": "0"},
    {"vllm_max_model_len": "2048", "vllm_gpu_memory_utilization": "0.3", "optim": "adamw_8bit"},
]
CALLER = {"NODE_RANK": "0", "MASTER_ADDR": "a", "DATASET": "/data/mine:pixels"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("qwen2_5_vl_3b/detection_server_6+2x80g.sh", {}),
        ("qwen2_5_vl_3b/detection_2nodes_8x80g.sh", {}),
        ("glm_4v_9b/sft_lora_1x80g.sh", {"MODEL": "a/b", "NPROC_PER_NODE": "2"}),
        ("minicpm_v_4_6/classification_lora_1x24g.sh", {"OUTPUT_DIR": "/o o"}),
    ],
)
def test_our_recipes_are_changed_in_the_flags_that_are_meant(
    name, variables, tmp_path, bash, monkeypatch
):
    path = RECIPES / name
    variables = CALLER | variables
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    variables |= {"CALLS": "2"} if "server" in name else {}
    before = bash(path, variables)
    for change in CHANGES:
        text = changed_text(read_recipe(path), change)
        (tmp_path / "out.sh").write_text(text)
        after = bash(tmp_path / "out.sh", variables)
        assert_changed(before, after, change, read_recipe(path).command[-1])
        # What is read from the environment is still read from it.
        for line in path.read_text().splitlines():
            if re.match(r"(MODEL|DATASET|OUTPUT_DIR|PLUGIN)=|#", line):
                assert f"{line}\n" in text


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
    """The command line: the copy plans as promised, says where it came from, and runs."""
    path, out = RECIPES / name, tmp_path / "out.sh"
    for variable, value in CALLER.items():
        monkeypatch.setenv(variable, value)
    variables = CALLER | ({"CALLS": "2"} if "server" in name else {})
    cards = ["--gpus", gpus, "--quick"]
    promised = json.loads(invoke("recipe", "apply", path, out, *cards, "--json").output)
    again = json.loads(invoke("plan", out, *cards, "--json").output)
    assert again["verdict"] == promised["verdict"] != "out of memory"
    assert again["peak_gib"] == promised["peak_gib"]
    assert_changed(bash(path, variables), bash(out, variables), promised["flags"])
    (added,) = [line for line in out.read_text().splitlines() if "changed by vlrft" in line]
    assert "DATASET=/data/mine:pixels" in added
    assert out.stat().st_mode == path.stat().st_mode


def test_apply_writes_nothing_where_nothing_is_to_change(tmp_path):
    out = tmp_path / "out.sh"
    path = RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    for gpus in ("4x80", "4x2"):  # it fits as it is; no change is enough
        done = invoke("recipe", "apply", path, out, "--gpus", gpus, "--quick")
        assert done.exit_code and not out.exists(), done.output


# A file's other bytes -----------------------------------------------------------------------------

OLD = "swift rlhf --rlhf_type grpo --train_type lora --use_vllm true"
BYTES = {
    "carriage returns": "#!/bin/bash\r\n"
    + OLD.replace(" --", " \\\r\n  --")
    + "\r\necho \u00e9\r\n",
    "byte order mark": f"\ufeff{OLD}\n",
    "trailing blanks": f"{OLD.replace('lora', 'lora  ')}   \n\n \n",
    "remarks in GBK": f"# \u4e2d\n{OLD} # \u4e2d\n",
    "unicode": f"# \u4e2d\u6587\u2028\x0c\n{OLD} --system '\u2028'",
}


@pytest.mark.parametrize("name", BYTES)
def test_every_other_byte_stays(name, tmp_path):
    path = tmp_path / "run.sh"
    before = BYTES[name].encode("gbk" if "GBK" in name else "utf-8")
    path.write_bytes(before)
    invoke("check", "--fast", "--fix", path)
    after = path.read_bytes()
    assert after.count(b"\r") in (0, after.count(b"\n"))
    added = re.compile(rb"( \\\r?\n)? +--vllm_mode colocate")
    assert len(added.findall(after)) == 1
    assert added.sub(b"", after).replace(b"tuner_type", b"train_type") == before


CONFIGURATIONS = {
    "a.yaml": '# why\nrlhf_type: grpo   # GRPO\nbeta: 0.04  # as in the paper\nmodel: "m"\n'
    "reward_funcs:\n  - a\n  - b  # last\n# end\n",
    "env.yaml": "ENV:\n  MAX_PIXELS: 401408 # pixels\n  OTHER: x\nrlhf_type: grpo\nbeta: 0.04",
    "flow.yaml": "{rlhf_type: grpo, beta: 0.04, reward_funcs: [a, b]}\n",
    "windows.yaml": "rlhf_type: grpo\r\nbeta: 0.04 # x\r\nmodel: m\r\n",
    "tail.yaml": "rlhf_type: grpo\nbeta: 0.04\n\n\n# tail\n",
    "a.json": '{\n  "rlhf_type": "grpo",\n  "beta": 0.04,\n  "model": "m"\n}\n',
    "tabs.json": '{\n\t"rlhf_type": "grpo",\n\t"beta": 0.04\n}\n',
    "one.json": '{"rlhf_type": "grpo", "beta": 0.04}',
    "text.json": '{"rlhf_type": "grpo", "beta": "0.04", "ENV": {"A": "1"}}',
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_changed_in_place(name, tmp_path):
    text = CONFIGURATIONS[name]
    path = tmp_path / name
    path.write_bytes(text.encode())
    before = read_recipe(path, {})
    flags = {"beta": "0.5", "MAX_PIXELS": "200704", "sleep_level": "1", "deepspeed": "zero3"}
    after = changed_text(before, flags)
    path.write_bytes(after.encode())
    (recipe,) = read_recipes(path, {})
    wanted = {flag.name: flag.values for flag in before.flags}
    wanted |= {"beta": ("0.5",), "sleep_level": ("1",), "deepspeed": ("zero3",)}
    assert {flag.name: flag.values for flag in recipe.flags} == wanted
    assert recipe.environment == before.environment | {"MAX_PIXELS": "200704"}
    # Without what is new, the file is the old one, line by line.
    kept = [line for line in text.splitlines() if "beta" not in line and "MAX_PIXELS" not in line]
    lines = after.splitlines()
    for line in kept if len(kept) > 1 else []:
        assert line.rstrip(",") in [other.rstrip(",") for other in lines]
    assert ("\r" in text) == ("\r" in after) and after.count("\r") in (0, after.count("\n"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("reward_funcs:\n  - one # 1\n  - two # 2\n", "reward_funcs:\n  - x\n  - y # 2\n"),
        ("reward_funcs:\n- one\nbeta: 1\n", "reward_funcs:\n- x\n- y\nbeta: 1\n"),
        ("reward_funcs: [one, two]\n", "reward_funcs: [x, y]\n"),
        ("reward_funcs: one # why\n", "reward_funcs: [x, y] # why\n"),
        ("{beta: 1, reward_funcs: [one]}\n", "{beta: 1, reward_funcs: [x, y]}\n"),
        ("reward_funcs: {a: 1}\n", "reward_funcs: [x, y]\n"),
    ],
)
def test_a_list_is_written_as_it_was(before, after, tmp_path):
    edit = Edit("reward_funcs", values=("x", "y"))
    assert with_edit(before, tmp_path / "a.yaml", edit) == after
    table = "reward_funcs:\n  a: 1\nbeta: 1\n"
    with pytest.raises(CannotEdit, match="a.yaml:1: --reward_funcs"):
        with_edit(table, tmp_path / "a.yaml", edit)


@pytest.mark.parametrize(
    ("first", "variables", "out", "said"),
    [
        (
            "export MAX_PIXELS=${MAX_PIXELS:-401408}",
            {"MAX_PIXELS": "12845056"},
            "out.sh",
            "run.sh:1: MAX_PIXELS",
        ),
        ("P=${P-401408}; export MAX_PIXELS=$P", {"P": "12845056"}, "out.sh", "P=12845056"),
        ('source "$(dirname "$0")/env.sh"', {}, "other/out.sh", "run.sh:1"),
        ("# one\ncd ${BASH_SOURCE%/*}", {}, "other/out.sh", "run.sh:2"),
        ("", {}, "out.yaml", "another kind of file"),
    ],
)
def test_what_cannot_be_carried_over_is_refused(first, variables, out, said, tmp_path, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "run.sh"
    text = (
        f"{first}\nswift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-3B-Instruct "
        "--reward_funcs x --tuner_type lora --per_device_train_batch_size 1 "
        "--gradient_accumulation_steps 2 "
        "--num_generations 2 --max_completion_length 64 --torch_dtype bfloat16 "
        "--use_liger_kernel true --padding_free true\n"
    )
    path.write_text(text)
    done = invoke("recipe", "apply", path, tmp_path / out, "--gpus", "1x12", "--quick")
    assert done.exit_code == 2 and said in done.output and "Traceback" not in done.output
    assert not (tmp_path / out).exists() and path.read_text() == text


def test_a_value_of_the_caller_is_named_with_flag_line_and_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCH", "8")
    path = tmp_path / "run.sh"
    path.write_text("BATCH=${BATCH:-4}\nswift rlhf --rlhf_type grpo \\\n  --batch $BATCH\n")
    with pytest.raises(ValueError, match=r"run.sh:3: --batch .*BATCH=8 .*--batch 2"):
        changed_text(read_recipe(path), {"batch": "2"})


# Files --------------------------------------------------------------------------------------------


def test_every_version_of_a_fixed_recipe_is_kept(tmp_path):
    path = tmp_path / "run.sh"
    versions = [f"swift rlhf --rlhf_type grpo --train_type lora --beta {n}\n" for n in range(3)]
    for version in versions:
        path.write_text(version)
        shown = " ".join(invoke("check", "--fast", "--fix", path).output.split())
        (named,) = re.findall(r"backup: (\S+)", shown)
        assert Path(named).read_text() == version
    assert {file.read_text() for file in tmp_path.glob("run.sh.orig*")} == {*versions}
    # Fixed again without a change of its own: the copy that is there says it.
    path.write_text(versions[1])
    invoke("check", "--fast", "--fix", path)
    assert len(list(tmp_path.glob("run.sh.orig*"))) == 3
    # Nothing to fix: nothing is written.
    assert "backup: " not in invoke("check", "--fast", "--fix", path).output


def test_a_link_to_a_recipe_stays_a_link(tmp_path):
    (tmp_path / "shared").mkdir()
    file, link = tmp_path / "shared" / "run.sh", tmp_path / "run.sh"
    file.write_text("swift rlhf --rlhf_type grpo --train_type lora\n")
    link.symlink_to(file)
    invoke("check", "--fast", "--fix", link)
    assert link.is_symlink() and "tuner_type" in file.read_text()
    assert "train_type" in (tmp_path / "shared" / "run.sh.orig").read_text()


def test_apply_onto_a_file_keeps_what_was_there(tmp_path):
    path = RECIPES / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    out = tmp_path / "mine.sh"
    out.write_text("# by hand\n")
    done = invoke("recipe", "apply", path, out, "--gpus", "4x24", "--quick")
    assert (tmp_path / "mine.sh.orig").read_text() == "# by hand\n"
    assert "mine.sh.orig" in done.output and "move_model_batches 16" in out.read_text()
