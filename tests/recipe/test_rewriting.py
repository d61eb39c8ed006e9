"""A rewritten script does what it did, but for the flags that were meant: bash is asked, with a
`swift` (and `python`, ...) that writes down what it was given.
"""

import re
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swift_vlrft.cli import app
from swift_vlrft.memory.rewrite import changed_text
from swift_vlrft.recipe.edit import CannotEdit, with_edit
from swift_vlrft.recipe.reader import read_recipe, read_recipes
from swift_vlrft.recipe.rules.finding import Edit

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = sorted((REPOSITORY / "recipes").glob("*/*.sh"))

STUB = """#!/bin/bash
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\1\\0'; env -0; } > "$(mktemp "$SEEN/XXXXXXXX")"
[ "$1" != rlhf ] || sleep "${SLOW:-0}"  # till what runs in the background has written too
echo "${0##*/} ran"
"""
OF_A_SHELL = {"PWD", "OLDPWD", "SHLVL", "_", "SEEN", "PATH", "LC_CTYPE"}
"""Variables of the shell that runs a script, not of the script."""


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def bash(tmp_path):
    """What a script does: its calls as (name, flags, rest, environment), files, code and output."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("swift", "python", "notify", "srun_stub"):
        (tools / name).write_text(STUB)
        (tools / name).chmod(0o755)
    (tools / "vlrft").write_text("#!/bin/sh\necho /plugins/vlrft.py\n")
    (tools / "vlrft").chmod(0o755)

    def run(script, given, arguments=()):
        number = len(list(tmp_path.glob("run*")))
        seen, here = tmp_path / f"run{number}", tmp_path / f"here{number}"
        seen.mkdir()
        here.mkdir()
        environment = {
            **{"HOME": "/nowhere", "PATH": f"{tools}:/usr/bin:/bin", "SEEN": str(seen)},
            **given,
        }
        done = subprocess.run(
            ["bash", str(script), *arguments],
            env=environment,
            cwd=here,
            capture_output=True,
            text=True,
            timeout=600,
        )
        calls = []
        for file in seen.iterdir():
            words, variables = file.read_bytes().decode().split("\1\0")
            name, *arguments = words.split("\0")[:-1]
            environment = dict(line.split("=", 1) for line in variables.split("\0")[:-1])
            environment = {k: v for k, v in environment.items() if k not in OF_A_SHELL}
            calls.append((name, *_flags(arguments), environment))
        files = {file.name: file.read_text() for file in here.rglob("*") if file.is_file()}
        return sorted(calls, key=repr), files, done.returncode, done.stdout

    return run


def _flags(words):
    """As argparse takes them: the last of a name counts; and the words before the first."""
    flags, rest, values = {}, [], None
    for word in words:
        if match := re.fullmatch(r"--([A-Za-z][\w-]*)(?:=(.*))?", word, re.DOTALL):
            values = flags[match[1].replace("-", "_")] = [] if match[2] is None else [match[2]]
        elif values is None:
            rest.append(word)
        else:
            values.append(word)
    return flags, rest


def differ_in(before, after, intended, method="rlhf"):
    """Whether two runs differ in ``intended`` alone: flags ({name: values, or None where it is
    gone}) of one command, and variables (in capitals) there at least.
    """
    (calls, *rest), (found, *left) = before, after
    assert rest == left
    wanted = []
    for name, flags, words, environment in calls:
        here = name == "swift" and words[:1] == [method]
        flags, environment = dict(flags), dict(environment)
        for what, value in intended.items():
            if what.isupper() and here:
                environment[what] = value
            elif here:
                flags.pop(what, None)
                if value is not None:
                    flags[what] = value.split(" ") if isinstance(value, str) else value
        wanted.append((name, flags, words, environment))
    for call in found:  # a variable of a whole script may be seen by its other commands
        if call[0] != "swift" or call[2][:1] != [method]:
            for what in (what for what in intended if what.isupper()):
                call[3].pop(what, None)
                for other in wanted:
                    if other[:3] == call[:3]:
                        other[3].pop(what, None)
    assert found == sorted(wanted, key=repr)


GRPO = "swift rlhf --rlhf_type grpo --model m --reward_funcs format"

FIXED = {
    # name: script, {flag: value, or None where it goes}
    "background": (
        "CUDA_VISIBLE_DEVICES=0 swift rollout --model m \\\n  --vllm_max_model_len 4096 \\\n"
        "  --gc_collect_after_offload true > rollout.log 2>&1 &\nROLLOUT=$!\n"
        f"CUDA_VISIBLE_DEVICES=1 {GRPO}\nwait $ROLLOUT; notify ended\n",
        "rollout",
        {"gc_collect_after_offload": None},
    ),
    "and then": (
        f"{GRPO} --num_infer_workers 1 && python eval.py output\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "or": (f"{GRPO} --num_infer_workers 1 || notify\n", "rlhf", {"num_infer_workers": None}),
    "semicolon": (
        f"{GRPO} --num_infer_workers 1; notify a b\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "piped": (
        f"{GRPO} \\\n    --gc_collect_after_offload true 2>&1 | tee log\n",
        "rlhf",
        {"gc_collect_after_offload": None},
    ),
    "glued operators": (
        f"{GRPO} --beta 1 --gc_collect_after_offload true>log\n{GRPO} --vllm_device auto&\nwait\n",
        "rlhf",
        {"gc_collect_after_offload": None, "vllm_device": None},
    ),
    "redirection between": (
        f"{GRPO} --gc_collect_after_offload > log true --beta 1\n",
        "rlhf",
        {"gc_collect_after_offload": None},
    ),
    "redirection in front": (
        f"> log {GRPO} --gc_collect_after_offload true\n",
        "rlhf",
        {"gc_collect_after_offload": None},
    ),
    "stderr to a process": (
        f"{GRPO} --vllm_device auto 2> >(cat > errors)\nwait\n",
        "rlhf",
        {"vllm_device": None},
    ),
    "heredoc": (
        f"{GRPO} --num_infer_workers 1 <<EOF\n--num_infer_workers 1\nEOF\nnotify\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "heredoc before": (
        "cat > cfg <<'EOF'\nswift rlhf --train_type lora\nEOF\n" + f"{GRPO} --train_type lora\n",
        "rlhf",
        {"train_type": None, "tuner_type": "lora"},
    ),
    "subshell": (f"( {GRPO} --num_infer_workers 1 )\n", "rlhf", {"num_infer_workers": None}),
    "group": (f"{{ {GRPO} --num_infer_workers 1; }} > log\n", "rlhf", {"num_infer_workers": None}),
    "if": (
        f"if {GRPO} --num_infer_workers 1; then notify yes; else notify no; fi\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "last without newline": (
        f"{GRPO} \\\n  --num_infer_workers 1",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "final backslash": (
        f"{GRPO} \\\n  --num_infer_workers 1 \\\n\nnotify\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "comment behind": (
        f"{GRPO} --num_infer_workers 1  # --num_infer_workers 1 for one engine\nnotify\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "first flag": (
        "swift rlhf --train_type lora --rlhf_type grpo --model m --reward_funcs format\n",
        "rlhf",
        {"train_type": None, "tuner_type": "lora"},
    ),
    "equals": (
        f"{GRPO} --train_type=lora --gpu_memory_utilization=0.5 --vllm_device=auto\n",
        "rlhf",
        {
            "train_type": None,
            "tuner_type": "lora",
            "gpu_memory_utilization": None,
            "vllm_gpu_memory_utilization": "0.5",
            "vllm_device": None,
        },
    ),
    "quoted": (
        f'{GRPO} "--train_type" \'lora\' --scale_rewards "true"\n',
        "rlhf",
        {"train_type": None, "tuner_type": "lora", "scale_rewards": "group"},
    ),
    "dashes": (
        f"{GRPO} --train-type lora --num-infer-workers 2\n",
        "rlhf",
        {"train_type": None, "tuner_type": "lora", "num_infer_workers": None},
    ),
    "twice": (
        f"{GRPO} --num_infer_workers 1 --beta 0 --num_infer_workers 2 && notify\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
    "array": (
        "ARGS=(\n  --train_type lora  # an adapter\n  --num_infer_workers 1\n  # end\n)\n"
        f'{GRPO} "${{ARGS[@]}}" 2>&1 | tee log\n',
        "rlhf",
        {"train_type": None, "tuner_type": "lora", "num_infer_workers": None},
    ),
    "array of two commands": (
        "ARGS=(--train_type lora --beta 1)\n"
        f'{GRPO} "${{ARGS[@]}}"\nswift rlhf --rlhf_type grpo --model n "${{ARGS[@]}}"\n',
        "rlhf",
        {"train_type": None, "tuner_type": "lora"},
    ),
    "text of flags": (
        f'FLAGS="--train_type lora --num_infer_workers 1 --beta 0"\n{GRPO} $FLAGS && notify\n',
        "rlhf",
        {"train_type": None, "tuner_type": "lora", "num_infer_workers": None},
    ),
    "carriage of a value in a variable": (
        f'T=lora\n{GRPO} --train_type "$T" --scale_rewards true --seed 1\nnotify $T\n',
        "rlhf",
        {"train_type": None, "tuner_type": "lora", "scale_rewards": "group"},
    ),
    "several": (
        f"NPROC_PER_NODE=2 \\\n{GRPO} \\\n    --train_type lora \\\n    --use_vllm true \\\n"
        '    "$@" &\n'
        "PID=$!\ntrap 'notify trapped' EXIT\nwait $PID\n",
        "rlhf",
        {"train_type": None, "tuner_type": "lora", "vllm_mode": "colocate"},
    ),
    "use_vllm last": (
        f"{GRPO} --use_vllm true>log && notify\n",
        "rlhf",
        {"vllm_mode": "colocate"},
    ),
    "empty line before": (
        f"\n\n  {GRPO} \\\n\t--num_infer_workers 1 \\\n\t--beta 0\n\n\n",
        "rlhf",
        {"num_infer_workers": None},
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_script_runs_as_before(name, tmp_path, bash):
    script, method, intended = FIXED[name]
    path = tmp_path / "run.sh"
    path.write_text(script)
    path.chmod(0o751)
    before = bash(path, {})
    done = invoke("check", "--fast", "--fix", path)
    assert "backup: " in done.output, done.output
    differ_in(before, bash(path, {}), intended, method)
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert (tmp_path / "run.sh.orig").read_text() == script
    left = [found for found in invoke("check", "--fast", path).output.splitlines()]
    assert not any("since ms-swift" in line and "problem" in line for line in left)


APPLIED = {
    # name: script, the caller's environment, what to change
    "home and date": (
        "DATE=today\nexport HF_HOME=$HOME/hf\nmkdir -p logs\n"
        f'{GRPO} --dataset "$HOME/data/my set.jsonl" ~/data/b.jsonl --output_dir "output/$DATE" '
        "2>&1 | tee logs/$DATE\n",
        {},
        {"beta": "0"},
    ),
    "counted processes": (
        "export CUDA_VISIBLE_DEVICES=0,1,2,3\n"
        "export NPROC_PER_NODE=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)\n"
        f"{GRPO} --max_completion_length 1024\n",
        {},
        {"max_completion_length": "512", "beta": "0"},
    ),
    "server": (
        "CUDA_VISIBLE_DEVICES=1 setsid swift rollout --model m --vllm_max_model_len 4096 &\n"
        "ROLLOUT=$!\ntrap 'kill -- \"-$ROLLOUT\" 2>/dev/null || true' EXIT\nsleep 0.2\n"
        f"CUDA_VISIBLE_DEVICES=0 {GRPO} --vllm_max_model_len 4096 > train.log\nnotify done\n",
        {},
        {"vllm_max_model_len": "2048", "deepspeed": "zero3_offload"},
    ),
    "quoted values": (
        f'{GRPO} --beta "0.04" --deepspeed \'zero2\' --seed "1"\n',
        {},
        {"beta": "0", "deepspeed": "zero3"},
    ),
    "equals": (f"{GRPO} --beta=0.04 --x= --y=3>log\n", {}, {"beta": "0", "x": "5", "y": "4"}),
    "twice": (f"{GRPO} --beta 1 \\\n --seed 2 \\\n --beta 2 \\\n --last\n", {}, {"beta": "0"}),
    "several values": (
        f"{GRPO} --report_to tensorboard \\\n   wandb > log \\\n   swanlab --seed 1 | cat\n",
        {},
        {"report_to": "none"},
    ),
    "flag without a value": (f"{GRPO} --offload_model && notify\n", {}, {"offload_model": "true"}),
    "new flag before a redirection": (f"{GRPO} --seed 1>log\n", {}, {"sleep_level": "1"}),
    "new flag, background": (f"{GRPO} --seed 1& wait; notify\n", {}, {"sleep_level": "1"}),
    "new flag, arguments in the middle": (
        f'{GRPO} "$@" --seed 1 2>&1 | tee log\n',
        {},
        {"sleep_level": "1"},
    ),
    "new flag, comment": (f"{GRPO} --seed 1 # --sleep_level 0\n", {}, {"sleep_level": "1"}),
    "new flag, only a variable": (
        'ARGS=(--seed 1)\nswift rlhf "${ARGS[@]}" --rlhf_type grpo "$@"\n',
        {},
        {"sleep_level": "1"},
    ),
    "shared array": (
        'ARGS=(--beta 1 --seed 1)\nswift sft "${ARGS[@]}" --train_type lora & wait\n'.replace(
            "swift sft", "swift infer"
        )
        + f'{GRPO} "${{ARGS[@]}}"\n',
        {},
        {"beta": "0"},
    ),
    "own array": (f'ARGS=(--beta 1\n  --seed 1)\n{GRPO} "${{ARGS[@]}}"\n', {}, {"beta": "0"}),
    "text of flags": (f'FLAGS="--beta 1 --seed 1"\n{GRPO} $FLAGS | tee log\n', {}, {"beta": "0"}),
    "text of flags, also elsewhere": (
        f'FLAGS="--beta 1 --seed 1"\n{GRPO} $FLAGS\nswift infer $FLAGS\n',
        {},
        {"beta": "0"},
    ),
    "a variable of two places": (
        f"LEN=4096\n{GRPO} --vllm_max_model_len $LEN\nswift infer --vllm_max_model_len $LEN\n",
        {},
        {"vllm_max_model_len": "2048"},
    ),
    "a variable that others read": (
        f"BATCH=4\n{GRPO} --per_device_train_batch_size $BATCH\npython eval.py --batch $BATCH\n",
        {},
        {"per_device_train_batch_size": "2"},
    ),
    "default of a variable": (
        f'BATCH=${{BATCH:-4}}\n{GRPO} --per_device_train_batch_size "$BATCH" && notify\n',
        {},
        {"per_device_train_batch_size": "2"},
    ),
    "default in place": (
        f"{GRPO} --per_device_train_batch_size ${{BATCH:-4}} --seed 1\n",
        {},
        {"per_device_train_batch_size": "2"},
    ),
    "json value": (
        f"{GRPO} --model_kwargs '{{\"max_pixels\": 401408}}' --seed 1\n",
        {},
        {"model_kwargs": ['{"max_pixels": 200704}']},
    ),
    "exported variable": (
        f"export MAX_PIXELS=401408  # 512 tokens\n{GRPO}\n",
        {},
        {"MAX_PIXELS": "200704"},
    ),
    "exported default": (
        f"export MAX_PIXELS=${{MAX_PIXELS:-401408}}\n{GRPO} && python a.py\n",
        {},
        {"MAX_PIXELS": "200704"},
    ),
    "quoted default": (
        f'export MAX_PIXELS="${{MAX_PIXELS:-401408}}"\n{GRPO}\n',
        {},
        {"MAX_PIXELS": "1"},
    ),
    "variable in front": (
        f"NPROC_PER_NODE=2 \\\nMAX_PIXELS=401408 \\\n{GRPO} \\\n  --beta 1\nnotify\n",
        {},
        {"MAX_PIXELS": "200704", "beta": "0"},
    ),
    "variable of env": (f"env A=1 MAX_PIXELS=401408 {GRPO}\n", {}, {"MAX_PIXELS": "200704"}),
    "new variable": (f"cd . && \\\n  {GRPO} | tee log\n", {}, {"VLRFT_SHARED_PREFIX": "1"}),
    "new variable, wrapped": (
        f"nohup {GRPO} > log 2>&1 &\nwait\n",
        {},
        {"VLRFT_SHARED_PREFIX": "1"},
    ),
    "new variable in a condition": (
        f"set -e\nif ! {GRPO}; then notify; fi\n",
        {},
        {"VLRFT_SHARED_PREFIX": "1", "beta": "0"},
    ),
    "variable of the caller": (GRPO + "\n", {"MAX_PIXELS": "802816"}, {"MAX_PIXELS": "200704"}),
    "variable that the output is named by": (
        f'export MAX_PIXELS=401408\n{GRPO} --output_dir "out_$MAX_PIXELS"\n',
        {},
        {"MAX_PIXELS": "200704"},
    ),
    "variable in two steps": (
        f"PIXELS=${{PIXELS:-401408}}\nexport MAX_PIXELS=$PIXELS\n{GRPO}\n",
        {},
        {"MAX_PIXELS": "200704"},
    ),
    "caller decides other things": (
        "MODEL=${MODEL:-m}\nOUT=${OUTPUT_DIR:-out}\nexport MAX_PIXELS=${MAX_PIXELS:-401408}\n"
        'swift rlhf --rlhf_type grpo --model "$MODEL" --output_dir "$OUT" --beta 1 "$@"\n',
        {"MODEL": "other/model", "OUTPUT_DIR": "/o", "MAX_PIXELS": "1003520"},
        {"beta": "0"},
    ),
    "a function": (
        f'train() {{\n  local seed=$1\n  {GRPO} --beta 1 --seed "$seed"\n}}\ntrain 3 && notify\n',
        {},
        {"beta": "0"},
    ),
    "no last newline": (f"{GRPO} \\\n  --beta 1", {}, {"beta": "0", "sleep_level": "1"}),
    "no last newline, backslash": (f"{GRPO} \\\n  --beta 1 \\", {}, {"beta": "0"}),
    "tabs": (f"{GRPO} \\\n\t--beta 1 \\\n\t--seed 1\n", {}, {"beta": "0", "sleep_level": "1"}),
    "two on a line": (f"{GRPO} --beta 1; notify; swift infer --beta 1\n", {}, {"beta": "0"}),
}


@pytest.mark.parametrize("name", APPLIED)
def test_a_changed_script_runs_as_before(name, tmp_path, bash, monkeypatch):
    script, given, intended = APPLIED[name]
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    path, out = tmp_path / "run.sh", tmp_path / "out.sh"
    path.write_text(script)
    flags = {k: v if isinstance(v, str) else v[0] for k, v in intended.items()}
    out.write_text(changed_text(read_recipe(path), flags))
    differ_in(bash(path, given), bash(out, given), intended)
    differ_in(bash(path, given, ["--seed", "9"]), bash(out, given, ["--seed", "9"]), intended)


# Each on its own: what bash makes of it is awkward, the change is not.
AWKWARD = [
    (f'eval "{GRPO} --beta 1 --seed 2"\nnotify\n', {"beta": "0"}),
    (f'bash -c "{GRPO} --beta 1 --seed 2" && notify\n', {"beta": "0"}),
    (f'CMD="{GRPO} --beta 1 --seed 2"\neval $CMD > log\n', {"beta": "0"}),
    (f'CMD="{GRPO} --beta 1 --seed 2"\n$CMD > log && notify\n', {"beta": "0"}),
    (f'CMD="{GRPO} --beta 1 --seed 2"\n$CMD\n', {"MAX_PIXELS": "5"}),
    (
        f'ARGS=(--beta 1)\nif [ -n "$X" ]; then ARGS+=(--seed 3); fi\n{GRPO} "${{ARGS[@]}}"\n',
        {"beta": "0"},
    ),
    (
        f'ARGS=(--beta 1)\nif [ -n "$X" ]; then ARGS+=(--beta 3); fi\n{GRPO} "${{ARGS[@]}}"\n',
        {"beta": "0"},
    ),
    (f"for s in 1 2 3; do {GRPO} --seed $s --beta 1 > log$s; done\n", {"beta": "0"}),
    (f'{GRPO} --beta 1 "$@" > >(tee log) 2>&1\nwait\n', {"beta": "0"}),
    (f"{GRPO} --kw '{{\n \"a\": 1\n}}' \\\n --beta 1\n", {"kw": ['{"b": 2}']}),
    (f"{GRPO} \\\n  --beta 1 `# why` \\\n  --seed 2\n", {"beta": "0"}),
    (f"{GRPO} \\\n  `# why` --beta 1 \\\n  --seed 2\n", {"new": "0"}),
    (f"{GRPO} --beta 1 {{a,b}} --seed 2\n", {"new": "0"}),
    (f"{GRPO} --beta $'1' --seed $\"2\"\n", {"beta": "0"}),
    (f"{GRPO} --be\\\nta 1 --seed 2\n", {"beta": "0"}),
    (f"{GRPO} --beta 1'0' --seed \"2\"3\n", {"beta": "0"}),
    (f"{GRPO} --beta $((1+1)) --seed $(echo 2)\n", {"beta": "0"}),
    (f'{GRPO} --beta "$(echo 1)" --seed 2\n', {"seed": "0"}),
    (f"case x in\n x) {GRPO} --beta 1 ;;\n *) notify;;\nesac\n", {"beta": "0"}),
    (f"case x in\n x) {GRPO} --beta 1;;\nesac\n", {"new": "1"}),
    (f"coproc {GRPO} --beta 1\nwait\n", {"beta": "0"}),
    (f"{GRPO} --beta 1 &> log\n", {"new": "2"}),
    (f"{GRPO} --beta 1 2>&1>log\n", {"beta": "2"}),
    (f"{GRPO} --beta x2>log\n", {"beta": "2"}),
    (f"env -u A -i PATH=$PATH SEEN=$SEEN {GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f"env PATH=$PATH {GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f"export MAX_PIXELS=1\nexport MAX_PIXELS=2\n{GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (
        f"export MAX_PIXELS=1\n{GRPO} --beta 1\nexport MAX_PIXELS=2\nswift infer\n",
        {"MAX_PIXELS": "5"},
    ),
    (f"if true; then export MAX_PIXELS=1; fi\n{GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f"declare -x MAX_PIXELS=1\n{GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f"set -a\nMAX_PIXELS=1\nset +a\n{GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f": ${{MAX_PIXELS:=1}}\nexport MAX_PIXELS\n{GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f'export MAX_PIXELS="1" \\\n  B=2\n{GRPO} --beta 1\n', {"MAX_PIXELS": "5"}),
    (f"MAX_PIXELS=1 B=$MAX_PIXELS {GRPO} --beta 1\n", {"MAX_PIXELS": "5"}),
    (f"readonly N=2\n{GRPO} --beta $N --seed ${{N}}\n", {"beta": "5"}),
    (f"N=2\n{GRPO} --beta $N\nN=3\nswift infer --k $N\n", {"beta": "5"}),
    (f"N=2\n{GRPO} --beta ${{N}}0 --out a/$N\n", {"beta": "5"}),
    (f"N=2\n{GRPO} --beta $N\npython eval.py --k $((N + 1))\n", {"beta": "5"}),
    (f'FLAGS="--beta 1 --seed 2"\n{GRPO} $FLAGS\npython eval.py $FLAGS\n', {"beta": "5"}),
    (f"DEF=4\nN=${{N:-$DEF}}\n{GRPO} --beta $N\n", {"beta": "5"}),
    (f"python - <<'EOF'\nN=1\nEOF\nN=${{N:-4}}\n{GRPO} --beta $N\n", {"beta": "5"}),
    (f"# N=4\nN=4 # N=5\n{GRPO} --beta $N\n", {"beta": "5"}),
    (f"{GRPO} --beta \\\n   1 \\\n --seed 2\n", {"beta": "5"}),
    (f"{GRPO} --tags a b c --beta 1\n", {"tags": "x"}),
    (f"{GRPO} --beta 1;", {"new": "x"}),
    (f"({GRPO} --beta 1)", {"new": "x"}),
    (f"x=$({GRPO} --beta 1)\nnotify $x\n", {"beta": "0"}),
    (f"while read l; do notify $l; done < <({GRPO} --beta 1)\n", {"beta": "0"}),
    (f"! {GRPO} --beta 1\n", {"A_B": "x y"}),
    (f"time {GRPO} --beta 1\n", {"A_B": "x y"}),
    (f"time -p {GRPO} --beta 1\n", {"A_B": "x y"}),
    (f"command {GRPO} --beta 1\n", {"A_B": "x y"}),
    (f"exec {GRPO} --beta 1\n", {"A_B": "x y"}),
    (f'function f {{\n {GRPO} --beta "$1" "${{@:2}}"\n}}\nf 1 --seed 3\n', {"beta": "0"}),
    (f'f() {{ {GRPO} "$@"; }}\nf --beta 1 --seed 3\n', {"beta": "0"}),
    (f'f() {{ {GRPO} "$@"; }}\nf --beta 1 --seed 3\n', {"new": "0"}),
    (f"#!/bin/bash\nset -x\n{GRPO} --beta 1 --x '#' --y a#b # c\n", {"new": "0"}),
    (f'{GRPO} --beta 1 --resume "$(ls -d out/v*/checkpoint-* | tail -1)"\n', {"new": "0"}),
    (f"{GRPO} --beta 1 --data ~/x *.none\n", {"new": "0"}),
]


@pytest.mark.parametrize(("script", "intended"), AWKWARD)
def test_an_awkward_script_is_changed_in_what_is_meant(script, intended, tmp_path, bash):
    path, out = tmp_path / "run.sh", tmp_path / "out.sh"
    path.write_text(script)
    flags = {k: v if isinstance(v, str) else v[0] for k, v in intended.items()}
    out.write_text(changed_text(read_recipe(path), flags))
    differ_in(bash(path, {}), bash(out, {}), intended)


CHANGES = [
    {"MAX_PIXELS": "200704"},
    {"VLRFT_SHARED_PREFIX": "1", "move_model_batches": "16"},
    {"per_device_train_batch_size": "1", "gradient_accumulation_steps": "8"},
    {"tuner_type": "lora", "learning_rate": "1e-5", "deepspeed": "zero3_offload", "beta": "0"},
    {"vllm_max_model_len": "2048", "vllm_gpu_memory_utilization": "0.3", "optim": "adamw_8bit"},
]


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "given", [{}, {"MODEL": "a/b", "OUTPUT_DIR": "/o o", "NPROC_PER_NODE": "2"}]
)
def test_our_recipes_are_changed_in_the_flags_that_are_meant(
    path, given, tmp_path, bash, monkeypatch
):
    given = {"NODE_RANK": "0", "MASTER_ADDR": "a", **given}
    given |= {"SLOW": "0.3"} if "server" in path.name else {}
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    before = bash(path, given)
    for number, flags in enumerate(CHANGES):
        out = tmp_path / f"{number}.sh"
        text = changed_text(read_recipe(path), flags)
        out.write_text(text)
        differ_in(before, bash(out, given), flags, read_recipe(path).command[-1])
        # What is read from the environment is still read from it.
        for line in path.read_text().splitlines():
            if re.match(r"(MODEL|DATASET|OUTPUT_DIR|PLUGIN)=|#", line):
                assert f"{line}\n" in text


@pytest.mark.parametrize("gpus", ["16", "24"])
@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_what_apply_writes_is_what_was_planned(path, gpus, tmp_path, bash, monkeypatch):
    """The command line: the copy plans as promised, says where it came from, and runs."""
    import json

    given = {"NODE_RANK": "0", "MASTER_ADDR": "a", "DATASET": "/data/mine:pixels"}
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    given |= {"SLOW": "0.3"} if "server" in path.name else {}
    count = re.search(r"(\d+)(?:\+\d+)?x", path.name)[1]
    out = tmp_path / "out.sh"
    cards = ["--gpus", f"{count}x{gpus}", "--quick"]
    done = invoke("recipe", "apply", path, out, *cards, "--json")
    if done.exit_code:
        assert re.search("fits as it is|no set of changes", done.output) and not out.exists()
        return
    promised = json.loads(done.output)
    again = json.loads(invoke("plan", out, *cards, "--json").output)
    assert again["verdict"] == promised["verdict"] != "out of memory"
    assert again["peak_gib"] == promised["peak_gib"]
    differ_in(bash(path, given), bash(out, given), promised["flags"])
    added = [line for line in out.read_text().splitlines() if "changed by vlrft" in line]
    assert len(added) == 1 and "DATASET=/data/mine:pixels" in added[0]
    assert out.stat().st_mode == path.stat().st_mode


BYTES = {
    "carriage returns": b"#!/bin/bash\r\n# one\r\nswift rlhf --rlhf_type grpo \\\r\n  --train_type lora \\\r\n  --use_vllm true\r\necho \xc3\xa9\r\n",  # noqa: E501
    "byte order mark": b"\xef\xbb\xbfswift rlhf --rlhf_type grpo --train_type lora "
    b"--use_vllm true\n",
    "trailing blanks": b"swift rlhf --rlhf_type grpo --train_type lora   --use_vllm true   \n\n \n",
    "remarks in GBK": b"# \xd6\xd0\nswift rlhf --rlhf_type grpo --train_type lora "
    b"--use_vllm true # \xd6\xd0\n",
    "unicode": "# \u4e2d\u6587\u2028\x0c\nswift rlhf --rlhf_type grpo --system '\u2028' --train_type lora --use_vllm true".encode(),  # noqa: E501
}


@pytest.mark.parametrize("name", BYTES)
def test_every_other_byte_stays(name, tmp_path):
    path = tmp_path / "run.sh"
    path.write_bytes(BYTES[name])
    assert "backup: " in invoke("check", "--fast", "--fix", path).output
    after = path.read_bytes()
    assert after.count(b"\r") in (0, after.count(b"\n"))
    added = re.compile(rb"( \\\r?\n)? +--vllm_mode colocate")
    assert len(added.findall(after)) == 1
    assert added.sub(b"", after).replace(b"tuner_type", b"train_type") == BYTES[name]


CONFIGURATIONS = {
    "a.yaml": (
        '# why\nrlhf_type: grpo   # GRPO\nbeta: 0.04  # as in the paper\nmodel: "m"\n'
        "reward_funcs:\n  - a\n  - b  # last\n# end\n",
        {"beta": "0.04", "MAX_PIXELS": None, "model": '"m"'},
    ),
    "env.yaml": (
        "ENV:\n  MAX_PIXELS: 401408 # pixels\n  OTHER: x\nrlhf_type: grpo\nbeta: 0.04",
        {"beta": "0.04", "MAX_PIXELS": "401408"},
    ),
    "flow.yaml": ("{rlhf_type: grpo, beta: 0.04, reward_funcs: [a, b]}\n", {"beta": "0.04"}),
    "windows.yaml": ("rlhf_type: grpo\r\nbeta: 0.04 # x\r\nmodel: m\r\n", {"beta": "0.04"}),
    "dashes.yaml": ("rlhf_type: grpo\nbeta: 0.04\n\n\n# tail\n", {"beta": "0.04"}),
    "a.json": ('{\n  "rlhf_type": "grpo",\n  "beta": 0.04,\n  "model": "m"\n}\n', {"beta": "0.04"}),
    "tabs.json": ('{\n\t"rlhf_type": "grpo",\n\t"beta": 0.04\n}\n', {"beta": "0.04"}),
    "one.json": ('{"rlhf_type": "grpo", "beta": 0.04}', {"beta": "0.04"}),
    "text.json": ('{"rlhf_type": "grpo", "beta": "0.04", "ENV": {"A": "1"}}', {"beta": "0.04"}),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_changed_in_place(name, tmp_path):
    text, _ = CONFIGURATIONS[name]
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


LISTS = [
    ("reward_funcs:\n  - one # 1\n  - two # 2\n", "reward_funcs:\n  - x\n  - y\n  - z # 2\n"),
    ("reward_funcs:\n- one\nbeta: 1\n", "reward_funcs:\n- x\n- y\n- z\nbeta: 1\n"),
    ("reward_funcs: [one, two]\n", "reward_funcs: [x, y, z]\n"),
    ("reward_funcs: one # why\n", "reward_funcs: [x, y, z] # why\n"),
    ("{beta: 1, reward_funcs: [one]}\n", "{beta: 1, reward_funcs: [x, y, z]}\n"),
    ("reward_funcs: {a: 1}\n", "reward_funcs: [x, y, z]\n"),
    ("reward_funcs:\n  a: 1\nbeta: 1\n", None),
]


@pytest.mark.parametrize(("before", "after"), LISTS)
def test_a_list_is_written_as_it_was(before, after, tmp_path):
    edit = Edit("reward_funcs", values=("x", "y", "z"))
    if after is None:
        with pytest.raises(CannotEdit, match=r"a.yaml:1: --reward_funcs .* by hand"):
            with_edit(before, tmp_path / "a.yaml", edit)
    else:
        assert with_edit(before, tmp_path / "a.yaml", edit) == after


REFUSED = [
    # what stands before the command, environment, where apply writes to, what is said
    ("export MAX_PIXELS=${MAX_PIXELS:-401408}", {"MAX_PIXELS": "12845056"}, "out.sh",
     "run.sh:1: MAX_PIXELS cannot be changed here: its value comes from MAX_PIXELS=12845056 in"),
    ("P=${P-401408}; export MAX_PIXELS=$P", {"P": "12845056"}, "out.sh", "comes from P=12845056"),
    ('source "$(dirname "$0")/env.sh"', {}, "other/out.sh", "beside itself"),
    ("# one\ncd ${BASH_SOURCE%/*}", {}, "other/out.sh", "run.sh:2: the script looks for"),
    ("", {}, "out.yaml", "another kind of file"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "given", "out", "said"), REFUSED)
def test_what_cannot_be_carried_over_is_refused(first, given, out, said, tmp_path, monkeypatch):
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
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
    with pytest.raises(
        ValueError, match=r"run.sh:3: --batch .*BATCH=8 in your environment.*--batch 2"
    ):
        changed_text(read_recipe(path), {"batch": "2"})


def test_every_version_of_a_fixed_recipe_is_kept(tmp_path):
    path = tmp_path / "run.sh"
    command = "swift rlhf --rlhf_type grpo --train_type lora --beta {}\n"
    for version in range(4):
        path.write_text(command.format(version))
        shown = " ".join(invoke("check", "--fast", "--fix", path).output.split())
        (named,) = re.findall(r"backup: (\S+)", shown)
        assert Path(named).read_text() == command.format(version)
    kept = {file.read_text() for file in tmp_path.glob("run.sh.orig*")}
    assert kept == {command.format(version) for version in range(4)}
    # Fixed again without a change of its own: the copy that is there says it.
    path.write_text(command.format(2))
    invoke("check", "--fast", "--fix", path)
    assert len(list(tmp_path.glob("run.sh.orig*"))) == 4
    # Nothing to fix: nothing is written.
    assert "rewritten" not in invoke("check", "--fast", "--fix", path).output


def test_a_link_to_a_recipe_stays_a_link(tmp_path):
    (tmp_path / "shared").mkdir()
    file, link = tmp_path / "shared" / "run.sh", tmp_path / "run.sh"
    file.write_text("swift rlhf --rlhf_type grpo --train_type lora\n")
    link.symlink_to(file)
    invoke("check", "--fast", "--fix", link)
    assert link.is_symlink() and "tuner_type" in file.read_text()
    assert "train_type" in (tmp_path / "shared" / "run.sh.orig").read_text()


def test_apply_onto_a_file_keeps_what_was_there(tmp_path, monkeypatch):
    path = REPOSITORY / "recipes" / "qwen2_5_vl_3b" / "detection_4x80g.sh"
    out = tmp_path / "mine.sh"
    out.write_text("# by hand\n")
    done = invoke("recipe", "apply", path, out, "--gpus", "4x24", "--quick")
    assert (tmp_path / "mine.sh.orig").read_text() == "# by hand\n"
    assert "mine.sh.orig" in done.output and "move_model_batches 16" in out.read_text()
