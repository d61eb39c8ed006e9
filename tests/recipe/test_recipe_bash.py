"""What our reader calls known is what bash hands to `swift`; no rule sees a problem in it."""

import json
import os
import re
from pathlib import Path

import pytest
from recipe.bash import run_bash, write_programs

from swift_vlrft.files.shipped import shipped_file
from swift_vlrft.recipe.reader import RecipeError, read_recipes
from swift_vlrft.recipe.rules import PROBLEM, check_recipe, check_recipes
from swift_vlrft.recipe.run import resolve

TABLE = Path(__file__).with_name("scripts.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
"""``unknown``: the flags and variables that the reader may leave unknown, or * for anything."""

GRPO = (
    "swift rlhf --rlhf_type grpo --model m --dataset d --reward_funcs format"
    " --gradient_accumulation_steps 1 --num_generations 8 --per_device_train_batch_size"
)
# A command without a fault; one for 8 processes, so that a wrong count of them is a problem.
TOKENS = {"@GRPO@": f"{GRPO} 8", "@WIDE@": f"{GRPO} 1"}

OPTIONS = {
    "uv": "--python",
    "srun": "-N|-p",
    "conda": "-n",
    "sudo": "-",
    "ionice": "-c",
    "accelerate": "--num_processes|--config_file",
    "torchrun": "--nproc_per_node|--nnodes",
}
"""Wrappers that a machine may lack, as scripts that skip their options: those that take a value."""
WRAPPER = """#!/bin/bash
case $1 in run|launch) shift;; esac
while [[ $1 == -* || $1 == *=* ]]; do
  case $1 in -m) break;; *=*) [[ $1 == -* ]] || export "$1";; {0}) shift;; esac
  shift
done
case $1 in
  -m) shift; f=${{1//.//}}; shift; exec $f.py "$@";;
  *.py) exec "./$@";;
  *) exec "$@";;
esac
"""
PYTHON = """#!/bin/bash
[ "$1" = -u ] && shift
case $1 in -m) f=${2//.//}.py; shift 2;; *) f=$1; shift;; esac
exec "$f" "$@"
"""
FILES = {
    **{f"data/{name}.jsonl": '{"messages": [], "solution": ""}\n' for name in ("a", "b", "my set")},
    "env.sh": "# settings\nFROM_ENV=1\nNPROC_PER_NODE=8\n",
    "args.txt": "--a 1 --beta 0\n",
    "conf.yaml": "rlhf_type: grpo\nmodel: m\ndataset: d\nreward-funcs: format\n"
    "num-generations: 8\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 1\n",
}
OF_WRAPPERS = {"_STDBUF_O", "_STDBUF_E", "LD_PRELOAD", "PATH", "PWD", "OLDPWD", "SEEN", "_"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    write_programs(folder, ["swift"])
    write_programs(folder, ["python"], PYTHON)
    write_programs(folder, ["vlrft"], f"#!/bin/sh\necho {shipped_file('plugins', 'vlrft.py')}\n")
    for name, valued in OPTIONS.items():
        write_programs(folder, [name], WRAPPER.format(valued))
    return folder


@pytest.fixture
def ask_both(programs, tmp_path, monkeypatch):
    """The commands of a script as we read them, and as bash runs them."""
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 0)

    def ask(script, arguments=()):
        folder = tmp_path / f"script{len(list(tmp_path.iterdir()))}"
        write_programs(folder, ["bin/swift", "swift/cli/rlhf.py", "swift/cli/sft.py"])
        (folder / "data").mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        for token, text in TOKENS.items():
            script = script.replace(token, text)
        (folder / "recipe.sh").write_text(script)
        variables = {"GIVEN": "given by the caller", "HOME": "/nowhere"}
        calls, ended = run_bash(Path("recipe.sh"), programs, folder, variables, arguments)
        monkeypatch.chdir(folder)
        variables |= {"PATH": f"{programs}:/usr/bin:/bin"}
        try:
            return read_recipes("recipe.sh", variables, list(arguments)), calls, ended.stderr
        except RecipeError:
            assert not calls
            return [], [], ended.stderr

    return ask


def words_of(call):
    """The command and its words, --a=b as --a b, with the flags of a configuration."""
    name = call.program.removesuffix(".py")
    words = [*([] if name == "swift" else [name]), *call.words]
    if words[1:2] == ["conf.yaml"]:
        lines = FILES["conf.yaml"].splitlines()
        words[1:2] = [w for line in lines for w in f"--{line}".split(": ")]
    return [
        part
        for word in words
        for part in (word.split("=", 1) if word.startswith("--") and "=" in word else [word])
    ]


def flags_of(words):
    """Flags as argparse sees them: name to values, the last of a name."""
    flags, values = {}, []
    for word in words[1:]:
        if word.startswith("-") and not word[1:2].isdigit() and " " not in word:
            values = flags[word.lstrip("-").replace("-", "_")] = []
        else:
            values.append(word)
    return flags


def plain(word):
    """A flag as ms-swift's parser names it: -x as --x, --a-b as --a_b."""
    return f"--{word.lstrip('-').replace('-', '_')}" if re.match("--?[A-Za-z]", word) else word


def disagreement(recipe, call, unknown):
    """What we call known and bash does not say; None where all is right."""
    words = words_of(call)
    if recipe.command[1] != words[0]:
        return "command", recipe.command
    seen = flags_of(words)
    for name in {*seen, *(flag.name for flag in recipe.flags if flag.name)}:
        flag = recipe.flag(name)
        if flag is None if recipe.is_absent(name) else recipe.is_known(name):
            if (list(flag.values) if flag else None) != seen.get(name):
                return name, flag, seen.get(name)
        elif unknown != "*" and name not in unknown.split():
            return name, "is unknown"
    if not unknown:  # then the whole command is known, in order
        ours = [w for f in recipe.flags for w in (*([f"--{f.name}"] * bool(f.name)), *f.values)]
        if [plain(word) for word in ours] != [plain(word) for word in words[1:]]:
            return "words", ours, words
    for name in {*recipe.environment, *call.environment} - OF_WRAPPERS:
        if recipe.may_be_unread(name):
            if unknown != "*" and name not in unknown.split():
                return name, "is unknown"
        elif recipe.environment.get(name) != call.environment.get(name):
            return name, recipe.environment.get(name), call.environment.get(name)
    return None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"][:50])
def test_what_is_known_is_what_bash_says_and_nothing_is_wrong_with_it(row, ask_both):
    recipes, calls, log = ask_both(row["script"], row.get("arguments", ()))
    for call in calls:
        said = [disagreement(recipe, call, row.get("unknown", "")) for recipe in recipes]
        assert None in said, (said, log)
    assert calls and (
        len(recipes) == len(calls) or "read once" in row["why"] or "loop" in row["why"]
    ), log
    made_up = ("unknown-flag", "value", "reward", "stray-word", "plugin")  # --x
    findings = [f for r in recipes for f in check_recipe(resolve(r)) if f.rule not in made_up]
    assert [f.text for f in findings if f.level == PROBLEM] == []


MS_SWIFT = os.environ.get("VLRFT_MS_SWIFT", "")
TRUE = {"placeholder", "not-installed"}
"""What is wrong with examples of ms-swift: they hold placeholders, and need other packages."""


@pytest.mark.skipif(
    not (MS_SWIFT and Path(MS_SWIFT, "examples").is_dir()),
    reason="VLRFT_MS_SWIFT names no checkout of ms-swift",
)
def test_the_examples_of_ms_swift_have_no_other_problem(monkeypatch):
    """All of its scripts and their configurations; none of them is kept here. In muonclip.sh the
    lines with variables lack their backslashes; loss_scale.sh names a loss that is no more.
    """
    monkeypatch.chdir(MS_SWIFT)
    monkeypatch.setattr("swift_vlrft.recipe.rules.gpus.gpus_here", lambda: 0)
    problems = {}
    for path in [
        *sorted(Path("examples").rglob("*.sh")),
        *sorted(Path("examples/yaml").rglob("*.yaml")),
    ]:
        try:
            recipes = read_recipes(path, {})
        except RecipeError:
            lines = path.read_text().splitlines()
            assert not any(line.lstrip().startswith(("swift rlhf", "swift sft")) for line in lines)
            continue
        findings = [f for f in check_recipes(map(resolve, recipes)) if f.level == PROBLEM]
        problems[path.name] = [(f.line, f.text) for f in findings if f.rule not in TRUE]
    assert {path for path, said in problems.items() if said} == {"loss_scale.sh", "muonclip.sh"}
    assert len(problems) > 150
